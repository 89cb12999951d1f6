"""Launches of kernels, in host functions as TVM's passes leave them."""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat

LOWERED = "LowerForCuda"
"""The pass after which host functions launch kernels."""
_LAUNCH = "tirx.call_ffi_kernel"
_SHARED = "tirx.use_dyn_shared_memory"


def launch_parameters(call: Any) -> dict[str, Any]:
    """What a launch says besides the kernel's arguments, by its tags, such as `blockIdx.x`; empty
    of any other call."""
    if tvm_compat.operator_name(call) != _LAUNCH:
        return {}
    tags = [str(tag) for tag in call.attrs.launch_params]
    return dict(zip(tags, list(call.args)[len(call.args) - len(tags) :], strict=True))


class LaunchWatch:
    """Notes, while TVM's passes run, the shared memory that launches ask for.

    Attributes:
        shared_bytes: of a block, by kernel; the most of several launches. A kernel is missing where
            its launch asks for a number that is not known.
    """

    def __init__(self) -> None:
        self.shared_bytes: dict[str, int] = {}

    def instrument(self) -> Any:
        """For a `PassContext`."""
        import tvm
        from tvm_ffi import structural_walk

        asked: dict[str, list[int | None]] = {}
        known = self.shared_bytes

        def look(call: Any) -> None:
            if parameters := launch_parameters(call):
                asked_bytes = tvm_compat.as_int(parameters.get(_SHARED, 0))
                asked.setdefault(str(call.args[0].value), []).append(asked_bytes)

        @tvm.ir.instrument.pass_instrument
        class After:
            def run_after_pass(self, module: Any, info: Any) -> None:
                if str(info.name) != LOWERED:
                    return
                for _, function in tvm_compat.prim_funcs(module):
                    structural_walk(function.body, (tvm.ir.Call, look))
                for kernel, sizes in asked.items():
                    if None not in sizes:
                        known[kernel] = max(size for size in sizes if size is not None)

        return After()
