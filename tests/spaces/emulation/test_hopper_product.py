"""The program that `benchmarks.gpu.hopper` measures on a device, on the emulated one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.passes.cuda.pipeline import cuda_pipeline
from tests.needed import needs_nvcc
from tests.spaces.emulation import hopper
from tests.spaces.emulation.programs import product_of

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("sizes", "columns"), [((128, 256, 512), 256), ((323, 664, 328), 256), ((137, 88, 72), 64)]
)
def test_a_product_of_any_size_is_right(
    sizes: tuple[int, int, int], columns: int, dtype: str
) -> None:
    program = product_of(*sizes, columns=columns, dtype=dtype)
    assert program.is_right(program.output())


@needs_nvcc
@pytest.mark.parametrize("sizes", [(512, 512, 512), (4096, 4096, 4096), (1000, 1000, 1000)])
def test_no_sum_is_read_before_all_products_are_in_it(
    sizes: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's own order, which no emulation sees: it once moved the wait below the reads."""
    import tvm

    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    target = tvm.target.Target(hopper.TARGET, host=tvm.target.Target({"kind": "llvm"}))
    module = tvm.IRModule({"main": hopper.product(*sizes, columns=256)})
    with target:
        library = tvm.compile(module, target=target, tir_pipeline=cuda_pipeline()).mod
    code = compile_cuda(library.imports[0].inspect_source("cuda"), "sm_90a")
    (tmp_path / "k.cubin").write_bytes(code.binary)
    said = subprocess.check_output(["cuobjdump", "-sass", str(tmp_path / "k.cubin")], text=True)
    order = re.findall(r"HGMMA|DEPBAR\.LE gsb0, 0x0|F2FP", said)
    products, waits, reads = (
        [place for place, word in enumerate(order) if word.startswith(kind)]
        for kind in ("HGMMA", "DEPBAR", "F2FP")
    )
    assert products
    assert products[-1] < waits[0] < reads[0]
