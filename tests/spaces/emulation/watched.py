"""What scheduled programs do with shared memory, on the emulated device."""

from __future__ import annotations

from typing import Any

from spaces.emulation.compile import compile_kernels
from spaces.emulation.library import (
    SharedUse,
    architecture,
    drop_kernels,
    list_shared_uses,
    load_kernels,
    watch_shared,
)
from spaces.ir import tvm_compat
from spaces.passes.cuda.pipeline import cuda_pipeline
from spaces.targets.target import parse_target
from tests.spaces.emulation.programs import compiled

DEADLINE_S = 120.0


def watch_program(module: Any, target_json: str) -> list[SharedUse]:
    """What the kernels of a scheduled module of known sizes do, on tensors of zeros."""
    import tvm

    target = parse_target(target_json)
    library = compiled(module, target, cuda_pipeline())
    source = "".join(part.inspect_source("cuda") for part in library.imports)
    drop_kernels(library)
    code = compile_kernels(source, architecture(str(target.attrs["arch"])), watched=True)
    library.import_module(load_kernels(code, deadline_s=DEADLINE_S))
    watch_shared(library)
    function = module["main"]
    tensors = [
        tvm.runtime.empty(
            tuple(tvm_compat.param_shape(param) or ()),
            tvm_compat.param_dtype(param),
        )
        for param in function.params
    ]
    library["main"](*tensors)
    return list_shared_uses(library)
