"""The rules of `KVAwareRouter`, with Ray's own classes. Each test fails when its rule is taken out."""

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import Iterator, Optional

import pytest

pytest.importorskip("ray.serve.request_router")

from ray.serve._private.common import (  # noqa: E402
    DeploymentHandleSource,
    DeploymentID,
    RequestMetadata,
    RunningReplicaInfo,
)
from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica  # noqa: E402

from warmroute import Load, Stored, Worker  # noqa: E402
from warmroute.ray import KVAwareRouter, worker_id  # noqa: E402

DEPLOYMENT = DeploymentID("llm")
PROMPT = list(range(64))


class Placed(RunningReplicaInfo):
    """What Ray knows of a running replica, without an actor behind it."""

    def get_actor_handle(self):
        return object()


def replica(name: str, metadata: Optional[dict] = None) -> RunningReplica:
    return RunningReplica(
        Placed(
            replica_id=ReplicaID(name, DEPLOYMENT),
            node_id="node",
            node_ip="127.0.0.1",
            availability_zone=None,
            actor_name=name,
            max_ongoing_requests=8,
            replica_metadata=metadata or {},
        )
    )


def request(kwargs: dict, args: tuple = (), streaming: bool = False, id: str = "r") -> PendingRequest:
    metadata = RequestMetadata(request_id=id, internal_request_id=id, is_streaming=streaming)
    return PendingRequest(args=list(args), kwargs=kwargs, metadata=metadata)


class Fixture:
    """A router, and replicas of which the second holds the prompt."""

    def __init__(self, router_class: type = KVAwareRouter, **kwargs) -> None:
        self.router = router_class(DEPLOYMENT, DeploymentHandleSource.REPLICA)
        self.router.initialize_state(**kwargs)
        self.replicas = [replica(name) for name in "abc"]
        self.router.update_replicas(self.replicas)
        self.warm = self.replicas[1]
        stored = Stored(hashes=[1, 2, 3, 4], tokens=PROMPT)
        self.router._index.apply(self.worker(self.warm), [stored], now_ms=int(time.monotonic() * 1_000))

    @staticmethod
    def worker(replica: RunningReplica) -> Worker:
        return Worker(worker_id(replica.replica_id))

    async def choose(self, pending: Optional[PendingRequest], candidates=None) -> list:
        candidates = self.replicas if candidates is None else candidates
        return await self.router.choose_replicas(candidates, pending)

    def loads(self) -> list:
        loads = self.router._kv_router.loads()
        return [loads[self.worker(replica)] for replica in self.replicas]


def in_loop(test):
    """Runs a test as a coroutine: Ray's classes want a running event loop."""

    def run():
        asyncio.run(test())

    return run


@in_loop
async def test_the_replica_that_holds_the_prompt_is_first_and_all_others_are_behind_it():
    fixture = Fixture(ranked=1, policy="prefix")
    ranks = await fixture.choose(request({"token_ids": PROMPT}))
    assert ranks[0] == [fixture.warm]
    assert {replica.replica_id.unique_id for replica in ranks[1]} == {"a", "c"}


class Asked(KVAwareRouter):
    """Remembers what is asked for."""

    def initialize_state(self, **kwargs) -> None:
        super().initialize_state(**kwargs)
        self.asked = []

    async def select_worker(self, request_id, token_ids, candidates):
        self.asked.append(token_ids)
        return await super().select_worker(request_id, token_ids, candidates)


@in_loop
async def test_no_candidates_are_no_choice_and_nothing_is_asked():
    fixture = Fixture(Asked)
    assert await fixture.choose(request({"token_ids": PROMPT}), candidates=[]) == []
    assert fixture.router.asked == []


@in_loop
async def test_without_a_request_or_its_token_ids_all_candidates_are_rays_and_nothing_is_asked():
    fixture = Fixture(Asked)
    everyone = [fixture.replicas]
    assert await fixture.choose(None) == everyone
    assert await fixture.choose(request({})) == everyone
    assert await fixture.choose(request({"prompt": "hello"})) == everyone
    assert await fixture.choose(request({}, args=(PROMPT,))) == everyone
    assert await fixture.choose(request({"token_ids": []})) == everyone
    assert await fixture.choose(request({"token_ids": None})) == everyone
    assert await fixture.choose(request({"token_ids": "1 2 3"})) == everyone
    without = request({})
    without.kwargs = None
    assert await fixture.choose(without) == everyone
    assert fixture.router.asked == []


