"""Routes each LLM request to the replica whose KV cache is already warm for its prompt.

The rules are those of the warmroute plugin for Envoy, as a WebAssembly component: `Index` takes in what the engines say
of their caches, `Router` chooses a worker. Nothing here raises for what a request carries: `Router.select_worker` answers
with a `Selection` or a `Refusal`, and a refusal means that the caller uses its own default.
"""

from .index import Applied, Cleared, Depths, Index, InvalidSnapshot, Removed, Stored, Tier, Worker
from .router import Choice, Load, Refusal, Router, Selection, Weights
from .tokens import InvalidTokens, encode_tokens

__all__ = [
    "Applied",
    "Choice",
    "Cleared",
    "Depths",
    "Index",
    "InvalidSnapshot",
    "InvalidTokens",
    "Load",
    "Refusal",
    "Removed",
    "Router",
    "Selection",
    "Stored",
    "Tier",
    "Weights",
    "Worker",
    "encode_tokens",
]
