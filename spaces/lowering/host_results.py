"""Results that TVM computes on the host, put on the device that goes on with them.

Two operators have no program: `NonZero` and `Unique` are functions of TVM's Python package, which
read their operands from any device and give a tensor on the host. A kernel that gets one as it is
reads an address that its device does not know.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import with_graphs

_ON_HOST = "relax.run."
"""The beginning of the names of these functions."""
_TO_DEVICE = "vm.builtin.to_device"
_FIRST = 0
"""The device's number among those that the process sees."""


def on_device(module: Any, device_type: int) -> Any:
    """A lowered module whose graphs send such results to the device.

    Args:
        device_type: the device's, as DLPack numbers them.
    """
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Sender(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            return self._sent(call) if _gives_host_tensors(call) else call

        def _sent(self, call: Any) -> Any:
            made = self.builder_.emit(call)
            if not isinstance(made.ty, relax.TupleType):
                return _send(made, device_type)
            fields = [relax.TupleGetItem(made, i) for i in range(len(made.ty.fields))]
            return relax.Tuple([_send(self.builder_.emit(f), device_type) for f in fields])

    return with_graphs(module, Sender(module).visit_expr)


def _gives_host_tensors(call: Any) -> bool:
    if tvm_compat.operator_name(call) != "relax.call_pure_packed":
        return False
    return str(getattr(call.args[0], "global_symbol", "")).startswith(_ON_HOST)


def _send(tensor: Any, device_type: int) -> Any:
    from tvm import relax

    where = (relax.prim_value(device_type), relax.prim_value(_FIRST))
    return relax.call_pure_packed(_TO_DEVICE, tensor, *where, ty_args=tensor.ty)
