"""How long a selection takes from Python: 64 workers of 2,000 blocks each, a prompt of 8,192 tokens.

`warmroute_python` is `Router.select_worker`, which books; `dynamo_python` is `SelectionService.select` of NVIDIA Dynamo's
`ai-dynamo-runtime`, which does not, with the same caches, told by events over ZeroMQ as engines tell them. The two take turns,
selection by selection. Prints a line of JSON: the medians in milliseconds, and why what failed did.
"""

import asyncio
import json
import random
import statistics
import time
from typing import Iterator

import msgpack
import zmq

from warmroute import Index, Router, Selection, Stored, Worker

BLOCK_SIZE, BLOCKS, TOKENS, SELECTIONS = 16, 2_000, 8_192, 400
WORKERS = range(1, 65)
DEADLINE_S = 60


def shared_blocks(worker: int) -> int:
    """Blocks of the prompt that a worker holds: each another number, 504 at the most."""
    return worker * 37 % 64 * 8


def names(worker: int) -> list:
    """A worker's names for its blocks: the same for the same block, as in a fleet whose engines hash alike."""
    return [block + 1 + (0 if block < shared_blocks(worker) else worker * BLOCKS) for block in range(BLOCKS)]


def caches(prompt: list) -> Iterator[tuple]:
    """Each worker, and the tokens of its blocks: those of the prompt that it holds, and others."""
    dice = random.Random(2)
    for worker in WORKERS:
        shared = shared_blocks(worker) * BLOCK_SIZE
        yield worker, prompt[:shared] + [dice.randrange(100_000) for _ in range(BLOCKS * BLOCK_SIZE - shared)]


BEST = max(map(shared_blocks, WORKERS))


class Ours:
    def __init__(self, prompt: list) -> None:
        index = Index(BLOCK_SIZE)
        for id, tokens in caches(prompt):
            index.add_worker(Worker(id))
            assert index.apply(Worker(id), [Stored(names(id), tokens)], now_ms=0).stored == BLOCKS
        self.router, self.prompt = Router(index), prompt

    def select(self) -> float:
        begun = time.perf_counter()
        answer = self.router.select_worker("r", self.prompt, now_ms=0)
        took = time.perf_counter() - begun
        assert isinstance(answer, Selection) and answer.depths.gpu == BEST
        self.router.free("r")
        return took


class Theirs:
    """Dynamo's service, and an endpoint for each worker's events."""

    @classmethod
    async def start(cls, prompt: list) -> "Theirs":
        from dynamo.llm import SelectionService

        self = cls()
        self.prompt, self.service, self.context = prompt, SelectionService(), zmq.Context()
        filled = list(caches(prompt))
        publishers = [self.context.socket(zmq.XPUB) for _ in filled]
        for publisher, (worker, _) in zip(publishers, filled):
            port = publisher.bind_to_random_port("tcp://127.0.0.1")
            told = {"endpoint": f"http://127.0.0.1:{worker}", "kv_events_endpoint": f"tcp://127.0.0.1:{port}"}
            told.update(worker_id=worker, block_size=BLOCK_SIZE, max_num_batched_tokens=1 << 20)
            await self.service.upsert_worker(told)
        for publisher, (worker, tokens) in zip(publishers, filled):
            if not publisher.poll(DEADLINE_S * 1_000):
                raise RuntimeError("it does not subscribe to a worker's events")
            publisher.recv()  # The subscription.
            publisher.send_multipart([b"", bytes(8), batch(worker, tokens)])
        deadline = time.monotonic() + DEADLINE_S
        while not await self.is_filled():
            if time.monotonic() > deadline:
                raise RuntimeError(f"its index was not filled after {DEADLINE_S} s")
            await asyncio.sleep(0.05)
        return self

    async def is_filled(self) -> bool:
        """Whether it knows of each worker what our index knows."""
        scores = await self.service.overlap_scores({"token_ids": self.prompt})
        known = {score["worker_id"]: score["device_blocks"] for score in scores["workers"]}
        return all(known.get(worker, 0) == shared_blocks(worker) for worker in WORKERS)

    async def select(self) -> float:
        begun = time.perf_counter()
        answer = await self.service.select({"token_ids": self.prompt})
        took = time.perf_counter() - begun
        assert answer["overlap"]["longest_matched"] == BEST * BLOCK_SIZE
        return took

    def close(self) -> None:
        self.service.shutdown()
        self.context.destroy(linger=0)


def batch(worker: int, tokens: list) -> bytes:
    """One batch of vLLM's: a worker has stored its blocks."""
    stored = {"type": "BlockStored", "block_hashes": names(worker), "parent_block_hash": None, "token_ids": tokens}
    return msgpack.packb([0.0, [{**stored, "block_size": BLOCK_SIZE, "lora_id": None, "medium": "GPU"}], 0])


async def main() -> None:
    dice = random.Random(1)
    prompt = [dice.randrange(100_000) for _ in range(TOKENS)]
    ours, times, failed = Ours(prompt), {"warmroute_python": []}, {}
    try:
        theirs = await Theirs.start(prompt)
        times["dynamo_python"] = []
    except Exception as error:
        theirs, failed["dynamo_python"] = None, f"{type(error).__name__}: {error}"
    for _ in range(SELECTIONS):
        times["warmroute_python"].append(ours.select())
        if theirs:
            times["dynamo_python"].append(await theirs.select())
    if theirs:
        theirs.close()
    medians = {name: statistics.median(taken) * 1_000 for name, taken in times.items()}
    print(json.dumps({**medians, "failed": failed}))


if __name__ == "__main__":
    asyncio.run(main())
