"""A library's functions in a process that runs kernels."""

from __future__ import annotations

import ctypes
import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from spaces.ir.element_types import numpy_dtype
from tuner.candidate import LIBRARIES as FAMILY
from tuner.errors import UsageError
from tuner.source import Source
from tuner.user_code.faults import blame
from tuner.user_code.load import load


@lru_cache(maxsize=32)
def make_library(library: Source) -> Any:
    """The object of the class that a source names, made once in a process."""
    with blame(library, "library"):
        return load(library)()


def name_of(library: Source) -> str:
    """What a library is called: the name of its class."""
    return type(make_library(library)).__name__


def space_of(library: Source) -> str:
    """The space of the candidates that call a library's functions."""
    return f"{FAMILY}:{name_of(library)}@{library.version}"


def register_source(library: Source) -> None:
    """Register a library's functions under their names, in the place of any others.

    Raises:
        LayerFailed: it cannot give them.
    """
    theirs = make_library(library)
    with blame(library, "library, functions"):
        register(theirs)


def register(library: Any) -> None:
    """Register a library's functions under their names, in the place of any others, in a process
    that runs a module which calls them.

    A function of Python gets arrays of numpy on a CPU, which share the kernel's memory, and tensors
    of TVM anywhere else.

    Args:
        library: an object of its class, or the class.

    Raises:
        UsageError: what it gives is no function.
    """
    import tvm_ffi

    theirs: Any = library() if inspect.isclass(library) else library
    for name, function in theirs.functions().items():
        if isinstance(function, tvm_ffi.Function):
            tvm_ffi.register_global_func(name, function, override=True)
        elif callable(function):
            tvm_ffi.register_global_func(name, _on_arrays(function), override=True)
        else:
            raise UsageError(f"{name}: {function!r} is no function")


def _on_arrays(function: Callable[..., object]) -> Callable[..., None]:
    def called(*tensors: Any) -> None:
        function(*(_view(tensor) for tensor in tensors))

    return called


def _view(tensor: Any) -> Any:
    """An array on the memory of a tensor; the tensor where that is no memory of this machine's CPU.

    A kernel's arguments lie on its stack, where `from_dlpack` must not take them over.
    """
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        return tensor
    dtype = _numpy_dtype(str(tensor.dtype))
    size_bytes = math.prod(tensor.shape) * dtype.itemsize
    memory = (ctypes.c_char * size_bytes).from_address(tensor.data_ptr())
    return np.frombuffer(memory, dtype).reshape(tensor.shape)


_numpy_dtype = lru_cache(maxsize=64)(numpy_dtype)
