"""Libraries whose graphs use their weights where the system maps them.

TVM's runtime copies the constants of a library when it loads it: a process then holds them twice,
and four times while it loads. Here the large ones are data of the library, and `library_weights.c`,
linked into it, makes a tensor over one at each use. They are read when they are first used, never
copied, and shared by all processes that run the library.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spaces.codegen.library_threads import code_of, compile_c
from spaces.ir import tvm_compat

_SOURCE = Path(__file__).with_name("library_weights.c")
_FUNCTION = "tuner_weight"
_WITH_SIZES = "vm.builtin.call_tir_dyn"
"""The runtime's function that calls a program with sizes that only a run knows."""
_LEAST_BYTES = 1 << 16
"""The least worth a call, which takes as long as to read some kilobytes."""
_ALIGNED_BYTES = 64
"""What kernels count on, as in all of TVM's tensors."""
_COMPILE_LIMIT_S, _COMPILED_BYTES_A_S = 60.0, 1e7


class LibraryWeights:
    """The weights that one library holds as data: equal ones once, in the order of their use."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._numbers: dict[tuple[object, ...], int] = {}

    def take_from(self, module: Any) -> Any:
        """A module, lowered to the runtime's calls, that asks its library for large constants.

        Only what tensor programs read is taken: they keep nothing of it, while a result of a graph
        may outlive the library.
        """
        if sys.platform != "linux":
            return module  # the source speaks to assemblers of ELF only
        from tvm import relax
        from tvm.tirx import IntImm

        programs = {gv for gv, f in module.functions.items() if tvm_compat.is_prim_func(f)}

        def ask(builder: Any, operand: Any) -> Any:
            if not _is_large(operand):
                return operand
            number = IntImm("int64", self._add(operand.value))
            call = relax.Call(relax.ExternFunc(_FUNCTION), [number], ty_args=[operand.ty])
            return builder.emit(call)

        return _with_operands(module, programs, ask)

    def bring_along(self, library: Any) -> None:
        """Add the weights that were taken to the result of `tvm.compile`.

        Raises:
            RuntimeError: there is no C compiler, or it fails.
            OSError: the disk is full.
        """
        if self._tensors:
            code_of(library.mod).import_module(self._compiled())

    def _add(self, tensor: Any) -> int:
        """The number of a weight."""
        about = (*tensor.shape, str(tensor.dtype), hashlib.sha256(_bytes_of(tensor)).digest())
        if about not in self._numbers:
            self._numbers[about] = len(self._tensors)
            self._tensors.append(tensor)
        return self._numbers[about]

    def _compiled(self) -> Any:
        """The compiled source, with the weights, as a module to import."""
        import tvm

        with tempfile.TemporaryDirectory(prefix="weights-") as made:
            folder, rows = Path(made), []
            with (folder / "weights").open("wb") as file:
                for tensor in self._tensors:
                    file.write(bytes(-file.tell() % _ALIGNED_BYTES))
                    rows.append(_row(file.tell(), tensor))
                    file.write(_bytes_of(tensor))
                limit_s = _COMPILE_LIMIT_S + file.tell() / _COMPILED_BYTES_A_S
            (folder / "weights.inc").write_text("\n".join(rows))
            compile_c(_SOURCE, folder / "weights.o", "-c", "-I.", folder=folder, limit_s=limit_s)
            return tvm.runtime.load_static_library(str(folder / "weights.o"), [_FUNCTION])


def _with_operands(module: Any, programs: set[Any], change: Callable[[Any, Any], Any]) -> Any:
    """A lowered module with the operands of calls to its tensor programs changed.

    Args:
        change: gives an operand for a builder and an operand.
    """
    from tvm import relax
    from tvm.ir import IRModule
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Changer(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            with_sizes = str(getattr(call.op, "global_symbol", "")) == _WITH_SIZES
            if (call.args[0] if with_sizes else call.op) not in programs:
                return call
            operands = [change(self.builder_, operand) for operand in call.args]
            return relax.Call(call.op, operands, call.attrs, call.ty_args)

    changer = Changer(module)
    for variable, function in module.functions.items():
        if tvm_compat.is_relax_function(function):
            changer.builder_.update_func(variable, changer.visit_expr(function))
    result = changer.builder_.get()
    return IRModule(result.functions, attrs=module.attrs, global_infos=module.global_infos)


def _is_large(operand: Any) -> bool:
    """Whether an operand is a constant worth a call, in whole bytes."""
    if not tvm_compat.is_constant(operand) or not hasattr(operand.value, "data_ptr"):
        return False
    dtype = operand.value.dtype
    whole = dtype.lanes == 1 and dtype.bits % 8 == 0
    return whole and _size_of(operand.value) >= _LEAST_BYTES


def _size_of(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.dtype.bits) // 8


def _bytes_of(tensor: Any) -> memoryview:
    """The memory of a tensor, which must outlive it."""
    return memoryview((ctypes.c_char * _size_of(tensor)).from_address(tensor.data_ptr())).cast("B")


def _row(offset: int, tensor: Any) -> str:
    """A line for the table in the source."""
    dtype = tensor.dtype
    dims = ", ".join(map(str, tensor.shape))
    return f"WEIGHT({offset}, {dtype.type_code}, {dtype.bits}, {len(tensor.shape)}, {dims})"
