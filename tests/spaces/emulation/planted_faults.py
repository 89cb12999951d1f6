"""Faults that the emulated device has to catch. The list was fixed before the emulation was, but
for what clusters of blocks do.

Each is an edit of a right program: of the CUDA C of its kernel, or of the text of its host program.
A fault counts as caught if the run ends with an error, or its output is wrong, for every seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a fault is in."""

    BARRIER = "barrier"
    STAGE = "stage"
    GUARD = "guard"
    SWIZZLE = "swizzle"
    FENCE = "fence"
    PEER = "peer"
    CLUSTER = "cluster"


class Program(Enum):
    """A right program, from `tests.spaces.emulation.programs`.

    TILED: a float32 product that threads multiply, of open rows, in shared memory.
    STAGED: a product by TVM's rules whose stages come by `cp.async`.
    HOPPER: a product of the template for Hopper: TMA, mbarriers, wgmma, warps with roles.
    STORED: the same; threads fill a tile in shared memory with results, and TMA stores it.
    CLUSTERED: the same in clusters of two blocks, which copy one operand's tiles for one another.
    """

    TILED = "tiled"
    STAGED = "staged"
    HOPPER = "hopper"
    STORED = "stored"
    CLUSTERED = "clustered"


@dataclass(frozen=True, slots=True)
class Fault:
    """A planted fault.

    Attributes:
        what: the fault, in words.
        edits: the program's edit that plants it, by name.
    """

    kind: Kind
    program: Program
    what: str
    edit: str


FAULTS = (
    Fault(
        Kind.BARRIER,
        Program.TILED,
        "no barrier between reading a tile and writing the next one over it",
        "drop_barrier_after_use",
    ),
    Fault(
        Kind.BARRIER,
        Program.HOPPER,
        "consumers do not wait until a stage is full",
        "drop_wait_for_full",
    ),
    Fault(
        Kind.STAGE,
        Program.STAGED,
        "one more group of copies may be in flight than there are stages to spare",
        "wait_for_one_group_less",
    ),
    Fault(
        Kind.STAGE,
        Program.HOPPER,
        "the producer does not wait until a stage is empty",
        "drop_wait_for_empty",
    ),
    Fault(
        Kind.GUARD,
        Program.TILED,
        "terms past the end of an operand are read",
        "drop_guard_of_load",
    ),
    Fault(
        Kind.GUARD,
        Program.TILED,
        "rows past the end of the result are written",
        "drop_guard_of_store",
    ),
    Fault(
        Kind.SWIZZLE,
        Program.HOPPER,
        "the descriptor of an operand names 64 bytes where the tensor map names 128",
        "describe_narrow_swizzle",
    ),
    Fault(
        Kind.SWIZZLE,
        Program.HOPPER,
        "the tensor map of an operand names no swizzle where the descriptor names 128 bytes",
        "map_without_swizzle",
    ),
    Fault(
        Kind.FENCE,
        Program.HOPPER,
        "no wgmma.fence between registers that threads write and the first product",
        "drop_wgmma_fence",
    ),
    Fault(
        Kind.FENCE,
        Program.STORED,
        "no fence.proxy.async between threads that fill a tile and the copy that reads it",
        "drop_proxy_fence",
    ),
    Fault(
        Kind.PEER,
        Program.CLUSTERED,
        "consumers free a stage for their own block alone, and for it as often as for both",
        "arrive_at_own_block",
    ),
    Fault(
        Kind.PEER,
        Program.CLUSTERED,
        "what both blocks share is copied to one of them alone",
        "copy_to_one_block",
    ),
    Fault(
        Kind.CLUSTER,
        Program.CLUSTERED,
        "blocks do not wait until the mbarriers of others are set up",
        "drop_first_meeting",
    ),
    Fault(
        Kind.CLUSTER,
        Program.CLUSTERED,
        "a block ends while others arrive at its mbarriers",
        "drop_last_meeting",
    ),
)
