"""The rules of `KVAwareRouter`, with Ray's own classes. Each test fails when its rule is taken out."""

import asyncio
import time
from typing import Optional

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


@in_loop
async def test_no_candidates_are_no_choice():
    assert await Fixture().choose(request({"token_ids": PROMPT}), candidates=[]) == []


@in_loop
async def test_without_a_request_or_its_token_ids_all_candidates_are_rays():
    fixture = Fixture()
    everyone = [fixture.replicas]
    assert await fixture.choose(None) == everyone
    assert await fixture.choose(request({})) == everyone
    assert await fixture.choose(request({"prompt": "hello"})) == everyone
    assert await fixture.choose(request({}, args=(PROMPT,))) == everyone
    assert await fixture.choose(request({"token_ids": []})) == everyone
    assert await fixture.choose(request({"token_ids": None})) == everyone
    assert await fixture.choose(request({"token_ids": "1 2 3"})) == everyone


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


@in_loop
async def test_a_selection_that_is_late_leaves_no_load_behind():
    fixture = Fixture()
    released = fixture.router._thread.submit(time.sleep, 0.05)
    fixture.router._select_timeout_s = 0.001
    assert await fixture.choose(request({"token_ids": PROMPT})) == [fixture.replicas]
    released.result()
    fixture.router._thread.submit(lambda: None).result()
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
async def test_a_selection_that_names_a_replica_that_is_no_candidate_goes_to_the_next():
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
async def test_a_request_that_is_cancelled_while_it_waits_is_released():
    fixture = Fixture()
    pending = request({"token_ids": PROMPT})
    await fixture.choose(pending)
    assert sum(load.requests for load in fixture.loads()) == 1
    pending.future.cancel()
    await asyncio.sleep(0)
    assert fixture.loads() == [Load()] * 3


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


def test_an_unknown_setting_is_refused():
    async def run():
        router = KVAwareRouter(DEPLOYMENT, DeploymentHandleSource.REPLICA)
        with pytest.raises(ValueError, match="block_sise"):
            router.initialize_state(block_sise=16)

    asyncio.run(run())
