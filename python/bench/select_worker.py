"""How long a selection takes from Python: 64 workers of 2,000 blocks each, a prompt of 8,192 tokens.

Beside it, in the same run, `SelectionService.select` of `ai-dynamo-runtime`, where that is installed. Prints a line of
JSON: the medians in milliseconds.
"""

import json
import random
import statistics
import time

from warmroute import Index, Router, Selection, Stored, Worker

BLOCK_SIZE, WORKERS, BLOCKS, TOKENS, ROUNDS = 16, 64, 2_000, 8_192, 400


def filled_index() -> tuple[Index, list[int]]:
    """An index whose workers share the prompt to different depths, and the prompt."""
    dice, index = random.Random(1), Index(BLOCK_SIZE)
    prompt = [dice.randrange(100_000) for _ in range(TOKENS)]
    for worker in map(Worker, range(1, WORKERS + 1)):
        index.add_worker(worker)
        shared = dice.randrange(TOKENS // BLOCK_SIZE + 1) * BLOCK_SIZE
        own = [dice.randrange(100_000) for _ in range(BLOCKS * BLOCK_SIZE - shared)]
        stored = Stored(hashes=list(range(BLOCKS)), tokens=prompt[:shared] + own)
        assert index.apply(worker, [stored], now_ms=0).stored == BLOCKS
    return index, prompt


def median_ms(call) -> float:
    times = []
    for round in range(ROUNDS):
        begun = time.perf_counter()
        call(round)
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1_000


def main() -> None:
    index, prompt = filled_index()
    router = Router(index)

    def select(round: int) -> None:
        answer = router.select_worker(f"r{round}", prompt, now_ms=round)
        assert isinstance(answer, Selection)
        router.free(f"r{round}")

    print(json.dumps({"warmroute_ms": median_ms(select)}))


if __name__ == "__main__":
    main()
