"""Kernels written by hand, in the place of the programs that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tvm.ir.transform import module_pass

from cluster.app.passes.base import ModulePass
from cluster.app.passes.gate import Gate, gate
from spaces.deploy.provenance import Origin, open_functions, put
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import key_of, task_of
from spaces.targets.target import resolve_target
from tuner.errors import TunerError
from tuner.record import Status


@module_pass(opt_level=0, name="Pinned")
class Pinned(ModulePass):
    """Puts in hand-written TensorIR wherever the program that it computes is found.

    A program is known by its structure, whatever it is called. What a kernel gives is compared with
    what the program gives before it is used, unless its name is trusted.

    Args:
        kernels: pairs of a program and the kernel in its place, both PrimFuncs with the same
            parameters; what a kernel is called is its global symbol.
        target: a TVM target, a kind, or JSON.
        trusted: names of kernels that are not checked.

    Raises:
        TunerError: when the pass runs, if a kernel is wrong, or cannot be checked on this machine.
    """

    def __init__(
        self, kernels: Iterable[tuple[Any, Any]], target: Any, *, trusted: Sequence[str] = ()
    ) -> None:
        tvm_compat.keep_error_kind(TunerError)
        self.target = resolve_target(str(target))
        self._kernels = {key_of(program, self.target): kernel for program, kernel in kernels}
        self._trusted = frozenset(trusted)

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        with gate(self.target) as checked:
            found = {
                name: (kernel, self._origin(name, function, kernel, checked))
                for name, function in open_functions(module)
                if (kernel := self._kernels.get(key_of(function, self.target))) is not None
            }
        return put(module, found)

    def _origin(self, name: str, function: Any, kernel: Any, checked: Gate | None) -> Origin:
        called = str(kernel.attrs["global_symbol"])
        of = f"of the program with the key {key_of(function, self.target)}"
        if called in self._trusted:
            return Origin("pinned", called, f"trusted by name, {of}")
        if checked is None:
            raise TunerError(
                f"{called} cannot be checked on this machine, which does not run the target's "
                "kernels: name it in trusted="
            )
        measured = checked.measured(task_of(function, self.target, name=name), kernel)
        if measured.status is not Status.OK:
            raise TunerError(f"the pinned kernel {called} of {name} is not used: {measured.error}")
        return Origin("pinned", called, f"its output was found right, {of}", measured.latency_s)
