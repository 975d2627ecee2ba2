"""The exact prefix index: what the engines say of their caches in, who holds how much of a prompt out."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Iterable, NamedTuple, Optional, Sequence, Union

from wasmtime.component import Record, Variant

from ._component import Instance
from .tokens import encode_tokens

_INTERFACE = "prefix-index"


class Tier(str, Enum):
    """Where a worker keeps a cached block, fastest first."""

    GPU = "gpu"
    CPU = "cpu"
    DISK = "disk"
    EXTERNAL = "external"


class Worker(NamedTuple):
    """A worker: any number from 0 to 2**64 - 1 that no two share, and a data-parallel rank."""

    id: int
    rank: int = 0


class Depths(NamedTuple):
    """Blocks of a prompt, from its start, that are in a tier or a faster one: never descending."""

    gpu: int
    cpu: int
    disk: int
    external: int


@dataclass(frozen=True)
class Stored:
    """Blocks that a worker now holds one more copy of, each the child of the one before it."""

    hashes: Sequence[int]
    """The engine's names for the blocks, from 0 to 2**64 - 1."""
    tokens: Optional[Sequence[int]] = None
    """The tokens of all blocks. Without them only blocks whose names are known count."""
    block_size: int = 0
    """Tokens in a block, as the engine says; 0: as in the index."""
    parent: Optional[int] = None
    """The engine's name for the block before the first; none where the first is a prompt's first block."""
    lora: Optional[str] = None
    salt: Optional[str] = None
    tier: Tier = Tier.GPU
    group: int = 0
    media: Optional[Sequence[Sequence[int]]] = None
    """64-bit names of media behind placeholder tokens, one list for each block."""
    blocks: Optional[Sequence[int]] = None
    """The blocks' local hashes, instead of tokens."""


@dataclass(frozen=True)
class Removed:
    """Blocks of which a worker has dropped one copy each."""

    hashes: Sequence[int]
    tier: Tier = Tier.GPU
    group: int = 0
    left: Sequence[int] = ()
    """How many copies each block has left there, where the engine says: empty, or one number for each name."""


@dataclass(frozen=True)
class Cleared:
    """The whole cache was emptied."""


Event = Union[Stored, Removed, Cleared]


@dataclass(frozen=True)
class Applied:
    """What events did, in blocks; see `wit/prefix-index.wit`."""

    stored: int
    removed: int
    orphaned: int
    attached: int
    dropped_orphans: int
    renamed: int
    unknown_removed: int
    skipped: int
    cleared: int
    failed: list[tuple[int, str]] = field(default_factory=list)
    """The places in the list of the events that changed nothing, and why."""


class InvalidSnapshot(ValueError):
    """A snapshot that is foreign, of another version, damaged or too large: which."""