@in_loop
async def test_token_ids_that_are_none_fall_back():
    fixture = Fixture()
    for tokens in ([-1], [2**32], ["a"], [None], [1.5], [[1]], [True, None]):
        assert await fixture.choose(request({"token_ids": tokens})) == [fixture.replicas], tokens
    assert fixture.loads() == [Load()] * 3


@in_loop
async def test_a_selection_that_is_refused_falls_back():
    fixture = Fixture(max_age_ms=0)
    await asyncio.sleep(0.01)
    assert await fixture.choose(request({"token_ids": PROMPT})) == [fixture.replicas]
    assert await fixture.router.select_worker("r", PROMPT, [1]) is None, "a refusal is an answer, and no error"


@in_loop
async def test_a_selection_that_raises_falls_back():
    class Raising(KVAwareRouter):
        async def select_worker(self, request_id, token_ids, candidates):
            raise RuntimeError("selection is down")

    fixture = Fixture(Raising)
    assert await fixture.choose(request({"token_ids": PROMPT})) == [fixture.replicas]


@in_loop
async def test_a_selection_that_takes_too_long_falls_back():
    class Slow(KVAwareRouter):
        async def select_worker(self, request_id, token_ids, candidates):
            await asyncio.Event().wait()

    fixture = Fixture(Slow, select_timeout_s=0.01)
    choosing = fixture.choose(request({"token_ids": PROMPT}))
    assert await asyncio.wait_for(choosing, timeout=5) == [fixture.replicas]


@contextmanager
def held_up(fixture: Fixture) -> Iterator[threading.Event]:
    """Selections begin, which sets the event, and end after this. Whatever they and what follows them do is done then."""
    begun, select = threading.Event(), fixture.router._kv_router.select_worker

    def selecting(*args, **kwargs):
        begun.set()
        return select(*args, **kwargs)

    fixture.router._kv_router.select_worker = selecting
    with fixture.router._index._instance.lock:
        yield begun
    fixture.router._thread.submit(lambda: None).result()


@in_loop
async def test_a_selection_that_is_late_leaves_no_load_behind():
    fixture = Fixture(select_timeout_s=2.0)
    with held_up(fixture) as begun:
        choosing = asyncio.ensure_future(fixture.choose(request({"token_ids": PROMPT})))
        assert await choosing == [fixture.replicas] and begun.is_set()
    assert fixture.loads() == [Load()] * 3


@pytest.mark.parametrize("answer", [None, [], [5], ["x"]])
def test_a_selection_that_names_no_candidate_falls_back(answer):
    class Lost(KVAwareRouter):
        async def select_worker(self, request_id, token_ids, candidates):
            return answer

    async def run():
        fixture = Fixture(Lost)
        assert await fixture.choose(request({"token_ids": PROMPT})) == [fixture.replicas]

    asyncio.run(run())


@in_loop
async def test_what_a_selection_names_that_is_no_candidate_is_passed_over():
    class Stranger(KVAwareRouter):
        async def select_worker(self, request_id, token_ids, candidates):
            return [5, candidates[2], candidates[2]]

    fixture = Fixture(Stranger)
    ranks = await fixture.choose(request({"token_ids": PROMPT}))
    assert ranks == [[fixture.replicas[2]], fixture.replicas[:2]]


@in_loop
async def test_a_replica_that_is_no_candidate_is_not_chosen():
    fixture = Fixture(policy="prefix", ranked=1)
    left = [fixture.replicas[0], fixture.replicas[2]]
    ranks = await fixture.choose(request({"token_ids": PROMPT}), candidates=left)
    assert fixture.warm not in [replica for rank in ranks for replica in rank]


@in_loop
async def test_load_is_booked_where_the_request_is_served_and_released_in_two_steps():
    fixture = Fixture(policy="prefix")
    pending = request({"token_ids": PROMPT + [9] * 20}, streaming=True)
    await fixture.choose(pending)
    assert fixture.loads() == [Load(), Load(1, 20, 6), Load()]

    class Result:
        async def __anext__(self):
            return "item"

        def __next__(self):
            return "item"

    result = Result()
    other = fixture.replicas[0]
    fixture.router.on_request_routed(pending, other.replica_id, result)
    assert fixture.loads() == [Load(1, 84, 6), Load(), Load()]
    assert await result.__anext__() == "item"
    assert fixture.loads()[0] == Load(1, 0, 6)
    assert await result.__anext__() == "item"
    fixture.router.on_request_completed(other.replica_id, "r")
    assert fixture.loads() == [Load()] * 3


