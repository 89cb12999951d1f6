"""A process that runs programs on the device, replaced when one spoils it or keeps it too long."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.spaces.emulation.instructions.program import Arrays, Program

START_S = 40.0
"""Until the process has imported what it needs and has its context."""
ANSWER_S = 8.0
"""For one program; a kernel takes microseconds, loading its module some milliseconds."""


class DeviceProcess:
    """Runs one program after the other in a child that is started when it is needed.

    Attributes:
        about: what the child said of its device; empty before the first program.
    """

    def __init__(self, cubins: Path, outputs: Path, *, answer_s: float = ANSWER_S) -> None:
        self._command = [
            *(sys.executable, "-m", "benchmarks.gpu.instructions_child"),
            *(str(cubins), str(outputs)),
        ]
        self._answer_s = answer_s
        self._child: subprocess.Popen[str] | None = None
        self.about: dict[str, Any] = {}

    def run(self, program: Program) -> Arrays | str:
        """The program's outputs, or what kept it from its end."""
        child = self._child or self._start()
        if isinstance(child, str):
            return child
        assert child.stdin is not None
        try:
            child.stdin.write(program.name + "\n")
            child.stdin.flush()
        except OSError as error:
            self.end()
            return f"the process on the device is gone: {error}"
        answer = self._answer(child, self._answer_s)
        if "file" not in answer:
            self.end()
            return str(answer["error"])
        with np.load(answer["file"]) as saved:
            return [saved[f"arr_{i}"] for i in range(len(saved.files))]

    def end(self) -> None:
        """Kill the child; the next program gets another."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _start(self) -> subprocess.Popen[str] | str:
        child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._child = child
        answer = self._answer(child, START_S)
        if "error" in answer:
            self.end()
            return str(answer["error"])
        self.about = answer
        return child

    def _answer(self, child: subprocess.Popen[str], limit_s: float) -> dict[str, Any]:
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], limit_s)
        if not ready:
            return {"error": f"no answer in {limit_s:.0f} s"}
        line = child.stdout.readline()
        if not line:
            return {"error": "the process on the device ended without a word"}
        answer: dict[str, Any] = json.loads(line)
        return answer
