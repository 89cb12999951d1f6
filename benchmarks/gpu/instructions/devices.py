"""A process that runs programs on the device, replaced when one spoils it or keeps it too long."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.spaces.emulation.instructions.program import Arrays, Program

START_S = 40.0
"""Until the process has imported what it needs and has its context."""
ANSWER_S = 5.0
"""For one program; a kernel takes microseconds, loading its module some milliseconds."""


def child_command(cubins: Path, outputs: Path) -> list[str]:
    """The process that runs what lies in `cubins` and leaves its files in `outputs`."""
    return [sys.executable, "-m", "benchmarks.gpu.instructions.child", str(cubins), str(outputs)]


class DeviceProcess:
    """Runs one program after the other in a child that is started when it is needed.

    Args:
        command: of the child: says JSON of its device, then answers each name of a program.
        answer_s: how long one program may take.
    """

    def __init__(self, command: Sequence[str], *, answer_s: float = ANSWER_S) -> None:
        self._command = list(command)
        self._answer_s = answer_s
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> dict[str, Any]:
        """What the child says of its device: `error` holds why it has none."""
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self._answer(self._child, START_S)

    def run(self, program: Program) -> Arrays | str:
        """The program's outputs, or what kept it from its end."""
        if self._child is None:
            about = self.start()
            if "error" in about:
                return str(about["error"])
        child = self._child
        assert child is not None
        assert child.stdin is not None
        try:
            child.stdin.write(program.name + "\n")
            child.stdin.flush()
        except OSError as error:
            self.end()
            return f"the process on the device is gone: {error}"
        answer = self._answer(child, self._answer_s)
        if "error" in answer:
            return str(answer["error"])
        with np.load(answer["file"]) as saved:
            return [saved[f"arr_{i}"] for i in range(len(saved.files))]

    def end(self) -> None:
        """Kill the child; the next program gets another."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _answer(self, child: subprocess.Popen[str], limit_s: float) -> dict[str, Any]:
        """Its next line; one that says an error is its last."""
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], limit_s)
        line = child.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
        elif ready:
            answer = {"error": "the process on the device ended without a word"}
        else:
            answer = {"error": f"no answer in {limit_s:.0f} s"}
        if "error" in answer:
            self.end()
        return answer
