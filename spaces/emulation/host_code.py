"""Host code of CUDA libraries for the emulated device: its tensors lie in the CPU's memory.

TVM's host code asks of each tensor whether it lies on a CUDA device, takes memory there for what
lies between two kernels, and calls a kernel with its arguments and launch parameters. A pass after
TVM's own makes the device the CPU, and adds the names of the launch parameters, which TVM keeps
beside the kernels' code, to the call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from spaces.ir.rewrite import uncast

_CPU = 1
"""DLPack's number of the CPU as a kind of device."""
_DEVICE_TYPE = 10
"""TVM's number of the field of a tensor that names its kind of device."""
_KERNEL = 2
"""TVM's number of the calling convention of kernels."""
_KERNEL_CALL = "tirx.call_ffi_kernel"
_FIELD = "tirx.tvm_struct_get"
_PACKED_CALL = "tirx.tvm_call_packed"
_SET_DEVICE = "__tvm_set_device"


@cache
def register_host_pipeline(name: str) -> str:
    """The name of a TIR pipeline that does the same as pipeline `name`, for the emulated device."""
    from tvm.tirx import get_tir_pipeline, register_tir_pipeline

    def made() -> tuple[Any, Any, Any]:
        from tvm.ir.transform import Sequential

        passes, host, device = get_tir_pipeline(name)
        return Sequential([passes, _on_cpu()]), host, device

    longer = f"{name}-emulated-host"
    register_tir_pipeline(longer, made)
    return longer


def _on_cpu() -> Any:
    from tvm.ir.transform import module_pass

    def changed(module: Any, _context: Any) -> Any:
        for variable, function in list(module.functions.items()):
            if int(function.attrs.get("calling_conv", 0)) != _KERNEL:
                module.update_func(variable, function.with_body(_move_to_cpu(function.body)))
        return module

    return module_pass(changed, opt_level=0, name="EmulatedHost")


def _move_to_cpu(body: Any) -> Any:
    """Host code with CUDA's device replaced by the CPU, and kernels called with the names of their
    launch parameters."""
    import tvm
    from tvm_ffi import structural_mutate

    def compare(node: Any, mutator: Any) -> Any:
        if _is_call(uncast(node.a), _FIELD) and int(uncast(node.a).args[2]) == _DEVICE_TYPE:
            return tvm.tirx.EQ(node.a, tvm.tirx.const(_CPU, "int32"))
        return mutator.default_mutate(node)

    def call(node: Any, mutator: Any) -> Any:
        if _is_call(node, _KERNEL_CALL):
            tags = tvm.ir.StringImm(",".join(str(tag) for tag in node.attrs.launch_params))
            return _with_arguments(node, [*node.args, tags])
        if _is_call(node, _PACKED_CALL) and node.args[0].value == _SET_DEVICE:
            cpu = tvm.tirx.const(_CPU, "int32")
            return _with_arguments(node, [node.args[0], cpu, *node.args[2:]])
        return mutator.default_mutate(node)

    def mark(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.attr_key != "device_type":
            return node
        return tvm.tirx.AttrStmt(node.node, node.attr_key, tvm.tirx.const(_CPU, "int32"), node.body)

    kinds = [(tvm.tirx.EQ, compare), (tvm.ir.Call, call), (tvm.tirx.AttrStmt, mark)]
    return structural_mutate(body, kinds)


def _with_arguments(call: Any, arguments: list[Any]) -> Any:
    import tvm

    return tvm.ir.Call(call.op, arguments, call.attrs, span=call.span, ret_ty=call.ty)


def _is_call(node: Any, name: str) -> bool:
    import tvm

    return isinstance(node, tvm.ir.Call) and getattr(node.op, "name", "") == name
