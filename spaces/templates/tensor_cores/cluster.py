"""Clusters: blocks of neighbouring tiles that copy for one another what they share (PTX ISA,
"Cluster of Cooperative Thread Arrays", "cp.async.bulk.tensor": `.multicast::cluster`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spaces.templates.products.grid import Part
from spaces.templates.thread_program import keep


@dataclass(frozen=True, slots=True)
class Share:
    """A block's share of the copies of a tile.

    Attributes:
        blocks: that share the tile; `number` the block's among them.
        mask: a bit for each of them, by their numbers in the cluster.
    """

    blocks: int
    number: Any
    mask: Any


class Cluster:
    """The blocks of so many tiles of A by so many of B. Those that differ in A share a tile of B,
    and the other way round.

    Args:
        T: TVM's script.
        a_blocks: along the tiles of A; `b_blocks` along those of B.
    """

    def __init__(self, T: Any, a_blocks: int, b_blocks: int) -> None:
        self._t, self._sizes = T, (a_blocks, b_blocks)
        self.blocks = a_blocks * b_blocks
        self._places: tuple[Any, Any] = (0, 0)

    def begin(self, clusters: Any, *, stores_tiles: bool) -> Any:
        """Write the grid of a kernel: so many clusters. Returns the number of a block's cluster.

        Args:
            stores_tiles: whether few threads ask where results lie.
        """
        T, (a_blocks, _) = self._t, self._sizes
        block = T.cta_id([clusters * self.blocks])
        if self.blocks == 1:
            return block
        number = T.cta_id_in_cluster([self.blocks])
        # TVM reads it anew at each use, by assembly, which takes no register while sums take all.
        # Where each thread stores many results by itself, nvcc has to see that it is the same.
        if not stores_tiles:
            number = block % self.blocks
        self._places = T.Bind(number % a_blocks), T.Bind(number // a_blocks)
        return T.Bind(block // self.blocks)

    def place(self, part: Part, is_open: bool) -> Part:
        """The block's part of its cluster's.

        Args:
            is_open: whether a size of the grid is.
        """
        if self.blocks == 1:
            return part
        a, b = (
            number * size + place
            for number, size, place in zip((part.a, part.b), self._sizes, self._places, strict=True)
        )
        if is_open:  # else nvcc computes where each result lies ahead of the sums
            a, b = keep(self._t, [a, b])
        return replace(part, a=a, b=b)

    def share(self, side: int) -> Share:
        """The block's share of a tile of A, or of B."""
        T, (a_blocks, b_blocks) = self._t, self._sizes
        a, b = self._places
        along_a = sum(1 << number for number in range(a_blocks))
        along_b = sum(1 << number * a_blocks for number in range(b_blocks))
        mask = (along_b << a, along_a << b * a_blocks)[side]
        return Share(self._sizes[1 - side], (b, a)[side], T.Cast("uint16", mask))

    def arrive(self, thread: Any, barrier: Any) -> None:
        """Arrive at a barrier of each block, once for all threads that count together: what they
        read may be written anew.

        Args:
            thread: its number among them; each block is another one's.
        """
        T = self._t
        if self.blocks == 1:
            with T.If(thread == 0), T.Then():
                T.evaluate(T.ptx.mbarrier.arrive.shared.b64(barrier, T.uint32(1)))
            return
        # Nothing that threads wrote is given away. Of a release in the cluster's scope the compiler
        # makes a fence for the whole device (`MEMBAR.ALL.GPU`), in each step.
        arrive = T.ptx["mbarrier.arrive.shared::cluster.b64"]
        with T.If(thread < self.blocks), T.Then():
            there = T.alloc_buffer((1,), "uint32", scope="local")
            own = T.cuda.cvta_generic_to_shared(barrier)
            number = T.Cast("uint32", thread)
            T.evaluate(T.ptx["mapa.shared::cluster.u32"](there[0], own, number))
            T.evaluate(arrive(there[0], T.uint32(1)))

    def meet(self) -> None:
        """Wait for all threads of the cluster, or of the block where that is alone: blocks begin to
        use each other's mbarriers, which are set up and fenced."""
        if self.blocks == 1:
            self._t.evaluate(self._t.cuda.cta_sync())
        else:
            self._meet_others()

    def end(self) -> None:
        """Wait for all threads of the cluster: others use a block's mbarriers until then. Each kind
        of threads does so at a place of its own: where they first come together, nvcc has products
        wait for one another (`C7514`)."""
        if self.blocks > 1:
            self._meet_others()

    def _meet_others(self) -> None:
        """See PTX ISA, "barrier.cluster". As above, nothing that threads wrote is given away."""
        T = self._t
        T.evaluate(T.ptx["barrier.cluster.arrive.relaxed"]())
        T.evaluate(T.ptx["barrier.cluster.wait.acquire"]())
