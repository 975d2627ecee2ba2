"""A subscriber follows a publisher over real sockets: restarts, gaps and replays included."""

import time

import pytest

zmq = pytest.importorskip("zmq")

from warmroute import Index, Worker  # noqa: E402
from warmroute.events import Subscriber  # noqa: E402

WORKER = Worker(1)
DEADLINE_S = 20


def payload(number: int) -> bytes:
    """A vLLM batch: one stored block of four tokens, the first of them `number`."""
    event = b"\x96\xabBlockStored\x91" + bytes([number]) + b"\xc0\x94" + bytes([number, 1, 2, 3, 4]) + b"\xc0"
    return b"\x93" + bytes([number]) + b"\x91" + event + b"\x00"


def block(number: int) -> list:
    return [number, 1, 2, 3]


class Engine:
    """A publisher and its replay endpoint, as vLLM has them."""

    def __init__(self, ports: tuple = (0, 0)) -> None:
        self.context = zmq.Context()
        self.events, self.replay = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        for socket, port in zip((self.events, self.replay), ports):
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind(f"tcp://127.0.0.1:{port or '*'}")
        self.endpoints = [socket.getsockopt(zmq.LAST_ENDPOINT).decode() for socket in (self.events, self.replay)]
        self.kept: list = []

    def publish(self, number: int, lose: bool = False) -> None:
        self.kept.append((len(self.kept), payload(number)))
        if not lose:
            self.events.send_multipart([b"", self.kept[-1][0].to_bytes(8, "big"), self.kept[-1][1]])

    def serve(self) -> None:
        """Answers the replays that are asked for."""
        while self.replay.poll(0):
            peer, empty, start = self.replay.recv_multipart()
            for sequence, kept in self.kept:
                if sequence >= int.from_bytes(start, "big"):
                    self.replay.send_multipart([peer, empty, b"", sequence.to_bytes(8, "big"), kept])
            self.replay.send_multipart([peer, empty, b"", b"\xff" * 8, b""])

    def close(self) -> None:
        self.context.destroy(linger=0)


def until(engine: Engine, condition) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "too late"
        engine.serve()
        time.sleep(0.01)


@pytest.fixture
def index() -> Index:
    index = Index(block_size=4)
    index.add_worker(WORKER)
    return index


def holds(index: Index, number: int) -> bool:
    return WORKER in index.matches(block(number))


def test_what_was_published_before_is_replayed_and_a_gap_is_closed(index: Index) -> None:
    engine = Engine()
    engine.publish(1)
    subscriber = Subscriber(index, WORKER, "vllm", *engine.endpoints)
    until(engine, lambda: holds(index, 1))
    engine.publish(2)
    until(engine, lambda: holds(index, 2))
    engine.publish(3, lose=True)
    engine.publish(4)
    until(engine, lambda: holds(index, 3) and holds(index, 4))
    assert holds(index, 1)
    assert subscriber.counts()["gaps"] == 1
    subscriber.close()
    engine.close()


def test_an_engine_that_restarts_has_an_empty_cache(index: Index) -> None:
    engine = Engine()
    engine.publish(1)
    engine.publish(2)
    subscriber = Subscriber(index, WORKER, "vllm", *engine.endpoints)
    until(engine, lambda: holds(index, 2))
    ports = tuple(int(endpoint.rsplit(":", 1)[1]) for endpoint in engine.endpoints)
    engine.close()
    restarted = Engine(ports)
    restarted.publish(9)
    until(restarted, lambda: holds(index, 9))
    assert not holds(index, 1) and not holds(index, 2)
    assert subscriber.counts()["resets"] >= 1
    subscriber.close()
    restarted.close()


def test_what_is_no_message_costs_only_itself(index: Index) -> None:
    engine = Engine()
    subscriber = Subscriber(index, WORKER, "vllm", engine.endpoints[0])
    until(engine, lambda: engine.publish(1) or holds(index, 1))
    for frames in ([b""], [b"", b"short", b"x"], [b"", (2**63).to_bytes(8, "big"), b"no batch"]):
        engine.events.send_multipart(frames)
    until(engine, lambda: engine.publish(2) or holds(index, 2))
    subscriber.close()
    engine.close()


def test_settings_that_cannot_be_say_what_to_write(index: Index) -> None:
    with pytest.raises(ValueError, match="engine is 'vllm2'; write one of"):
        Subscriber(index, WORKER, "vllm2", "tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="replay is 'here'; write it as tcp://"):
        Subscriber(index, WORKER, "vllm", "tcp://127.0.0.1:1", "here")
