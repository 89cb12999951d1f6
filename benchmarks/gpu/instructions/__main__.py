"""What the instructions that kernels are made of do on this machine's GPU.

    python -m benchmarks.gpu.instructions --out DIR [--only TEXT] [--arch sm_90a] [--cubins DIR]

Compiles the programs of tests/spaces/emulation/instructions, runs each on the device, and compares
with what its definition says. Asks as well what no manual says (the folder `questions`). DIR gets
instructions.npz, the inputs and outputs of all programs that ran, instructions.json, and the
compiled programs. Needs Python, numpy and nvcc, and no nvcc with --cubins. Without a device it
compiles all and says that it ran none.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.instructions.compile import (
    Compiled,
    compile_programs,
    read_index,
    version_of_nvcc,
)
from benchmarks.gpu.instructions.devices import DeviceProcess, child_command
from benchmarks.gpu.instructions.questions.catalogue import questions
from benchmarks.gpu.instructions.questions.question import Question
from benchmarks.gpu.instructions.saved import keys_of, plain, save
from tests.spaces.emulation.instructions.catalogue import programs
from tests.spaces.emulation.instructions.judge import is_right, judge
from tests.spaces.emulation.instructions.program import SEED, Array, Arrays, Program

_SAVE_EVERY = 50
"""Programs between two savings: a run that is cut off has told most."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, run, compare, save. 0 where nothing differs from its definition."""
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.time_budget
    cubins = options.cubins or options.out / "cubins"
    with tempfile.TemporaryDirectory() as folder:
        process = DeviceProcess(child_command(cubins, Path(folder)))
        try:
            run = Run(options.out, process, process.start(), deadline)
            asked = {n: q for n, q in questions().items() if options.only in n}
            tested = {n: p for n, p in programs().items() if options.only in n}
            every = [*tested.values(), *(question.program for question in asked.values())]
            run.compiled = _compiled(options, cubins, every, run.about)
            for program in tested.values():
                run.test(program)
            for question in asked.values():
                run.ask(question)
        finally:
            process.end()
    return run.finish()


class Run:
    """What has been found so far, on disk every now and then."""

    def __init__(
        self, out: Path, process: DeviceProcess, about: dict[str, Any], deadline: float
    ) -> None:
        self._out, self._process, self._deadline = out, process, deadline
        self.about = about
        self.compiled = Compiled({}, {})
        self.rows: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}
        self.arrays: dict[str, Array] = {}

    def test(self, program: Program) -> None:
        """Run a program and judge what it gave."""
        outputs = self._outputs(program)
        ran = not isinstance(outputs, str)
        says = outputs if isinstance(outputs, str) else judge(program, outputs)
        self.rows[program.name] = {"says": says, "section": program.section, "ran": ran}
        if not isinstance(outputs, str):
            self.arrays.update(keys_of(program, outputs))
        self._show(f"{program.name}: {says}")

    def ask(self, question: Question) -> None:
        """Run a question and read its answer."""
        program = question.program
        outputs = self._outputs(program)
        if isinstance(outputs, str):
            answer = {"says": outputs}
        else:
            answer = question.answer(program.inputs(), outputs)
            self.arrays.update(keys_of(program, outputs) if question.kept else {})
        self.answers[program.name] = {"asks": question.asks, **answer}
        self._show(f"? {question.asks}: {json.dumps(plain(answer))}")

    def finish(self) -> int:
        """Save and sum up; what the process is to end with."""
        self._save()
        wrong = [name for name, row in self.rows.items() if not is_right(row["says"])]
        ran = sum(row["ran"] for row in self.rows.values())
        print(
            f"{ran} of {len(self.rows)} programs ran,"
            f" {len(wrong)} are not what their definition says"
        )
        return 1 if wrong else 0

    def _outputs(self, program: Program) -> Arrays | str:
        """What it gave; `differs: ...` for what went wrong; why it was not run."""
        if program.name not in self.compiled.cubins:
            return f"differs: error {self.compiled.errors.get(program.name, 'not compiled')}"
        if "error" in self.about:
            return f"compiled, and run on no device: {self.about['error']}"
        if time.monotonic() > self._deadline:
            return "not run: no time was left"
        outputs = self._process.run(program)
        return f"differs: error {outputs}" if isinstance(outputs, str) else outputs

    def _show(self, line: str) -> None:
        print(line, flush=True)
        if (len(self.rows) + len(self.answers)) % _SAVE_EVERY == 0:
            self._save()

    def _save(self) -> None:
        document = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "nvcc": version_of_nvcc(),
            "seed": SEED,
            "device": self.about,
            "programs": self.rows,
            "questions": self.answers,
        }
        save(self._out, document, self.arrays)


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
    parser.add_argument("--arch", default="", help="compile all for this one, not the device's")
    parser.add_argument("--cubins", type=Path, help="a folder `cubins` that another call left")
    parser.add_argument("--cores", type=int, default=0, help="calls of nvcc at a time")
    parser.add_argument(
        "--time-budget", type=float, default=60.0, help="seconds after which no more is run"
    )
    return parser.parse_args(arguments)


def _compiled(
    options: argparse.Namespace, cubins: Path, every: Sequence[Program], about: Mapping[str, Any]
) -> Compiled:
    if options.cubins is not None:
        return read_index(cubins)
    start = time.perf_counter()
    arch = options.arch or arch_of(about)
    compiled = compile_programs(every, cubins, arch=arch, cores=options.cores)
    took_s = time.perf_counter() - start
    print(f"{len(compiled.cubins)} programs compiled in {took_s:.1f} s", file=sys.stderr)
    return compiled


if __name__ == "__main__":
    sys.exit(main())
