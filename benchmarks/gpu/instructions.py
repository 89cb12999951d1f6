"""What the instructions that kernels are made of do on this machine's GPU.

    python -m benchmarks.gpu.instructions --out DIR [--only TEXT] [--arch sm_90a] [--cubins DIR]

Compiles the programs of tests/spaces/emulation/instructions, runs each on the device, and compares
with what its definition says. Asks as well what no manual says (benchmarks/gpu/questions). DIR gets
instructions.npz, the inputs and outputs of all programs that ran, instructions.json, and the
compiled programs. Needs Python, numpy and nvcc, and no nvcc with --cubins. Without a device it
compiles all and says that it ran none.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.compile import Compiled, compile_programs, nvcc_version, read_index
from benchmarks.gpu.devices import DeviceProcess
from benchmarks.gpu.driver import Driver, DriverError
from benchmarks.gpu.questions.catalogue import questions
from benchmarks.gpu.questions.question import Question
from tests.spaces.emulation.instructions.catalogue import programs
from tests.spaces.emulation.instructions.judge import is_right, judge
from tests.spaces.emulation.instructions.program import SEED, Array, Arrays, Program

RESULT, ARRAYS = "instructions.json", "instructions.npz"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, run, compare, save. 0 where nothing differs from its definition."""
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    asked = {n: q for n, q in questions().items() if options.only in n}
    tested = {n: p for n, p in programs().items() if options.only in n}
    every = [*tested.values(), *(question.program for question in asked.values())]
    device = device_here()
    compiled = _compiled(options, every, device)
    rows, answers, arrays, about = _run_all(tested, asked, compiled, options, device)
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "nvcc": nvcc_version(),
        "seed": SEED,
        **about,
        "programs": rows,
        "questions": answers,
    }
    (options.out / RESULT).write_text(json.dumps(document, indent=1) + "\n")
    if arrays:
        np.savez_compressed(options.out / ARRAYS, allow_pickle=False, **arrays)
    wrong = [name for name, row in rows.items() if not is_right(row["says"])]
    ran = sum(row["ran"] for row in rows.values())
    print(f"{ran} of {len(rows)} programs ran, {len(wrong)} are not what their definition says")
    return 1 if wrong else 0


def device_here() -> dict[str, Any]:
    """What the driver says of the device; a reason under `none` where there is no device.

    A process of its own asks, since one that has a context spoils nothing else.
    """
    try:
        return Driver().about()
    except DriverError as error:
        return {"none": str(error)}


def arch_of(about: Mapping[str, Any]) -> str:
    """The architecture to compile for: the device's, with all that it has; empty without one."""
    if "capability" not in about:
        return ""
    number = about["capability"].replace(".", "")
    return f"sm_{number}{'a' if int(number) >= 90 else ''}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.instructions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--only", default="", help="programs with this in their name")
    parser.add_argument(
        "--arch", default="", help="compile all for this one; the device's otherwise"
    )
    parser.add_argument("--cubins", type=Path, help="a folder `cubins` that another call left")
    parser.add_argument("--cores", type=int, default=0, help="calls of nvcc at a time")
    return parser.parse_args(arguments)


def _compiled(
    options: argparse.Namespace, every: Sequence[Program], device: Mapping[str, Any]
) -> Compiled:
    if options.cubins is not None:
        return read_index(options.cubins)
    start = time.perf_counter()
    arch = options.arch or arch_of(device)
    compiled = compile_programs(every, options.out / "cubins", arch=arch, cores=options.cores)
    took_s = time.perf_counter() - start
    print(f"{len(compiled.cubins)} programs compiled in {took_s:.1f} s", file=sys.stderr)
    return compiled


def _run_all(
    tested: Mapping[str, Program],
    asked: Mapping[str, Question],
    compiled: Compiled,
    options: argparse.Namespace,
    device: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Array], dict[str, Any]]:
    """Rows of the programs, answers to the questions, the arrays to keep, and the device."""
    cubins = options.cubins or options.out / "cubins"
    rows: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    with tempfile.TemporaryDirectory() as folder:
        process = DeviceProcess(cubins, Path(folder))
        for name, program in tested.items():
            outputs = _outputs(program, compiled, process, device)
            says = outputs if isinstance(outputs, str) else judge(program, outputs)
            rows[name] = {
                "says": says,
                "section": program.section,
                "ran": not isinstance(outputs, str),
            }
            print(f"{name}: {says}", flush=True)
            if not isinstance(outputs, str):
                arrays.update(keys_of(program, outputs))
        for name, question in asked.items():
            outputs = _outputs(question.program, compiled, process, device)
            answers[name] = {"asks": question.asks}
            if isinstance(outputs, str):
                answers[name]["says"] = outputs
            else:
                answers[name].update(question.answer(question.program.inputs(), outputs))
                arrays.update(keys_of(question.program, outputs) if question.kept else {})
            print(f"? {name}: {json.dumps(answers[name])}", flush=True)
        process.end()
    return rows, answers, arrays, device


def _outputs(
    program: Program, compiled: Compiled, process: DeviceProcess, device: Mapping[str, Any]
) -> Arrays | str:
    """What it gave, or `differs: ...` for what went wrong, or `compiled` without a device."""
    if program.name not in compiled.cubins:
        return f"differs: error {compiled.errors.get(program.name, 'it was not compiled')}"
    if "none" in device:
        return "compiled; it was run on no device"
    outputs = process.run(program)
    return f"differs: error {outputs}" if isinstance(outputs, str) else outputs


def keys_of(program: Program, outputs: Sequence[Array]) -> dict[str, Array]:
    """A program's inputs and outputs, by their names in the file of arrays."""
    named = {f"{program.name}/in{i}": array for i, array in enumerate(program.inputs())}
    return {**named, **{f"{program.name}/out{i}": array for i, array in enumerate(outputs)}}


def saved_outputs(arrays: Mapping[str, Array], program: Program) -> Arrays:
    """A program's outputs in that file; none where it did not run."""
    found: Arrays = []
    while (key := f"{program.name}/out{len(found)}") in arrays:
        found.append(arrays[key])
    return found


if __name__ == "__main__":
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    sys.exit(main())
