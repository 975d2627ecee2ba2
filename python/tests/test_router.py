"""The package's own API."""

import random

import pytest

from warmroute import (
    Cleared,
    Depths,
    Index,
    InvalidSnapshot,
    InvalidTokens,
    Load,
    Refusal,
    Removed,
    Router,
    Selection,
    Stored,
    Tier,
    Weights,
    Worker,
    encode_tokens,
)

A, B = Worker(1), Worker(2**64 - 1, 1)
PROMPT = list(range(40))


@pytest.fixture
def index() -> Index:
    index = Index(block_size=16)
    assert index.add_worker(A) and index.add_worker(B)
    return index


def test_a_prompt_goes_to_the_worker_that_holds_it_until_it_is_dropped(index: Index) -> None:
    router = Router(index, policy="prefix")
    assert index.apply(B, [Stored(hashes=[7, 8], tokens=PROMPT[:32])], now_ms=0).stored == 2
    assert index.matches(PROMPT) == {B: Depths(2, 2, 2, 2)}
    assert index.matches(PROMPT, salt="other") == {}
    selection = router.select_worker("r", PROMPT, now_ms=0)
    assert isinstance(selection, Selection)
    assert (selection.worker, selection.depths, selection.prompt_blocks) == (B, Depths(2, 2, 2, 2), 2)

    index.apply(B, [Removed([8]), Stored(hashes=[8], tokens=PROMPT[16:32], parent=7, tier=Tier.CPU)], now_ms=0)
    assert index.matches(PROMPT) == {B: Depths(1, 2, 2, 2)}
    index.apply(B, [Cleared()], now_ms=0)
    assert index.matches(PROMPT) == {}


def test_an_event_that_fails_costs_only_itself(index: Index) -> None:
    bad = Stored(hashes=[1, 2], tokens=PROMPT[:31])
    other_size = Stored(hashes=[1], tokens=PROMPT[:8], block_size=8)
    applied = index.apply(A, [bad, Stored(hashes=[1], tokens=PROMPT[:16]), other_size], now_ms=0)
    assert applied.stored == 1
    assert applied.failed == [(0, "misaligned"), (2, "block-size: 8")]
    assert index.apply(Worker(9), [Cleared()], now_ms=0).failed == [(0, "unknown-worker")]


def test_the_books_hold_a_request_until_it_is_freed(index: Index) -> None:
    router = Router(index, policy=Weights())
    index.apply(A, [Stored(hashes=[1], tokens=PROMPT[:16])], now_ms=0)
    selection = router.select_worker("r", PROMPT, candidates=[A.id], now_ms=0)
    assert isinstance(selection, Selection) and selection.worker == A
    assert router.loads() == {A: Load(1, 24, 3), B: Load()}
    assert router.prefill_complete("r")
    assert router.loads()[A] == Load(1, 0, 3)
    router.set_loads({B: Load(5, 50, 500)})
    assert router.free("r") and not router.free("r")
    assert router.loads() == {A: Load(), B: Load(5, 50, 500)}


def test_each_refusal_has_its_reason(index: Index) -> None:
    router = Router(index, max_age_ms=100)

    def refused(**arguments) -> Refusal:
        answer = router.select_worker(**{"request_id": "r", "tokens": PROMPT, "now_ms": 0, **arguments})
        assert isinstance(answer, Refusal)
        return answer

    assert refused().reason == "no-index"
    index.apply(A, [], now_ms=1_000)
    assert refused(candidates=[]).reason == "no-candidates"
    assert refused(candidates=[5]).reason == "no-candidates"
    assert refused(tokens=[], now_ms=1_000).reason == "no-tokens"
    assert refused(now_ms=1_101) == Refusal("stale", "101")
    assert isinstance(router.select_worker("r", PROMPT, now_ms=1_100), Selection)
    for tokens in ([-1], [2**32], ["a"], [None], [1.5], "12", b"12", 5, None):
        assert refused(tokens=tokens).reason == "bad-request", tokens
    assert refused(candidates=["x"]).reason == "bad-request"