class Index:
    """The exact index of one pool of workers. May be used by several threads."""

    def __init__(self, block_size: int, max_orphans: int = 10_000) -> None:
        """Raises `ValueError` for a block size that is out of range, with what to write."""
        self._instance = Instance()
        opened = self._call("[static]index.open", record(**{"block-size": block_size, "max-orphans": max_orphans}))
        if isinstance(opened, str):
            raise ValueError(opened)
        self._index = opened
        self._block_size = block_size

    @classmethod
    def restore(cls, snapshot: bytes) -> Index:
        """A new index that knows what the other did when its snapshot was taken.

        A router over it refuses with `no-index` until the first call of `apply`. Raises `InvalidSnapshot`.
        """
        index = cls.__new__(cls)
        index._instance = Instance()
        # As text: a list costs the binding by the element.
        saved = b64encode(snapshot).decode("ascii")
        index._index = _of_snapshot(index._call("[static]index.restore", saved))
        index._block_size = index._of_index("block-size")
        return index

    def snapshot(self) -> bytes:
        """All that the index knows. Raises `InvalidSnapshot` where that is more than a snapshot holds: 128 MiB."""
        return b64decode(_of_snapshot(self._of_index("snapshot-base64")))

    @property
    def block_size(self) -> int:
        """Tokens in a block."""
        return self._block_size

    def add_worker(self, worker: Worker) -> bool:
        """Adds a worker that holds nothing; nothing happens if it is there. False where there is no room."""
        return self._of_index("add-worker", record(id=worker.id, rank=worker.rank))

    def remove_worker(self, worker: Worker) -> bool:
        """Removes a worker; false if it is not there."""
        return self._of_index("remove-worker", record(id=worker.id, rank=worker.rank))

    def reset_worker(self, worker: Worker) -> bool:
        """Forgets all that a worker holds: it has restarted, or events were lost. False if it is not there."""
        return self._of_index("reset-worker", record(id=worker.id, rank=worker.rank))

    def workers(self) -> list[Worker]:
        """The workers, in the order in which they were added."""
        return [Worker(worker.id, worker.rank) for worker in self._of_index("workers")]

    def apply(self, worker: Worker, events: Iterable[Event], now_ms: int) -> Applied:
        """Applies one worker's events in their order. An event that fails costs only itself."""
        told = [self._event(event) for event in events]
        outcome = self._of_index("apply", record(id=worker.id, rank=worker.rank), told, now_ms)
        counts = {name.replace("-", "_"): count for name, count in vars(outcome.applied).items()}
        return Applied(**counts, failed=[(place, _reason(error)) for place, error in outcome.failed])

    def matches(self, tokens: Iterable[int], lora: Optional[str] = None, salt: Optional[str] = None) -> dict[Worker, Depths]:
        """How much of a prompt each worker holds. Raises `InvalidTokens`."""
        return self._matches(Variant("tokens", (encode_tokens(tokens), record(lora=lora, salt=salt))))

    def matches_of_blocks(self, blocks: Sequence[int]) -> dict[Worker, Depths]:
        """The same for a prompt that is told by the local hashes of its full blocks."""
        return self._matches(Variant("blocks", list(blocks)))

    def stats(self) -> dict[str, int]:
        """The index in numbers; see `wit/prefix-index.wit`."""
        return dict(vars(self._of_index("stats")))

    def _matches(self, prompt: Variant) -> dict[Worker, Depths]:
        found = self._of_index("matches", prompt)
        if isinstance(found, str):
            raise ValueError(found)
        return {Worker(match.worker.id, match.worker.rank): depths(match.depths) for match in found}

    def _event(self, event: Event) -> Variant:
        if isinstance(event, Cleared):
            return Variant("cleared")
        shared = {"hashes": list(event.hashes), "tier": Tier(event.tier).value, "group": event.group}
        if isinstance(event, Removed):
            return Variant("removed", record(**shared, left=list(event.left)))
        content = self._content(event)
        return Variant(
            "stored", record(**shared, parent=event.parent, content=content, lora=event.lora, salt=event.salt)
        )

    def _content(self, stored: Stored) -> Variant:
        if stored.blocks is not None:
            return Variant("blocks", list(stored.blocks))
        if stored.tokens is None:
            return Variant("unknown")
        tokens, block_size = encode_tokens(stored.tokens), stored.block_size or self._block_size
        if stored.media is not None:
            return Variant("media", (tokens, block_size, [list(names) for names in stored.media]))
        return Variant("tokens", (tokens, block_size))

    def _of_index(self, method: str, *arguments: Any) -> Any:
        return self._call(f"[method]index.{method}", self._index, *arguments)

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._instance.call(_INTERFACE, function, *arguments)


def _of_snapshot(answer: Any) -> Any:
    """What an answer holds that is none of the contract's `snapshot-error`."""
    if isinstance(answer, Variant):
        raise InvalidSnapshot(_reason(answer))
    return answer


def record(**fields: Any) -> Record:
    """A record of the contract."""
    made = Record()
    made.__dict__.update(fields)
    return made


def depths(told: Any) -> Depths:
    """Depths out of a record of the contract."""
    return Depths(told.gpu, told.cpu, told.disk, told.external)


def _reason(error: Variant) -> str:
    return error.tag if error.payload is None else f"{error.tag}: {error.payload}"
