"""One side of a race, a process of its own that is asked for one sample at a time."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tuner.errors import TunerError

_ROOT = Path(__file__).parents[2]
_READY_S, _SAMPLE_S = 180.0, 60.0


class Side:
    """`benchmarks.coverage.side_child` at work.

    Attributes:
        error: the largest of its outputs' errors.

    Raises:
        TunerError: it cannot run the network, or is late.
    """

    error: float

    def __init__(self, name: str, folder: Path, cores: int, samples: Sequence[int]) -> None:
        command = [sys.executable, "-m", "benchmarks.coverage.side_child", name, str(folder),
                   str(cores), ",".join(map(str, samples))]  # fmt: skip
        self._said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the child
        self._child = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )

    def __enter__(self) -> Self:
        try:
            self.error = float(self._line(_READY_S).split()[-1])
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def ms(self, sample: int) -> float:
        """How long one run takes."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(f"{sample}\n".encode())
            self._child.stdin.flush()
        except OSError as error:
            raise TunerError(self._last_word()) from error
        return float(self._line(_SAMPLE_S))

    def _line(self, limit_s: float) -> str:
        assert self._child.stdout is not None
        descriptor, line = self._child.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            if not select.select([descriptor], [], [], limit_s)[0]:
                raise TunerError(f"it said nothing for {limit_s:g} s")
            if not (part := os.read(descriptor, 4096)):
                raise TunerError(self._last_word())
            line += part
        return line.decode().splitlines()[-1]

    def _last_word(self) -> str:
        self._said.seek(0)
        return (self._said.read().strip().splitlines() or ["it ended without a word"])[-1][:200]

    def _close(self) -> None:
        self._child.kill()
        self._child.communicate()
        self._said.close()
