"""cp.async.bulk.tensor: boxes of tensors, swizzled, with zeros where there is no tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.spaces.emulation.instructions.memory.barriers import called
from tests.spaces.emulation.instructions.program import (
    Array,
    Arrays,
    Program,
    TensorMap,
    filled,
    kernel,
)
from tests.spaces.emulation.instructions.swizzle import place, swizzle

_SECTION = (
    "PTX ISA 9.1, 9.7.9.27.1.2 cp.async.bulk.tensor,"
    " 5.5 Tensors (tiled mode, 5.5.7 Swizzling Modes)"
)
_TYPES = {"float16": np.float16, "float32": np.float32, "tfloat32": np.float32, "uint8": np.uint8}


@dataclass(frozen=True, slots=True)
class _Box:
    """Boxes of a tensor. Sizes and coordinates go from the innermost dimension outwards.

    A box begins at a multiple of 16 bytes of a row: elsewhere an H100 answers with an illegal
    instruction, which the manual does not say.
    """

    name: str
    shape: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[tuple[int, ...], ...]
    swizzle_bytes: int = 0
    dtype: str = "float16"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(np.dtype(_TYPES[self.dtype]).itemsize)

    @property
    def bytes(self) -> int:
        """Of one box."""
        return int(np.prod(self.box)) * self.itemsize

    @property
    def room(self) -> int:
        """Bytes of shared memory for one box: the swizzle's pattern begins anew at each."""
        return -(-self.bytes // 1024) * 1024

    def map(self, buffer: int) -> TensorMap:
        """The tensor is packed, and each of its rows a multiple of 16 bytes."""
        strides, size = [], self.itemsize
        for extent in self.shape[:-1]:
            size *= extent
            strides.append(size)
        return TensorMap(
            buffer, self.dtype, self.shape, tuple(strides), self.box, self.swizzle_bytes
        )

    def parts(self) -> list[tuple[slice, ...]]:
        """Where each box is in a tensor with a margin of one box on all sides; numpy's order."""
        return [
            tuple(
                slice(start + size, start + 2 * size)
                for start, size in reversed(list(zip(at, self.box, strict=True)))
            )
            for at in self.at
        ]

    def padded(self, tensor: Array) -> Array:
        """The tensor with zeros around it: a box of them on all sides."""
        return np.pad(tensor, [(size, size) for size in reversed(self.box)])

    def addresses(self) -> Array:
        """Where each byte of a box lies in shared memory, in the order of its elements."""
        return swizzle(np.arange(self.bytes), self.swizzle_bytes)

    def random(self, rng: np.random.Generator) -> Array:
        """A tensor without zeros; where copies round, of any bits, NaN and infinities too."""
        dims = tuple(reversed(self.shape))
        if self.dtype == "tfloat32":
            return rng.integers(0, 1 << 32, dims, np.uint32).view(np.float32)
        return rng.integers(1, 256, dims).astype(_TYPES[self.dtype])

    def rounded(self, tensor: Array) -> Array:
        """What copies make of its elements: TF32's 11 bits, to the nearest, ties to even; not of
        what is no number (https://github.com/triton-lang/triton/pull/11751, on a device)."""
        if self.dtype != "tfloat32":
            return tensor
        bits = tensor.view(np.uint32).astype(np.uint64)
        near = (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000
        found = np.where(bits & 0x7F800000 == 0x7F800000, bits, near)
        return found.astype(np.uint32).view(np.float32)


_BOXES = [
    *(
        _Box(
            f"2d.swizzle-{s}",
            shape=(72, 21),
            box=(s // 2, 8),
            at=((0, 0), (8, 11), (72 - s // 4, 3), (-8, -3), (40, 17)),
            swizzle_bytes=s,
        )
        for s in (32, 64, 128)
    ),
    _Box(
        "2d.no-swizzle",
        shape=(72, 21),
        box=(24, 5),
        at=((0, 0), (8, 11), (56, 3), (-8, -2), (72, 0)),
    ),
    _Box(
        "2d.float32.swizzle-128",
        shape=(36, 10),
        box=(32, 8),
        at=((0, 0), (12, 5)),
        swizzle_bytes=128,
        dtype="float32",
    ),
    _Box("2d.tfloat32.swizzle-128", (36, 10), (32, 8), ((0, 0), (12, 5)), 128, "tfloat32"),
    _Box("2d.uint8.swizzle-64", (80, 12), (64, 4), ((0, 0), (32, 10)), 64, "uint8"),
    _Box("1d", shape=(200,), box=(64,), at=((0,), (152,), (-32,))),
    _Box("3d.no-swizzle", (24, 5, 4), (16, 3, 2), ((0, 0, 0), (8, 3, 3), (-8, -1, -1))),
    _Box("3d.swizzle-128", (72, 6, 3), (64, 4, 2), ((0, 0, 0), (16, 4, 2)), 128),
    _Box("4d.no-swizzle", (16, 3, 4, 2), (8, 2, 2, 2), ((0, 0, 0, 0), (8, 2, 3, 1))),
]


def _load(box: _Box, mode: str = "", space: str = "cluster") -> Program:
    """All boxes, one after the other, through one barrier."""
    rank = len(box.shape)
    coordinates = ", ".join(f"%{2 + i}" for i in range(rank))
    values = ", ".join(f'"r"(at[round * {rank} + {i}])' for i in range(rank))
    body = f"""
  extern __shared__ __align__(1024) uint8_t tile[];
  uint64_t* bar = (uint64_t*)(tile + {box.room});
  if (threadIdx.x == 0) {{
    init(bar, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  }}
  __syncthreads();
  for (int round = 0; round < {len(box.at)}; ++round) {{
    for (int i = threadIdx.x; i < {box.room}; i += 64) tile[i] = 0xff;
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    __syncthreads();
    if (threadIdx.x == 0) {{
      arrive_expect_tx(bar, {box.bytes});
      asm volatile("cp.async.bulk.tensor.{rank}d.shared::{space}.global{mode}"
        ".mbarrier::complete_tx::bytes [%0], [%1, {{{coordinates}}}], [%{2 + rank}];"
        : : "r"((unsigned int)__cvta_generic_to_shared(tile)), "l"(&map), {values},
            "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
    }}
    wait(bar, round % 2);
    for (int i = threadIdx.x; i < {box.room}; i += 64) out[round * {box.room} + i] = tile[i];
    __syncthreads();
  }}"""

    def expect(tensor: Array, _at: Array) -> Arrays:
        around = box.padded(box.rounded(tensor))
        tiles = [np.ascontiguousarray(around[part]).view(np.uint8).ravel() for part in box.parts()]
        return [np.stack([place(tile, box.addresses(), box.room) for tile in tiles])]

    return Program(
        name=f"cp.async.bulk.tensor.{box.name}{mode}{'' if space == 'cluster' else '.cta'}",
        section=_SECTION,
        source=_kernel("const void*, const int* at, uint8_t* out", body),
        make=lambda rng: [box.random(rng), np.array(box.at, np.int32)],
        expect=expect,
        block=(64, 1, 1),
        shared_bytes=box.room + 8,
        arch="sm_90a",
        tensor_maps=(box.map(0),),
    )


def _store(box: _Box) -> Program:
    """Boxes that do not overlap go out; what would lie outside of the tensor is not written.

    A store must not begin outside (9.7.9.27.1.1 Restriction on Tensor Copy instructions).
    """
    rank = len(box.shape)
    coordinates = ", ".join(f"%{1 + i}" for i in range(rank))
    values = ", ".join(f'"r"(at[round * {rank} + {i}])' for i in range(rank))
    body = f"""
  extern __shared__ __align__(1024) uint8_t tile[];
  for (int round = 0; round < {len(box.at)}; ++round) {{
    for (int i = threadIdx.x; i < {box.room}; i += 64) tile[i] = in[round * {box.room} + i];
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    __syncthreads();
    if (threadIdx.x == 0) {{
      asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"
        " [%0, {{{coordinates}}}], [%{1 + rank}];"
        : : "l"(&map), {values}, "r"((unsigned int)__cvta_generic_to_shared(tile)) : "memory");
      asm volatile("cp.async.bulk.commit_group;");
      asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
    }}
    __syncthreads();
  }}"""

    def make(rng: np.random.Generator) -> Arrays:
        images = rng.integers(0, 120, (len(box.at), box.room), np.uint8)
        return [images, np.array(box.at, np.int32)]

    def expect(images: Array, _at: Array) -> Arrays:
        tensor = filled(box.random(np.random.default_rng(0)))
        around = box.padded(tensor)
        for image, part in zip(images, box.parts(), strict=True):
            tile = np.ascontiguousarray(image[box.addresses()]).view(tensor.dtype)
            around[part] = tile.reshape(tuple(reversed(box.box)))
        inner = tuple(slice(size, -size) for size in reversed(box.box))
        return [np.ascontiguousarray(around[inner])]

    return Program(
        name=f"cp.async.bulk.tensor.store.{box.name}",
        section=_SECTION,
        source=_kernel("const uint8_t* in, const int* at, void*", body),
        make=make,
        expect=expect,
        block=(64, 1, 1),
        shared_bytes=box.room,
        arch="sm_90a",
        tensor_maps=(box.map(2),),
    )


def _kernel(parameters: str, body: str) -> str:
    return kernel(
        f"const __grid_constant__ CUtensorMap map, {parameters}",
        body,
        threads=64,
        before=f"#include <cuda.h>\n{called(body)}",
    )


_STORED = [
    _Box("2d.no-swizzle", (72, 21), (24, 5), ((0, 0), (32, 11), (56, 3), (0, 18))),
    _Box("2d.swizzle-128", (72, 21), (64, 8), ((0, 0), (24, 17)), 128),
    _Box("2d.swizzle-64", (72, 21), (32, 8), ((0, 0), (56, 17)), 64),
    _Box("2d.swizzle-32", (72, 21), (16, 8), ((0, 0), (64, 17)), 32),
    _Box("3d.no-swizzle", (24, 5, 4), (16, 3, 2), ((0, 0, 0), (16, 3, 3))),
]


def programs() -> list[Program]:
    """All of them."""
    return [
        *(_load(box) for box in _BOXES),
        _load(_BOXES[2], mode=".tile"),
        _load(_BOXES[2], space="cta"),
        *(_store(box) for box in _STORED),
    ]