@pytest.mark.parametrize("tokens", [[-1], [2**32], ["1"], [None], [0.5], "1", b"1", 1, None, [[1]]])
def test_what_is_no_token_list_is_refused(tokens) -> None:
    with pytest.raises(InvalidTokens):
        encode_tokens(tokens)


def test_a_restored_index_answers_every_prompt_as_the_other_does(index: Index) -> None:
    dice = random.Random(11)
    prompts = [[dice.randrange(3) for _ in range(16 * 9)] for _ in range(20)]
    prompts += [prompt[: 16 * dice.randrange(9)] + [7] * 40 for prompt in prompts]
    for turn, prompt in enumerate(prompts):
        hashes = list(range(100 * turn, 100 * turn + len(prompt) // 16))
        told = Stored(hashes, prompt[: 16 * len(hashes)], salt=dice.choice([None, "s"]), tier=dice.choice(list(Tier)))
        assert index.apply(dice.choice([A, B]), [told], now_ms=turn).failed == []
    orphan = Stored(hashes=[9_001], tokens=PROMPT[16:32], parent=9_000)
    index.apply(A, [orphan, Removed(hashes=[0, 100, 203])], now_ms=50)

    restored = Index.restore(index.snapshot())
    known = [[of.matches(prompt, salt=salt) for prompt in prompts for salt in (None, "s")] for of in (index, restored)]
    assert known[0] == known[1] and sum(map(len, known[0])) > 40
    assert (restored.workers(), restored.block_size) == (index.workers(), 16)
    assert restored.stats() == index.stats()
    first = Stored(hashes=[9_000], tokens=PROMPT[:16])
    assert restored.apply(A, [first], now_ms=0).attached == 1


def test_a_restored_index_routes_once_it_is_told_that_nothing_was_missed(index: Index) -> None:
    index.apply(B, [Stored(hashes=[7, 8], tokens=PROMPT[:32])], now_ms=90)
    restored = Index.restore(index.snapshot())
    router = Router(restored, policy="prefix")
    assert router.select_worker("r", PROMPT, now_ms=5) == Refusal("no-index")
    restored.apply(B, [], now_ms=5)
    selection = router.select_worker("r", PROMPT, now_ms=5)
    assert isinstance(selection, Selection) and selection.worker == B


def test_a_snapshot_that_is_none_or_damaged_is_told(index: Index) -> None:
    snapshot = index.snapshot()
    for bad, why in [
        (b"", "foreign"),
        (b"something else entirely", "foreign"),
        (snapshot[:8] + b"\x09" + snapshot[9:], "version: 9"),
        (snapshot[:-1], "damaged"),
        (snapshot[:20] + b"\xff" + snapshot[21:], "damaged"),
        (snapshot + b"x", "damaged"),
        (bytes((1 << 27) + 1), "too-large: 134217729"),
    ]:
        with pytest.raises(InvalidSnapshot, match=why):
            Index.restore(bad)


def test_settings_out_of_range_say_what_to_write(index: Index) -> None:
    with pytest.raises(ValueError, match="block-size is 0; write 1 to"):
        Index(block_size=0)
    with pytest.raises(ValueError, match="booking-life-ms is 0"):
        Router(index, booking_life_ms=0)
    with pytest.raises(ValueError, match="policy is 'best'; write one of"):
        Router(index, policy="best")
    with pytest.raises(ValueError, match="gpu-credit is -1; write 0 or more"):
        Router(index, policy=Weights(gpu_credit=-1))


def test_random_calls_answer_with_values(index: Index) -> None:
    dice, router = random.Random(7), Router(index)
    index.apply(A, [], now_ms=0)
    odd = [-1, 0, 1, 2**32 - 1, 2**32, 2**64 - 1, 2**64, None, "x", 1.5, [], "\ud800"]
    for call in range(3_000):
        tokens = [dice.choice(odd) if dice.random() < 0.1 else dice.randrange(50) for _ in range(dice.randrange(60))]
        candidates = None if dice.random() < 0.5 else [dice.choice(odd) for _ in range(dice.randrange(3))]
        answer = router.select_worker(f"r{call % 40}", tokens, candidates, ranked=dice.randrange(4), now_ms=call)
        assert isinstance(answer, (Selection, Refusal))
        router.free(f"r{dice.randrange(40)}")
