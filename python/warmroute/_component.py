"""The component, loaded once, and instances of it."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import wasmtime
from wasmtime.component import Component, Linker

_PACKAGE = "warmroute:routing"
_VERSION = "0.1.0"


@lru_cache(maxsize=None)
def _compiled() -> tuple[wasmtime.Engine, Component]:
    """The compiled component: the one that `WARMROUTE_COMPONENT` names, else the package's own."""
    named = os.environ.get("WARMROUTE_COMPONENT")
    path = Path(named) if named else Path(__file__).with_name("warmroute.component.wasm")
    engine = wasmtime.Engine()
    return engine, Component.from_file(engine, str(path))


class Instance:
    """One instance. Its store is used by one thread at a time: every call takes `lock`."""

    def __init__(self) -> None:
        engine, component = _compiled()
        self.lock = threading.RLock()
        self._store = wasmtime.Store(engine)
        self._instance = Linker(engine).instantiate(self._store, component)
        self._functions: dict[tuple[str, str], Any] = {}

    def call(self, interface: str, function: str, *arguments: Any) -> Any:
        """Calls `function` of `interface` by the names that `wit/` gives them."""
        with self.lock:
            found = self._functions.get((interface, function)) or self._find(interface, function)
            answer = found(self._store, *arguments)
            found.post_return(self._store)
            return answer

    def drop(self, resource: Any) -> None:
        """Drops a resource of this instance."""
        with self.lock:
            resource.drop(self._store)

    def _find(self, interface: str, function: str) -> Any:
        export = self._instance.get_export_index(self._store, f"{_PACKAGE}/{interface}@{_VERSION}")
        index = export and self._instance.get_export_index(self._store, function, export)
        found = index and self._instance.get_func(self._store, index)
        if not found:
            raise RuntimeError(f"the component has no function {function} in {interface}")
        self._functions[interface, function] = found
        return found
