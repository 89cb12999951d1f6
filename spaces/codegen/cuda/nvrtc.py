"""CUDA's compiler as a library (NVRTC): the code of nvcc of the same version, in less time.

nvcc starts four programs and reads the host's C++ headers for each kernel, which takes longer than
to compile most; here neither happens. What TVM emits asks NVRTC for headers of libcu++ in place of
the host's, which take longer still. It uses a handful of their names, which are given to NVRTC as
headers of these names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from spaces.ir.cuda_runtime import package_folders

LIBRARY = "libnvrtc.so.13"
OPTIONS = (
    "--std=c++17",
    "-default-device",
    "--device-int128",
    "-diag-suppress=177",  # variables that are not used, of which TVM emits hundreds
    "--ptxas-options=-v",
    "--ptxas-options=--register-usage-level=10",
)
"""What each call says, besides the architecture and the headers' folders: the flags of nvcc, as far
as they are not what NVRTC does anyway (NVRTC's documentation, "Supported Compile Options")."""
_TYPES = "".join(
    f"typedef {signed} int{bits}_t; typedef unsigned {signed} uint{bits}_t;"
    for bits, signed in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
).replace("typedef char", "typedef signed char")
_SIGNED = ("signed char", "short", "int", "long", "long long")
_UNSIGNED = ("bool", *(f"unsigned {name.removeprefix('signed ')}" for name in _SIGNED))
_FLOATS = ("float", "double")


def _trait(name: str, *types: str) -> str:
    """A trait that holds for some types."""
    holds = "".join(f"template <> struct {name}<{t}> : bool_constant<true> {{}};\n" for t in types)
    return f"template <class A> struct {name} : bool_constant<false> {{}};\n{holds}"


_TRAITS = f"""
template <class T, T V> struct integral_constant {{ static constexpr T value = V; }};
template <bool V> using bool_constant = integral_constant<bool, V>;
template <class A, class B> struct is_same : bool_constant<false> {{}};
template <class A> struct is_same<A, A> : bool_constant<true> {{}};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool V, class T = void> struct enable_if {{}};
template <class T> struct enable_if<true, T> {{ using type = T; }};
template <bool V, class T, class F> struct conditional {{ using type = T; }};
template <class T, class F> struct conditional<false, T, F> {{ using type = F; }};
{_trait("is_integral", "char", *_SIGNED, *_UNSIGNED)}
{_trait("is_floating_point", *_FLOATS)}
{_trait("is_signed", "char", *_SIGNED, *_FLOATS)}
{_trait("is_unsigned", *_UNSIGNED)}
"""
_HEADERS = {
    f"cuda/std/{name}": f"#pragma once\nnamespace cuda {{ namespace std {{ {text} }} }}\n"
    for name, text in (("cstdint", _TYPES), ("type_traits", _TRAITS))
}
_BEFORE = """
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
"""
"""What nvcc has from the host's <math.h> and from <cuda.h>."""


class Refused(Exception):
    """NVRTC does not compile a source, which nvcc may: it reads headers that NVRTC cannot."""


@lru_cache(maxsize=4)
def find_nvrtc(toolkit: Path, version: str) -> Path | None:
    """The library that makes the code of an nvcc: of its toolkit, or of a package of that version;
    None where there is none.

    Args:
        toolkit: folder of the nvcc's toolkit.
        version: nvcc's, such as `13.0.88`.
    """
    own = (toolkit / "lib64", toolkit / "lib", *sorted(toolkit.glob("targets/*/lib")))
    for folder in (*own, *package_folders()):
        if (path := folder / LIBRARY).is_file() and version.startswith(f"{nvrtc_version(path)}."):
            return path
    return None


@lru_cache(maxsize=4)
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def nvrtc_version(path: Path) -> str:
    """The version of a library, such as `13.0`; empty of one that cannot be loaded."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    try:
        _load(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    except OSError:
        return ""
    return f"{major.value}.{minor.value}"


def compile_by_nvrtc(
    path: Path, source: str, arch: str, toolkit: Path, more: Sequence[str] = ()
) -> tuple[bytes, str]:
    """Compile CUDA source.

    Args:
        path: of the library.
        arch: such as `sm_90a`.
        toolkit: folder of the toolkit whose headers kernels include.
        more: options to say besides.

    Returns:
        A cubin, and what the compiler said, ptxas's report included.

    Raises:
        Refused: it does not compile, with what the compiler said.
    """
    library, program = _load(path), ctypes.c_void_p()
    names, texts = (_strings(part) for part in (_HEADERS.keys(), _HEADERS.values()))
    failed = library.nvrtcCreateProgram(
        ctypes.byref(program),
        (_BEFORE + source).encode(),
        b"kernels.cu",
        len(_HEADERS),
        texts,
        names,
    )
    if failed:
        raise Refused(library.nvrtcGetErrorString(failed).decode())
    try:
        options = (*OPTIONS, *more, f"--gpu-architecture={arch}", *_includes(toolkit))
        failed = library.nvrtcCompileProgram(program, len(options), _strings(options))
        said = _read(library, "ProgramLog", program).decode(errors="replace").rstrip("\0")
        if failed:
            raise Refused(said)
        return _read(library, "CUBIN", program), said
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, data)
    return data.raw


def _includes(toolkit: Path) -> list[str]:
    roots = (toolkit / "include", *sorted(toolkit.glob("targets/*/include")))
    return [f"-I{path}" for root in roots for path in (root, root / "cccl") if path.is_dir()]


def _strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)
