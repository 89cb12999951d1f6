"""All programs, in the order in which they are shown."""

from __future__ import annotations

from functools import cache

from tests.spaces.emulation.instructions.memory import (
    barriers,
    bulk,
    clusters,
    copies,
    matrices,
    tensors,
    vectors,
)
from tests.spaces.emulation.instructions.numbers import (
    arithmetic,
    conversions,
    functions,
    integers,
)
from tests.spaces.emulation.instructions.products import mma, warp_matrices, wgmma
from tests.spaces.emulation.instructions.program import Program
from tests.spaces.emulation.instructions.threads import atomics, shuffles, votes

_ROOMS = (
    *(matrices, copies, barriers, bulk, tensors, clusters, vectors),
    *(mma, wgmma, warp_matrices),
    *(shuffles, votes, atomics),
    *(conversions, arithmetic, functions, integers),
)


@cache
def programs() -> dict[str, Program]:
    """All of them, by name.

    Raises:
        ValueError: Two share a name, or a kernel's.
    """
    found = [program for room in _ROOMS for program in room.programs()]
    for names in ([p.name for p in found], [p.kernel for p in found]):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two programs are called {', '.join(twice)}")
    return {program.name: program for program in found}
