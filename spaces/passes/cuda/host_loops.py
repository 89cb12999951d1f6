"""Loops of a program for a GPU that no thread of it runs.

TVM runs what is bound to no thread on the host, where a tensor of the device's is an address that
nobody may read: the process ends. Its own check (VerifyMemory) looks only at programs without any
threads.
"""

from __future__ import annotations

from typing import Any

from spaces.targets.backends import backend_of

_THREADS = ("thread_extent", "virtual_thread")
_BOUND = 4
"""TVM's number of loops that are bound to threads (`ForKind::kThreadBinding`)."""


def refuse_host_loops(module: Any) -> None:
    """Refuse a scheduled module in which the host would store into a tensor.

    Raises:
        ValueError: it names the program and the tensor.
    """
    from tvm import tirx

    for gv, function in module.functions.items():
        if not isinstance(function, tirx.PrimFunc) or not _is_for_device(function):
            continue
        if tensor := _find_stored_by_host(function):
            raise ValueError(
                f"{gv.name_hint}: a loop that fills {tensor} is bound to no thread, so that the "
                "host would run it"
            )


def _is_for_device(function: Any) -> bool:
    """Whether a function is for a device, not for the host beside it."""
    target = function.attrs.get("target")
    return target is None or not backend_of(target).on_host


def _find_stored_by_host(function: Any) -> str:
    """The name of a tensor that is stored to outside of threads; empty if there is none."""
    import tvm_ffi
    from tvm import tirx

    found: list[str] = []

    def loop(node: Any, mutator: Any) -> Any:
        return node if int(node.kind) == _BOUND else mutator.default_mutate(node)

    def attribute(node: Any, mutator: Any) -> Any:
        return node if str(node.attr_key) in _THREADS else mutator.default_mutate(node)

    def store(node: Any, _mutator: Any) -> Any:
        found.append(str(node.buffer.name))
        return node

    looks = [(tirx.For, loop), (tirx.AttrStmt, attribute), (tirx.BufferStore, store)]
    tvm_ffi.structural_mutate(function.body, looks)
    return found[0] if found else ""
