"""All outputs of an unscheduled program: it is compiled, and run."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spaces.check.case import garbage
from spaces.check.draws import Argument, Array
from spaces.check.errors.shadows import Unbounded
from spaces.check.interchange import interchange
from spaces.check.output_bounds import OutputBounds
from spaces.check.stored import Computed
from spaces.ir import rewrite
from spaces.ir.byte_floats import with_exact_conversions
from spaces.ir.element_types import is_float
from spaces.targets.target import parse_target, resolve_target
from tuner.errors import first_line
from tuner.request.target_text import Arithmetic

_log = logging.getLogger(__name__)


class WholeProgram:
    """The unscheduled program, compiled, with bounds where they are known.

    Args:
        arithmetic: see `OutputBounds`.
    """

    def __init__(self, module: Any, args: tuple[Argument, ...], arithmetic: Arithmetic) -> None:
        import tvm

        self.args = args
        # In an order of loops that does not take minutes; every sum still adds its terms in order.
        module = interchange(module)
        try:
            self._bounds = OutputBounds(module["main"], args, arithmetic=arithmetic)
            self._library = compile_unscheduled(tvm.IRModule({"main": self._bounds.function}))
        except (Unbounded, RuntimeError, TypeError, ValueError) as error:  # TVM's, of what it made
            _log.warning("errors are bounded coarsely: %s", first_line(error))
            self._bounds = OutputBounds(module["main"], args, arithmetic=arithmetic, follow=False)
            self._library = compile_unscheduled(module)

    def run(self, contents: Sequence[Array]) -> tuple[dict[int, Array], dict[int, Array | None]]:
        """Outputs and their bounds."""
        import tvm

        tensors = [tvm.runtime.tensor(data) for data in contents]
        extra = [tvm.runtime.tensor(data) for data in self._bounds.before(contents)]
        self._library["main"](*tensors, *extra)
        outputs = {i: tensors[i].numpy() for i, arg in enumerate(self.args) if arg.written}
        del tensors  # large tasks take many times the memory of their tensors as it is
        return outputs, self._bounds.of(outputs, [np.from_dlpack(tensor) for tensor in extra])

    def compute(self, inputs: Sequence[Array], _case: int, number: int) -> Computed:
        """See `spaces.check.reference.Program`."""
        blank = [garbage(a) if a.written else d for a, d in zip(self.args, inputs, strict=True)]
        first, bounds = self.run(blank)
        if all(is_float(self.args[i].dtype) and np.isfinite(o).all() for i, o in first.items()):
            return Computed(number, False, first, bounds)  # no NaN of the garbage is left
        second, bounds = self.run(inputs)
        same = all(_bits(first[i]) == _bits(second[i]) for i in first)
        return Computed(number, not same, second, bounds)


def compile_unscheduled(module: Any) -> Any:
    """Compile a module without a schedule for this machine's CPU with all its features; return a
    `tvm.runtime.Executable`.

    Only TVM's own passes run: none of those whose results this code judges, but for conversions of
    floats of 8 bits, which TVM has wrong. It runs a few times, so LLVM optimises nothing: compiling
    and running take half the time.
    """
    import tvm

    target = json.loads(resolve_target("llvm")) | {"opt-level": 0}
    module = rewrite.with_prim_funcs(module, with_exact_conversions)
    return tvm.compile(module, target=parse_target(json.dumps(target)))


def _bits(array: Array) -> bytes:
    """Contents for comparison; every NaN is the same."""
    if array.dtype.kind in "iub":
        return array.tobytes()
    exact = array.astype(np.float64)
    exact[np.isnan(exact)] = math.nan
    return exact.tobytes()