@in_loop
async def test_the_end_of_an_attempt_that_was_refused_leaves_the_next_one_booked():
    fixture = Fixture(policy="prefix")
    pending = request({"token_ids": PROMPT})
    await fixture.choose(pending)
    other = fixture.replicas[0]
    fixture.router.on_request_routed(pending, other.replica_id, None)
    fixture.router.on_request_completed(fixture.warm.replica_id, "r")
    assert [load.requests for load in fixture.loads()] == [1, 0, 0]
    fixture.router.on_request_completed(other.replica_id, "r")
    assert fixture.loads() == [Load()] * 3


@in_loop
async def test_prompts_that_nobody_holds_reach_every_idle_replica():
    fixture, reached = Fixture(), set()
    for turn in range(6):
        pending = request({"token_ids": [turn] * 64}, id=f"r{turn}")
        [replica] = (await fixture.choose(pending))[0]
        reached.add(replica.replica_id)
        fixture.router.on_request_routed(pending, replica.replica_id, None)
        fixture.router.on_request_completed(replica.replica_id, f"r{turn}")
    assert len(reached) == 3


@in_loop
async def test_a_request_that_is_cancelled_while_it_waits_is_released():
    fixture = Fixture()
    pending = request({"token_ids": PROMPT})
    await fixture.choose(pending)
    assert sum(load.requests for load in fixture.loads()) == 1
    pending.future.cancel()
    await asyncio.sleep(0)
    assert fixture.loads() == [Load()] * 3


@in_loop
async def test_a_selection_that_is_cancelled_books_nothing():
    fixture = Fixture(select_timeout_s=60)
    with held_up(fixture) as begun:
        choosing = asyncio.ensure_future(fixture.choose(request({"token_ids": PROMPT})))
        assert await asyncio.to_thread(begun.wait, 20)
        choosing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await choosing
    assert fixture.loads() == [Load()] * 3


@in_loop
async def test_a_selection_for_a_request_that_has_its_replica_books_nothing():
    fixture = Fixture()
    pending = request({"token_ids": PROMPT})
    pending.future.set_result(fixture.warm)
    await fixture.choose(pending)
    assert fixture.loads() == [Load()] * 3


@in_loop
async def test_a_request_whose_end_is_told_before_its_beginning_is_not_booked():
    fixture = Fixture()
    pending = request({"token_ids": PROMPT})
    await fixture.choose(pending)
    fixture.router.on_request_completed(fixture.warm.replica_id, "r")
    fixture.router.on_request_routed(pending, fixture.warm.replica_id, None)
    assert fixture.loads() == [Load()] * 3
    for number in range(5_000):
        fixture.router.on_request_completed(fixture.warm.replica_id, str(number))
    assert len(fixture.router._ended) < 2_000, "what is never told to begin is forgotten"


@in_loop
async def test_a_replica_that_is_gone_or_dead_counts_no_more():
    fixture = Fixture(policy="prefix")
    fixture.router.on_replica_actor_died(fixture.warm.replica_id)
    assert fixture.worker(fixture.warm) not in fixture.router._index.workers()
    fixture.router.update_replicas(fixture.replicas[:1])
    assert fixture.router._index.workers() == [fixture.worker(fixture.replicas[0])]


def test_a_worker_id_is_eight_bytes_of_blake2b_big_endian():
    from hashlib import blake2b

    digest = blake2b(b"a1b2", digest_size=8).digest()
    assert worker_id(ReplicaID("a1b2", DEPLOYMENT)) == int.from_bytes(digest, "big")


@in_loop
async def test_weights_are_an_object():
    assert (await Fixture(policy={"gpu_credit": 1.0}).choose(request({"token_ids": PROMPT})))[0]


def test_an_unknown_setting_is_refused():
    async def run():
        router = KVAwareRouter(DEPLOYMENT, DeploymentHandleSource.REPLICA)
        with pytest.raises(ValueError, match="block_sise"):
            router.initialize_state(block_sise=16)

    asyncio.run(run())
