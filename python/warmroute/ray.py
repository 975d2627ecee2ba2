"""KV-aware request routing for Ray Serve.

`KVAwareRouter` sends a request to the replica that holds most of its prompt, weighed against load. Everything that
cannot be decided goes where Ray would have sent it anyway:

* no candidates: no choice;
* no pending request, no keyword arguments or no token IDs: all candidates, in one rank;
* a selection that is refused, raises, takes too long or names no candidate: the same.

A replica tells where its events are by the method `record_replica_metadata` of its deployment:

    def record_replica_metadata(self):
        return {"kv_events": {"engine": "vllm", "endpoint": "tcp://10.0.0.1:5557", "replay": "tcp://10.0.0.1:5558"}}
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, Optional, Sequence

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from .events import Subscriber
from .index import Index, Worker
from .router import Refusal, Router, Weights

logger = logging.getLogger("warmroute.ray")

METADATA_KEY = "kv_events"
"""Where a replica's metadata has its event source."""

TOKEN_ID_KWARGS = ("token_ids", "prompt_token_ids", "input_ids")
"""The keyword arguments of a request in which token IDs are looked for, in this order."""


_MAX_ENDED = 1_024


def worker_id(replica_id: ReplicaID) -> int:
    """A replica's worker ID: 8 bytes of BLAKE2b of its unique ID, big-endian."""
    return int.from_bytes(blake2b(replica_id.unique_id.encode(), digest_size=8).digest(), "big")


