"""What the best predicted products are made of, beside what is wanted of them. No GPU is needed.

    python -m benchmarks.gpu.goals --out benchmarks/results/gpu/goals.json

Of each type, layout and size the 200 best predicted settings of a template are taken in turn, as a
search lists them, until a builder accepts one: the row tells of that one, and how many were refused
before it. Times and rates are predictions of the template's model. Bank conflicts are counted on
the emulated device, of the same setting in a small product whose sizes leave the same remainders;
tensor copies and `wgmma` are not counted. Where all 200 are refused nothing is written.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import product as combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from benchmarks.gpu.feasible import child
from benchmarks.machine import about
from tuner.candidate import of_knobs
from tuner.files.atomic import write_bytes
from tuner.record import Status
from tuner.request.target_text import tf32
from tuner.task import Task

if TYPE_CHECKING:
    from spaces.design_space.knob_space import KnobSpace

_SETTINGS = 200
_SMALL = 128
"""What the sizes of a small product are the remainders by."""
_LEAST_STAGES, _LEAST_FFMA, _WIDEST_BITS = 3, 0.85, 128
_MAIN = "main_kernel"
"""Before one that adds up what its blocks have left."""
_LOAD = re.compile(r"LDG|UTMALDG|UBLKCP")
_TENSOR = re.compile(r"\b[HIQ]G?MMA\.[\w.]+")
_CUBES = tuple((size, size, size) for size in (1024, 2048, 4096))

Sizes = tuple[int, int, int]
SIZES: tuple[Sizes, ...] = (*_CUBES, (1000, 3000, 777), (4095, 4097, 512))
LAYOUTS, ARCHES = ("NT", "NN"), ("sm_80", "sm_90a")
_NAMED = ("kind", "arch", "layout", "sizes")
WHATS = ("instructions", "loads", "stages", "spills", "bank conflicts", "FFMA", "refused")
"""What a row may miss."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to multiply.

    Attributes:
        dtype: of the operands.
        space: its template's name, a pattern.
        wanted: how the names of its instructions begin on each architecture; empty where threads
            multiply.
    """

    dtype: str
    space: str
    wanted: Mapping[str, str]


_HALVES = {"sm_80": "HMMA.16816", "sm_90a": "HGMMA"}
_BYTES = {"sm_80": "IMMA.16832", "sm_90a": "IGMMA"}
_TF32 = {"sm_80": "HMMA.1688.F32.TF32", "sm_90a": "HGMMA"}
KINDS = {
    "float16": Kind("float16", "kernel:(ampere|hopper)-product", _HALVES),
    "bfloat16": Kind("bfloat16", "kernel:(ampere|hopper)-product", _HALVES),
    "int8": Kind("int8", "kernel:(ampere|hopper)-int8-product", _BYTES),
    "TF32": Kind("float32", "kernel:(ampere|hopper)-tf32-product", _TF32),
    "TF32x3": Kind("float32", "kernel:(ampere|hopper)-tf32x3-product", _TF32),
    "float32": Kind("float32", "kernel:thread-product", {}),
}


def main() -> int:
    """Run the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu.goals")
    flags.add_argument("--only", choices=KINDS, help="one way; rows of others in --out stay")
    flags.add_argument("--out", type=Path)
    options = flags.parse_args()
    os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"  # as in builders: the compiler is called by us
    kinds = [options.only] if options.only else [*KINDS]
    wanted = [*zip(*combinations(kinds, ARCHES, LAYOUTS, SIZES), strict=True)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        rows = []
        for row in pool.map(describe, *wanted):
            rows.append(row)
            print(*(row[key] for key in _NAMED), row["misses"], file=sys.stderr, flush=True)
    if options.only and options.out is not None and options.out.exists():
        rows += [r for r in json.loads(options.out.read_text())["rows"] if r["kind"] not in kinds]
        rows.sort(key=lambda row: [*KINDS].index(row["kind"]))
    said = {**about(), "summary": summarise(rows), "rows": rows}
    text = json.dumps(said, indent=1) + "\n"
    print(text, end="")
    if options.out is not None:
        write_bytes(options.out, text.encode())
    return 0


def describe(kind: str, arch: str, layout: str, sizes: Sizes) -> dict[str, Any]:
    """The row of a product.

    Raises:
        RuntimeError: none of its settings could be built.
    """
    from tests.spaces.emulation.watched import watch_program

    task, space = open_space(kind, arch, layout, sizes)
    refused: list[str] = []
    builder = child()
    builder.learn(task)
    for knobs in space.ranked[:_SETTINGS]:
        candidate = of_knobs(knobs, space.name)
        answer = builder.build(task.key, candidate)
        if answer.status == Status.OK:
            break
        refused.append(answer.error[:100])
    else:
        raise RuntimeError(f"{kind} {arch} {layout} {sizes}: no setting is built: {refused[:3]}")
    estimate_s = space.describe(knobs).estimate_s or math.inf
    m, n, k = sizes
    left: Sizes = (m % _SMALL + _SMALL, n % _SMALL + _SMALL, k % _SMALL + _SMALL)
    _, small = open_space(kind, arch, layout, left)
    uses = watch_program(small.write(candidate).mod, task.target)
    row = {
        "kind": kind,
        "arch": arch,
        "layout": layout,
        "sizes": "x".join(map(str, sizes)),
        "predicted_us": estimate_s * 1e6,
        "predicted_tflops": 2 * m * n * k / estimate_s / 1e12,
        "refused": len(refused),
        "refusals": Counter(refused),
        "stages": knobs["stages"],
        **read_machine_code(answer.artifact, arch),
        "bank_conflicts": sum(use.wavefronts - use.least for use in uses),
        "space": space.name,
        "knobs": knobs,
    }
    return {**row, "misses": find_misses(row)}


def open_space(kind: str, arch: str, layout: str, sizes: Sizes) -> tuple[Task, KnobSpace]:
    """A product as a task, and the space of its template."""
    from spaces.design_space.knob_space import KnobSpace
    from spaces.lowering.extract_tasks import task_of
    from spaces.targets.target import resolve_target
    from spaces.templates.registry import templates_of
    from tests.spaces.templates.few_rows.few_row_programs import matmul
    from tests.spaces.templates.tensor_cores import byte_products
    from tests.spaces.templates.tensor_cores.products import Sizes as ByteSizes

    way, nt = KINDS[kind], layout == "NT"
    text = f'{{"kind":"cuda","arch":"{arch}"}}'
    target = resolve_target(tf32(text) if kind == "TF32" else text)
    if way.dtype == "int8":
        program = byte_products.matmul(ByteSizes(*sizes), nt=nt)
    else:
        program = matmul(*sizes, nt=nt, kind=way.dtype)
    task = task_of(program, target, name="product")
    (template,) = (t for t in templates_of(task) if re.match(rf"{way.space}-\d+$", t.name))
    return task, KnobSpace(task, template)


def read_machine_code(artifact: bytes, arch: str) -> dict[str, Any]:
    """What the compiler made of the kernel of an artifact."""
    from spaces.codegen.artifact import kernels_of
    from spaces.codegen.cuda.cubin import kernel_texts
    from spaces.codegen.cuda.instructions import read_code

    with ZipFile(BytesIO(artifact)) as members:
        binary = members.read("device.bin")
    use, read = kernels_of(artifact)[_MAIN], read_code(kernel_texts(binary)[_MAIN], int(arch[3:5]))
    if read is None or use.mix is None:
        raise RuntimeError(f"machine code for {arch} cannot be read")
    # What copies for warps that multiply has a loop of its own; other loops sum again, if need be.
    in_loop = {name: number for name, number in use.mix.counts.items() if _LOAD.match(name)}
    return {
        "tensor_instructions": dict(Counter(_TENSOR.findall(disassemble(binary)))),
        "loads": in_loop or dict(Counter(name for name in read.names if _LOAD.match(name))),
        "registers": use.registers,
        "spilled_bytes": max(use.spill_store_bytes, use.stack_bytes),
        "ffma_share": use.mix.share({"FFMA"}),
    }


def disassemble(binary: bytes) -> str:
    """By NVIDIA's disassembler, which names the shapes of instructions, too."""
    from tests.needed import with_cuda_programs

    with tempfile.TemporaryDirectory(prefix="goals-") as folder:
        file = Path(folder) / "k.cubin"
        file.write_bytes(binary)
        environment = {**os.environ, "PATH": with_cuda_programs(os.environ["PATH"])}
        call = ["cuobjdump", "-sass", str(file)]
        return subprocess.check_output(call, text=True, timeout=60, env=environment)


def find_misses(row: Mapping[str, Any]) -> dict[str, str]:
    """What a row falls short of."""
    wanted = KINDS[row["kind"]].wanted.get(row["arch"], "")
    tensor, share = row["tensor_instructions"], row["ffma_share"]
    others = [name for name in tensor if not name.startswith(wanted)]
    bits = [int(found[1]) for name in row["loads"] if (found := re.search(r"\.(\d+)$", name))]
    checks = {
        "instructions": (wanted and (others or not tensor), " ".join(others) or "no tensor cores"),
        "loads": (
            min(bits, default=_WIDEST_BITS) < _WIDEST_BITS,
            f"of {min(bits, default=0)} bits",
        ),
        "stages": (row["stages"] < _LEAST_STAGES, f"{row['stages']}"),
        "spills": (row["spilled_bytes"] > 0, f"{row['spilled_bytes']} bytes"),
        "bank conflicts": (row["bank_conflicts"] > 0, f"{row['bank_conflicts']}"),
        "FFMA": (not wanted and share < _LEAST_FFMA, f"{100 * share:.1f} %"),
        "refused": (row["refused"] > 0, f"{row['refused']} that were predicted to be better"),
    }
    return {what: said for what, (misses, said) in checks.items() if misses}


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many rows reach all, and how many miss each."""
    missed = Counter(what for row in rows for what in row["misses"])
    shares = [row["ffma_share"] for row in rows if not KINDS[row["kind"]].wanted]
    return {
        "rows": len(rows),
        "reach_all": sum(not row["misses"] for row in rows),
        **{f"miss_{what.replace(' ', '_')}": missed[what] for what in WHATS},
        "least_ffma_share": min(shares, default=None),
    }


if __name__ == "__main__":
    sys.exit(main())
