"""The sides of a race, each a process of its own that is asked for one sample at a time."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tuner.errors import TunerError

_ROOT = Path(__file__).parents[2]
_READY_S, _SAMPLE_S = 180.0, 60.0
_PAUSE_S = 0.15
"""A thread pool spins for a while after its work is done; the next side should not feel it."""


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


@dataclass(frozen=True, slots=True)
class Raced:
    """What came of a race.

    Attributes:
        samples_ms: by side and number of a sample, one for each round.
        errors: the largest of a side's outputs' errors.
        failed: why a side did not take part.
    """

    samples_ms: dict[str, dict[int, list[float]]]
    errors: dict[str, float]
    failed: dict[str, str]


def race_sides(
    sides: Mapping[str, tuple[str, Path]], cores: int, samples: Sequence[int], rounds: int
) -> Raced:
    """Have sides run samples in turns.

    Args:
        sides: by name, what `benchmarks.coverage.side_child` runs, and in which folder.
        samples: numbers of those that each runs in each round.
    """
    raced = Raced({}, {}, {})
    with ExitStack() as stack:
        ready = {}
        for name, (kind, folder) in sides.items():
            try:
                ready[name] = side = stack.enter_context(Side(kind, folder, cores, samples))
            except TunerError as error:
                raced.failed[name] = str(error)
            else:
                raced.errors[name] = side.error
                raced.samples_ms[name] = {number: [] for number in samples}
        order = list(ready)
        for turn in range(rounds):
            for name in (*order[turn % len(order) :], *order[: turn % len(order)]):
                time.sleep(_PAUSE_S)
                for number in samples:
                    raced.samples_ms[name][number].append(ready[name].ms(number))
    return raced