class KVAwareRouter(RequestRouter):
    """Routes by cached prefix and load. Configured by `request_router_kwargs`: see `initialize_state`."""

    def initialize_state(
        self,
        block_size: int = 16,
        policy: Any = "standard",
        max_age_ms: Optional[int] = None,
        select_timeout_s: float = 0.05,
        token_id_kwargs: Sequence[str] = TOKEN_ID_KWARGS,
        ranked: int = 3,
        **unknown: Any,
    ) -> None:
        """Called by Ray with `request_router_kwargs`.

        `block_size` is that of the engines; `policy` and `max_age_ms` are those of `Router`, weights by name in an object; a
        selection that takes longer than `select_timeout_s` is given up; `ranked` is how many replicas are tried in order before all others.
        """
        if unknown:
            raise ValueError(f"request_router_kwargs has {', '.join(sorted(unknown))}, which KVAwareRouter has not")
        self._index = Index(block_size)
        # Ray's configuration is JSON: weights come as an object.
        weights = Weights(**policy) if isinstance(policy, dict) else policy
        self._kv_router = Router(self._index, weights, max_age_ms=max_age_ms)
        self._select_timeout_s = select_timeout_s
        self._token_id_kwargs = tuple(token_id_kwargs)
        self._ranked = ranked
        # The component serves one call at a time; a thread of its own keeps long prompts off the event loop.
        self._subscribers: dict[int, tuple[dict, Optional[Subscriber]]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="warmroute-select")
        # The latest requests that ended and were not booked, oldest first.
        self._ended: dict[str, bool] = {}

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: Optional[PendingRequest] = None,
    ) -> list[list[RunningReplica]]:
        """The chosen replicas, one a rank and best first, then all others; or all candidates in one rank."""
        if not candidate_replicas:
            return []
        chosen = await self._chosen(candidate_replicas, pending_request)
        others = [replica for replica in candidate_replicas if replica not in chosen]
        return [[replica] for replica in chosen] + ([others] if others else [])

    async def select_worker(
        self, request_id: str, token_ids: Sequence[int], candidates: Sequence[int]
    ) -> Optional[Sequence[int]]:
        """Worker IDs, best first; none: Ray's own choice. To be overridden where something else selects."""
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(
            self._thread,
            lambda: self._kv_router.select_worker(request_id, token_ids, candidates, ranked=self._ranked),
        )
        if isinstance(answer, Refusal):
            logger.debug("request %s: refused: %s %s", request_id, answer.reason, answer.detail)
            return None
        return [choice.worker.id for choice in answer.ranked]

    async def _chosen(
        self, candidates: list[RunningReplica], pending_request: Optional[PendingRequest]
    ) -> list[RunningReplica]:
        token_ids = self._token_ids(pending_request)
        if pending_request is None or token_ids is None:
            return []
        request_id = pending_request.metadata.internal_request_id
        by_worker = {worker_id(replica.replica_id): replica for replica in candidates}
        try:
            selecting = self.select_worker(request_id, token_ids, list(by_worker))
            workers = await asyncio.wait_for(selecting, self._select_timeout_s)
            # Two ranks of one replica are one replica to Ray.
            chosen = [by_worker[worker] for worker in dict.fromkeys(workers or ()) if worker in by_worker]
        except asyncio.CancelledError:
            # Another of Ray's routing tasks has found the request's replica meanwhile.
            self._free_late(request_id)
            raise
        except Exception as error:  # Whatever selects, a request is never lost by it.
            logger.warning("request %s: no selection: %r", request_id, error)
            self._free_late(request_id)
            return []
        if pending_request.future.done():
            # The same, and it may have been routed, and have ended, by now.
            self._kv_router.free(request_id)
        elif chosen:
            self._free_if_cancelled(pending_request)
        return chosen

    def _free_late(self, request_id: str) -> None:
        """A selection that comes too late books all the same; it is in front of this in the thread's queue."""
        self._thread.submit(self._kv_router.free, request_id)

    def _token_ids(self, pending_request: Optional[PendingRequest]) -> Optional[Sequence[int]]:
        kwargs = pending_request.kwargs if pending_request is not None else None
        if not kwargs:
            return None
        found = (kwargs.get(name) for name in self._token_id_kwargs)
        return next((token_ids for token_ids in found if isinstance(token_ids, (list, tuple)) and token_ids), None)

    def _free_if_cancelled(self, pending_request: PendingRequest) -> None:
        """A request that is given up while it waits for its replica is never completed."""
        request_id = pending_request.metadata.internal_request_id

        def done(future: asyncio.Future) -> None:
            if future.cancelled():
                self._kv_router.free(request_id)

        pending_request.future.add_done_callback(done)

    # What Ray tells.

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replicas have come, gone or told something new."""
        super().update_replicas(replicas)
        try:
            self._follow(replicas)
        except Exception:
            logger.exception("replicas could not be followed; they are routed without their caches")

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """A replica is dead: nothing of it counts from now on."""
        super().on_replica_actor_died(replica_id)
        self._forget(worker_id(replica_id))

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """A replica has taken the request: it is booked there, and its prefill until the first item of its answer."""
        token_ids = self._token_ids(pending_request)
        if token_ids is None:
            return
        request_id = pending_request.metadata.internal_request_id
        # The replica may be another than the one that was booked when it was chosen.
        self._kv_router.free(request_id)
        served = _served(request_id, replica_id)
        if self._ended.pop(served, False):
            return
        self._kv_router.select_worker(served, token_ids, [worker_id(replica_id)])
        if pending_request.metadata.is_streaming:
            _at_first_item(result, lambda: self._kv_router.prefill_complete(served))

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """A request has ended, however it did."""
        self._kv_router.free(internal_request_id)
        served = _served(internal_request_id, replica_id)
        if not self._kv_router.free(served):
            # A short request's end may be told before its beginning.
            self._ended[served] = True
            if len(self._ended) > _MAX_ENDED:
                self._ended.pop(next(iter(self._ended)))

    def _follow(self, replicas: list[RunningReplica]) -> None:
        sources = {worker_id(replica.replica_id): replica.replica_metadata.get(METADATA_KEY) for replica in replicas}
        for worker in self._index.workers():
            if worker.id not in sources:
                self._forget(worker.id)
        for id, source in sources.items():
            self._index.add_worker(Worker(id))
            known, _ = self._subscribers.get(id, (None, None))
            if source and source != known:
                self._subscribe(id, source)

    def _subscribe(self, id: int, source: dict) -> None:
        self._unsubscribe(id)
        subscriber = None
        try:
            subscriber = Subscriber(self._index, Worker(id), **source)
        except (TypeError, ValueError) as error:
            logger.error("a replica's %s is %r: %s", METADATA_KEY, source, error)
        # A bad source is remembered too, so that it is complained of once.
        self._subscribers[id] = (source, subscriber)

    def _unsubscribe(self, id: int) -> None:
        _, subscriber = self._subscribers.pop(id, (None, None))
        if subscriber is not None:
            subscriber.close()

    def _forget(self, id: int) -> None:
        self._unsubscribe(id)
        self._index.remove_worker(Worker(id))


def _served(request_id: str, replica_id: ReplicaID) -> str:
    """What a request is booked as at the replica that serves it, beside its booking while it is being routed.

    Named after the replica: the end of an attempt that a replica has refused may be told after the next one is booked.
    """
    return f"{request_id} at {replica_id.unique_id}"


def _at_first_item(result: Any, tell: Any) -> None:
    """Has `tell` called when the first item of a streaming result is there."""
    next_item, next_item_async = result.__next__, result.__anext__

    def first() -> None:
        result.__next__, result.__anext__ = next_item, next_item_async
        tell()

    def sync_first() -> Any:
        item = next_item()
        first()
        return item

    async def async_first() -> Any:
        item = await next_item_async()
        first()
        return item

    result.__next__, result.__anext__ = sync_first, async_first
