"""What a test of an instruction is: a small CUDA program, its inputs, and what it must give.

What it must give is computed with numpy from the definition that `section` names, and from nothing
that emulates the instruction. The same programs run on a device (`benchmarks.gpu.instructions`) and
on the emulated one, which is plugged in as a `RunProgram`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = list[Array]
Dim3 = tuple[int, int, int]

SEED = 39
"""Of the inputs, everywhere: what one place saves is compared in another."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The arguments of cuTensorMapEncodeTiled for one of a program's buffers.

    Sizes go from the innermost dimension outwards, as there; `shape` and `box` count elements,
    `strides_bytes` has none for the innermost. `swizzle_bytes` is 0, 32, 64 or 128. Elements
    follow each other (element strides of 1), what lies outside reads as zero. Of "tfloat32" copies
    round float32 to TF32.
    """

    buffer: int
    dtype: str
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel that shows what one instruction does.

    Its parameters are the tensor maps (`const __grid_constant__ CUtensorMap`), then one pointer for
    each input, then one for each output.

    Attributes:
        name: as PTX or CUDA spell the instruction, with what is special; the kernel's name is the
            same with `_` for what C does not take.
        section: where its definition is: the manual, number and title.
        source: CUDA C with all its includes; `KERNEL` stands for the kernel's name.
        make: draws the inputs.
        expect: the outputs, from the inputs. Where it writes nothing, outputs keep `fill`.
        arch: the oldest architecture that has it.
        fast_math: compiled with --use_fast_math.
        allow: the greatest absolute difference for each element of each output; without it all
            bits must agree, but for those of a NaN in a floating-point output.
        fill: byte that all outputs hold before.
    """

    name: str
    section: str
    source: str
    make: Callable[[np.random.Generator], Arrays]
    expect: Callable[..., Arrays]
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (32, 1, 1)
    shared_bytes: int = 0
    arch: str = "sm_80"
    fast_math: bool = False
    tensor_maps: tuple[TensorMap, ...] = ()
    allow: Callable[..., Arrays] | None = None
    fill: int = 0xFF

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return "i_" + re.sub(r"\W", "_", self.name)

    @property
    def code(self) -> str:
        """The source, with the kernel's name in its place."""
        return self.source.replace("KERNEL", self.kernel)

    def inputs(self) -> Arrays:
        """The same at each call."""
        return self.make(np.random.default_rng(SEED))

    def outputs(self) -> Arrays:
        """Arrays for the outputs, filled."""
        return [filled(array, self.fill) for array in self.expect(*self.inputs())]


class RunProgram(Protocol):
    """Runs one kernel: on a device, or on what plays one."""

    def __call__(
        self,
        source: str,
        kernel: str,
        *,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        buffers: Sequence[Array],
        tensor_maps: Sequence[TensorMap] = (),
        fast_math: bool = False,
    ) -> Arrays:
        """All buffers as they are afterwards; those given are left as they were.

        The kernel's parameters are the tensor maps, then a pointer to each buffer. Raises on
        whatever keeps the kernel from its end.
        """


def run_on(device: RunProgram, program: Program) -> Arrays:
    """What the program's outputs hold after it ran there."""
    inputs = program.inputs()
    after = device(
        program.code,
        program.kernel,
        grid=program.grid,
        block=program.block,
        shared_bytes=program.shared_bytes,
        buffers=[*inputs, *program.outputs()],
        tensor_maps=program.tensor_maps,
        fast_math=program.fast_math,
    )
    return after[len(inputs) :]


def filled(like: Array, fill: int = 0xFF) -> Array:
    """An array of the same shape and type, each byte of it `fill`."""
    return np.full(like.nbytes, fill, np.uint8).view(like.dtype).reshape(like.shape)


def kernel(
    parameters: str,
    body: str,
    *,
    threads: int = 32,
    blocks: int = 0,
    cluster: int = 1,
    before: str = "",
) -> str:
    """CUDA C of a kernel called KERNEL.

    Args:
        before: includes and functions; those of standard integers are there.
        threads, blocks: of a block, and least of a multiprocessor, for its launch bounds.
        cluster: blocks of a cluster.
    """
    bounds = (
        f"__launch_bounds__({threads}, {blocks})" if blocks else f"__launch_bounds__({threads})"
    )
    if cluster > 1:
        bounds += f" __cluster_dims__({cluster}, 1, 1)"
    return (
        f"#include <cstdint>\n{before}\n"
        f'extern "C" __global__ void {bounds} KERNEL({parameters}) {{\n'
        f"{body}\n}}\n"
    )
