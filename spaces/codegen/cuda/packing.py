"""Exported libraries that hold machine code, so that no compiler is needed where they are loaded.

Where TVM has no CUDA runtime, which it only has beside a driver, the modules of kernels that it
makes hold source, and it would write that into a library: whoever loads it would need nvcc, and
wait for it. TVM has no other way to make such a module there. So what is written is changed: a
library carries the modules it imports as bytes, in a form that TVM reads again everywhere.

    u64 size of all that follows
    u64[] rows, u64[] children      the tree of imports; a list is its length (u64), then its items
    for each module: text kind      `_lib` for the host's code, which is no bytes
                     text payload   of any other kind; a text is its length (u64), then its bytes

and the payload of a module of kernels is: text form (`cuda` for source, `cubin` for machine code),
what the host has to know of each kernel, text code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spaces.codegen.cuda.device_code import KIND, compile_for, source_of

Pack = Callable[[Any, bool, str, str], str]
"""What TVM's `export_library` takes as `fpack_imports`: from a module, whether it is a system
library, the prefix of its symbols and a folder, to an object file in that folder."""

_BINARY = b"cubin"
_HOST = b"_lib"
_SIZE = struct.Struct("<Q")


def packing_of(library: Any, target: Any) -> Pack | None:
    """The way to pack a compiled library's imports so that they hold no CUDA source; None where it
    has no kernels for such a device.

    Args:
        library: a `tvm.runtime.Module`.
        target: the `tvm.target.Target` that it was compiled for.
    """
    kernels = [*_kernels(library)]
    if not kernels:
        return None

    def pack(module: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
        import tvm

        blob = tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tobytes()
        sources = [source_of(each) for each in kernels]
        blob = compile_imports(blob, sources, lambda s: compile_for(target, s).binary)
        made = tvm.get_global_func("codegen.codegen_blob")(
            blob, is_system_lib, _host_target(module), prefix
        )
        path = Path(folder) / f"{prefix}devc.o"
        made.write_to_file(str(path))
        return str(path)

    return pack


def compile_imports(blob: bytes, sources: Sequence[str], compiled: Callable[[str], bytes]) -> bytes:
    """Packed imports with machine code in the place of CUDA source.

    Args:
        blob: as TVM packs them, with their size.
        sources: the source of each module of kernels.
        compiled: from source to a cubin.

    Raises:
        ValueError: the bytes are not of the form that is known here.
    """
    body = b""
    for kind, payload in _modules(blob):
        if kind == KIND.encode() and _form(payload) == KIND:
            source = next((s for s in sources if payload.endswith(_text(s.encode()))), None)
            if source is None:
                raise ValueError("a module of kernels whose source is unknown")
            known = payload[len(_text(KIND.encode())) : -len(_text(source.encode()))]
            payload = _text(_BINARY) + known + _text(compiled(source))
        body += _text(kind) + (b"" if kind == _HOST else _text(payload))
    tree = blob[_SIZE.size : _tree_end(blob)]
    return _SIZE.pack(len(tree) + len(body)) + tree + body


def forms_of_kernels(blob: bytes) -> list[str]:
    """The form of each module of kernels among packed imports: `cubin`, or `cuda` for source."""
    return [_form(payload) for kind, payload in _modules(blob) if kind == KIND.encode()]


def _form(payload: bytes) -> str:
    return _read_text(payload, 0)[0].decode()


def _modules(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and payload of each module; the host's code has none."""
    if _SIZE.unpack_from(blob)[0] != len(blob) - _SIZE.size:
        raise ValueError("packed imports of another size than they say")
    place = _tree_end(blob)
    while place < len(blob):
        kind, place = _read_text(blob, place)
        payload = b""
        if kind != _HOST:
            payload, place = _read_text(blob, place)
        yield kind, payload


def _tree_end(blob: bytes) -> int:
    place = _SIZE.size
    for _ in range(2):
        place += _SIZE.size * (1 + _SIZE.unpack_from(blob, place)[0])
    return place


def _read_text(data: bytes, place: int) -> tuple[bytes, int]:
    """A text, and where it ends."""
    start = place + _SIZE.size
    end = start + _SIZE.unpack_from(data, place)[0]
    if end > len(data):
        raise ValueError("packed imports that end in the middle of a text")
    return data[start:end], end


def _text(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def _kernels(library: Any) -> Iterator[Any]:
    """The modules of kernels that a library imports."""
    if library.kind == KIND:
        yield library
    for module in library.imports:
        yield from _kernels(module)


def _host_target(library: Any) -> str:
    """The target of a library's host code, as its compiler takes it."""
    if library.kind == "llvm":
        return str(library.get_function("_get_target_string")())
    return next(filter(None, map(_host_target, library.imports)), "")
