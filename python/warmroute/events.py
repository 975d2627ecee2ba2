"""KV events straight from the engines, over ZeroMQ.

The rules of order are the component's: here are only the sockets. Needs `pyzmq` (`pip install 'warmroute[events]'`).
"""

from __future__ import annotations

import logging
import threading
import time
from base64 import b64encode
from typing import Any, Callable, Optional

import zmq
from zmq.utils.monitor import recv_monitor_message

from .index import Index, Worker, record
from .router import monotonic_ms

logger = logging.getLogger("warmroute.events")

_INTERFACE = "events"

ENGINES = ("vllm", "sglang", "trtllm", "llmd-sim")
"""Whose format events may have."""

_MAX_MESSAGE_BYTES = 64 << 20
_REPLAY_TIMEOUT_S = 5.0
_SILENCE_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_TICK_MS = 100
"""How often a subscriber looks at its clock, and whether it has been closed."""
_END = b"\xff" * 8
"""The sequence number of a replay's end marker."""


class Subscriber:
    """Follows one worker's events in a thread of its own, until it is closed."""

    def __init__(
        self, index: Index, worker: Worker, engine: str, endpoint: str, replay: Optional[str] = None
    ) -> None:
        """`endpoint` and `replay` are what the engine publishes at, such as `tcp://10.0.0.1:5557`.

        Raises `ValueError` for an engine or an endpoint that cannot be, with what to write.
        """
        if engine not in ENGINES:
            raise ValueError(f"engine is {engine!r}; write one of {', '.join(ENGINES)}")
        for name, value in (("endpoint", endpoint), ("replay", replay)):
            if value is not None and not (isinstance(value, str) and value.startswith("tcp://")):
                raise ValueError(f"{name} is {value!r}; write it as tcp://host:port")
        self._instance = index._instance
        self._endpoint, self._replay_endpoint = endpoint, replay
        opened = self._instance.call(
            _INTERFACE,
            "[static]subscription.open",
            index._index,
            record(id=worker.id, rank=worker.rank),
            engine,
            replay is not None,
        )
        self._subscription = opened
        self._context = zmq.Context.instance()
        self._replay: Optional[zmq.Socket] = None
        self._replay_until = 0.0
        self._retry_at: Optional[float] = None
        self._pause = _FIRST_PAUSE_S
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"warmroute-events-{worker.id:x}", daemon=True)
        self._thread.start()

    def counts(self) -> dict[str, int]:
        """What has come so far; see `wit/events.wit`."""
        return dict(vars(self._instance.call(_INTERFACE, "[method]subscription.counts", self._subscription)))

    def close(self) -> None:
        """Ends the thread and closes its sockets. What the index knows of the worker stays."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        live = self._socket(zmq.SUB)
        monitor = live.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            live.subscribe(b"")
            live.connect(self._endpoint)
            self._listen(live, monitor)
        except Exception:
            logger.exception("events from %s are followed no more", self._endpoint)
        finally:
            live.disable_monitor()
            live.close(linger=0)
            self._drop_replay()
            self._instance.drop(self._subscription)

    def _listen(self, live: zmq.Socket, monitor: zmq.Socket) -> None:
        silent_at = time.monotonic() + _SILENCE_S
        while not self._closed.is_set():
            poller = zmq.Poller()
            for socket in (live, monitor, self._replay):
                if socket is not None:
                    poller.register(socket, zmq.POLLIN)
            ready = dict(poller.poll(_TICK_MS))
            if monitor in ready:
                recv_monitor_message(monitor)
                self._feed("connected")
            # The replay first: live messages wait for its end anyway.
            if self._replay is not None and self._replay in ready:
                self._take_replay(self._replay)
            if live in ready:
                silent_at = time.monotonic() + _SILENCE_S
                _drain(live, self._take_live)
            now = time.monotonic()
            if self._replay is not None and now > self._replay_until:
                self._end_replay(whole=False)
            if self._retry_at is not None and now >= self._retry_at:
                self._retry_at = None
                self._feed("retry")
            if now >= silent_at:
                silent_at = now + _SILENCE_S
                self._feed("probe")

    def _take_live(self, frames: list[bytes]) -> bool:
        if len(frames) >= 2 and len(frames[-2]) == 8:
            self._feed("live", int.from_bytes(frames[-2], "big"), _payload(frames))
        return True

    def _take_replay(self, socket: zmq.Socket) -> None:
        def take(frames: list[bytes]) -> bool:
            if len(frames) < 2 or len(frames[-2]) != 8:
                return True
            self._replay_until = time.monotonic() + _REPLAY_TIMEOUT_S
            if frames[-2] == _END:
                self._end_replay(whole=True)
            else:
                self._feed("replayed", int.from_bytes(frames[-2], "big"), _payload(frames))
            # Another replay may have taken this one's place.
            return self._replay is socket

        _drain(socket, take)

    def _end_replay(self, whole: bool) -> None:
        self._drop_replay()
        if whole:
            self._pause = _FIRST_PAUSE_S
        self._feed("replay-ended", whole)

    def _feed(self, method: str, *arguments: Any) -> None:
        """Tells the component, and does what it says."""
        told = f"[method]subscription.{method}"
        then = self._instance.call(_INTERFACE, told, self._subscription, *arguments, monotonic_ms())
        from_ = getattr(then, "replay-from")
        if from_ is not None:
            self._ask_for_replay(from_)
        if then.retry:
            self._retry_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)

    def _ask_for_replay(self, from_: int) -> None:
        self._drop_replay()
        self._replay = self._socket(zmq.DEALER)
        self._replay.connect(self._replay_endpoint)
        self._replay.send_multipart([b"", from_.to_bytes(8, "big")])
        self._replay_until = time.monotonic() + _REPLAY_TIMEOUT_S

    def _drop_replay(self) -> None:
        if self._replay is not None:
            self._replay.close(linger=0)
            self._replay = None

    def _socket(self, kind: int) -> zmq.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
        socket.setsockopt(zmq.RCVHWM, 100_000)
        return socket


def _drain(socket: zmq.Socket, take: Callable[[list[bytes]], bool]) -> None:
    """Takes what has come until `take` says no, or nothing is left."""
    while True:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        if not take(frames):
            return


def _payload(frames: list[bytes]) -> str:
    return b64encode(frames[-1]).decode("ascii")
