"""Copies of memory, to measure what a machine's caches and memory can move.

A copy of a footprint moves half of it to the other half, so that it reads and writes as many bytes
in all as a program with that footprint does at least.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.race import Ready

if TYPE_CHECKING:
    from spaces.check.case import Case
    from spaces.check.draws import Argument

LARGE_BYTES = 512 << 20
"""More than any cache holds."""

WAYS = ("loop", "memcpy", "memcpies")
"""A vectorised loop that TVM compiles, on all cores; the C library's memcpy on one core, and
on all of them at once (it writes past the caches what is too large for them)."""

_LANES = 16
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Copy:
    """A contestant that copies as many bytes as the task moves at least, or as many as given.

    Attributes:
        way: one of `WAYS`.
        footprint: bytes read and written together; 0 is the task's.
    """

    way: str
    cores: int
    target: str
    footprint: int = 0

    @property
    def name(self) -> str:
        """The way, and whether it is the large one."""
        return f"large {self.way}" if self.footprint else self.way

    def enter(self, known: Case) -> Ready:
        """Have both halves in memory, written once."""
        import numpy as np

        chunk = self.cores * _LANES
        half = (self.footprint or footprint_bytes(known.arguments)) // 2
        count = max(1, round(half / _FLOAT_BYTES / chunk)) * chunk
        if self.way == "loop":
            return _loop(count, self.cores, self.target)
        source, sink = np.ones(count, np.float32), np.zeros(count, np.float32)
        if self.way == "memcpy":
            return Ready(lambda: np.copyto(sink, source), None)
        return _threads(source, sink, self.cores)


def footprint_bytes(arguments: tuple[Argument, ...]) -> int:
    """Bytes of all inputs and outputs together: what a program has to move at least."""
    from spaces.ir.element_types import numpy_dtype

    return sum(math.prod(a.shape) * numpy_dtype(a.dtype).itemsize for a in arguments)


def _loop(count: int, cores: int, target: str) -> Ready:
    import numpy as np
    import tvm
    from tvm import te

    from spaces.targets.target import parse_target

    a = te.placeholder((count,), name="A")
    b = te.compute((count,), lambda i: a[i], name="B")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b]))
    (loop,) = schedule.get_loops(schedule.get_sblock("B"))
    outer, _, inner = schedule.split(loop, [cores, None, _LANES])
    schedule.parallel(outer)
    schedule.vectorize(inner)
    library = tvm.compile(schedule.mod, target=parse_target(target))
    source = tvm.runtime.tensor(np.ones(count, np.float32))
    sink = tvm.runtime.tensor(np.zeros(count, np.float32))
    main = library["main"]
    return Ready(lambda: main(source, sink), None)


def _threads(source: Any, sink: Any, cores: int) -> Ready:
    """Each core copies a part; NumPy lets go of the interpreter meanwhile."""
    import numpy as np

    parts = list(zip(np.array_split(sink, cores), np.array_split(source, cores), strict=True))
    (own, *others) = parts
    pool = ThreadPoolExecutor(max(1, len(others)))

    def run() -> None:
        futures = [pool.submit(np.copyto, *part) for part in others]
        np.copyto(*own)
        wait(futures)

    return Ready(run, None)
