"""The choice of a worker, and the books of what each has in hand."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Union

from wasmtime.component import Variant

from .index import Depths, Index, Worker, record
from .tokens import InvalidTokens, encode_tokens

_INTERFACE = "router"

_POLICIES = ("standard", "sticky", "prefix", "least-load")


@dataclass(frozen=True)
class Weights:
    """The weights of the policy `cost`, in blocks; the formula is in `wit/router.wit`. The defaults are Dynamo's."""

    prefill_scale: float = 1.0
    gpu_credit: float = 1.0
    cpu_credit: float = 0.75
    disk_credit: float = 0.25
    credit_decay: float = 0.0
    request_weight: float = 0.0


class Load(NamedTuple):
    """A worker's work in hand."""

    requests: int = 0
    prefill_tokens: int = 0
    """Prompt tokens that are neither cached nor computed yet."""
    blocks: int = 0
    """Blocks of the prompts of requests in flight, cached or not."""


class Choice(NamedTuple):
    """A worker with its cost."""

    worker: Worker
    depths: Depths
    cost: float


@dataclass(frozen=True)
class Selection:
    """A choice. `ranked` holds the workers wanted, best first, the chosen one included."""

    prompt_blocks: int
    ranked: list[Choice]

    @property
    def worker(self) -> Worker:
        return self.ranked[0].worker

    @property
    def depths(self) -> Depths:
        return self.ranked[0].depths


@dataclass(frozen=True)
class Refusal:
    """No choice: use your own default. `reason` is `no-candidates`, `no-tokens`, `bad-request`, `no-index` or `stale`."""

    reason: str
    detail: str = ""


class Router:
    """Chooses workers from one index. May be used by several threads."""

    def __init__(
        self,
        index: Index,
        policy: Union[str, Weights] = "standard",
        max_age_ms: Optional[int] = None,
        booking_life_ms: int = 600_000,
    ) -> None:
        """Raises `ValueError` for a setting that is out of range, with what to write.

        `policy` is `standard`, `sticky`, `prefix`, `least-load` or the `Weights` of the policy `cost`.
        """
        self._instance = index._instance
        settings = record(
            **{"policy": _policy(policy), "max-age-ms": max_age_ms, "booking-life-ms": booking_life_ms}
        )
        opened = self._call("[static]router.open", index._index, settings)
        if isinstance(opened, str):
            raise ValueError(opened)
        self._router = opened

    def select_worker(
        self,
        request_id: str,
        tokens: Iterable[int],
        candidates: Optional[Iterable[int]] = None,
        *,
        lora: Optional[str] = None,
        salt: Optional[str] = None,
        ranked: int = 1,
        book: bool = True,
        now_ms: Optional[int] = None,
    ) -> Union[Selection, Refusal]:
        """Chooses a worker for a request, and books it until `free`.

        `candidates` are worker IDs; none: every worker of the index. Token IDs or candidates that are none are a refusal.
        `now_ms` is the time by the clock that `Index.apply` is told; none: `monotonic_ms()`.
        """
        try:
            encoded = encode_tokens(tokens)
            wanted = "*" if candidates is None else " ".join(map(str, candidates))
        except (InvalidTokens, TypeError) as error:
            return Refusal("bad-request", str(error))
        now = monotonic_ms() if now_ms is None else now_ms
        texts = map(_text, (request_id, encoded, lora or "", salt or "", wanted))
        return _answer(self._of_router("select-line", *texts, ranked, book, now))

    def prefill_complete(self, request_id: str) -> bool:
        """The request's first token is there. False if it is not booked."""
        return self._of_router("prefill-complete", _text(request_id))

    def free(self, request_id: str) -> bool:
        """The request has ended, however it did. False if it is not booked."""
        return self._of_router("free", _text(request_id))

    def set_loads(self, loads: Mapping[Worker, Load]) -> None:
        """What each worker has in hand beside what this router has booked, in place of what was told before."""
        told = [(record(id=worker.id, rank=worker.rank), _load(load)) for worker, load in loads.items()]
        self._of_router("set-loads", told)

    def loads(self) -> dict[Worker, Load]:
        """What each worker has in hand, booked and told."""
        told = self._of_router("loads")
        return {
            Worker(worker.id, worker.rank): Load(load.requests, getattr(load, "prefill-tokens"), load.blocks)
            for worker, load in told
        }

    def _of_router(self, method: str, *arguments: Any) -> Any:
        return self._call(f"[method]router.{method}", self._router, *arguments)

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._instance.call(_INTERFACE, function, *arguments)


def monotonic_ms() -> int:
    """The clock that is read where no time is given."""
    return time.monotonic_ns() // 1_000_000


def _text(value: Any) -> str:
    """A text that can be encoded: lone surrogates are spelt out."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _policy(policy: Union[str, Weights]) -> Variant:
    if isinstance(policy, Weights):
        weights = {name.replace("_", "-"): float(weight) for name, weight in asdict(policy).items()}
        return Variant("cost", record(**weights))
    if policy not in _POLICIES:
        raise ValueError(f"policy is {policy!r}; write one of {', '.join(_POLICIES)}, or Weights(...)")
    return Variant(policy)


def _load(load: Load) -> Any:
    return record(**{"requests": load.requests, "prefill-tokens": load.prefill_tokens, "blocks": load.blocks})


def _answer(line: str) -> Union[Selection, Refusal]:
    """Reads a line as `select-line` documents it."""
    if line.startswith("refused "):
        reason, _, detail = line[len("refused ") :].partition(" ")
        return Refusal(reason, detail)
    head, *ranked = line.split(";")
    return Selection(int(head[len("ok ") :]), [_choice(item) for item in ranked])


def _choice(item: str) -> Choice:
    worker, rank, gpu, cpu, disk, external, first, _then = item.split(" ")
    return Choice(Worker(int(worker), int(rank)), Depths(int(gpu), int(cpu), int(disk), int(external)), float(first))
