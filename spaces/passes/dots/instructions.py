"""The instructions that add up a group of products in each lane of a vector.

`vdpbf16ps` of AVX512-BF16 adds two products of bfloat16 to a float32. Products are exact, as in
float32. Each of the two additions is rounded to the nearest once, as one of a fused multiply-add
is; but numbers that are subnormal (smaller than 2**-126) are read as zero, and sums that are come
out as zero. `vpdpbusd` of VNNI (of AVX-512, or AVX-VNNI) adds four products of an unsigned and a
signed byte to an int32, and does not saturate (Intel, "Intel 64 and IA-32 Architectures Software
Developer's Manual", VDPBF16PS and VPDPBUSD). Factors of a lane lie next to one another in 32 bits.

Where both factors are signed alike, the top bit of one of them is flipped, which shifts its numbers
by 128: see `spaces.passes.dots.row_sums`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite
from spaces.passes.bf16.tensors import BF16
from spaces.targets.cpu import GROUP, multiplies_bf16, multiplies_bytes

WORD = "int32"
SIGNED, UNSIGNED = "int8", "uint8"
_TOP_BITS = -0x7F7F7F80
_ONES = 0x01010101
_HALF = 128
_NAME = "tuner.pair_dots"
_SUMS = {BF16: "float32", SIGNED: "int32", UNSIGNED: "int32"}


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction for factors of two element types.

    Attributes:
        types: of the factors of a product, in order.
    """

    types: tuple[str, str]

    @property
    def terms(self) -> int:
        """Products that it adds up in a lane."""
        return 2 if self.of_halves else GROUP

    @property
    def of_halves(self) -> bool:
        """Whether it multiplies bfloat16."""
        return BF16 in self.types

    @property
    def alike(self) -> bool:
        """Whether both factors are bytes that are signed alike."""
        return not self.of_halves and self.types[0] == self.types[1]

    def is_on(self, target: Any) -> bool:
        """Whether an llvm target has it."""
        return multiplies_bf16(target) if self.of_halves else multiplies_bytes(target)

    def add(self, sums: Any, words: tuple[Any, Any], turned: int | None = None) -> Any:
        """A vector of sums with a group of products added to each.

        Args:
            words: for each factor a vector of 32 bits for each group.
            turned: the factor whose top bits are flipped, of two that are `alike`.
        """
        from tvm import tirx

        lanes = int(sums.ty.dtype.lanes)
        if self.of_halves:
            return tirx.call_pure_extern(str(sums.ty.dtype), f"{_NAME}.{lanes}", sums, *words)
        factors, signed = list(words), [kind == SIGNED for kind in self.types]
        if turned is not None:
            factors[turned] = factors[turned] ^ broadcast(_TOP_BITS, lanes)
            signed[turned] = not signed[turned]
        return add_bytes(sums, *(factors if signed[1] else factors[::-1]))

    @property
    def excess(self) -> int:
        """What turning adds to a product, as a multiple of the factor that is not turned."""
        return _HALF if self.types[0] == SIGNED else -_HALF


def find_dot(block: Any) -> Dot | None:
    """The instruction for the products that a block sums; None where there is none."""
    from tvm.ir import TensorLoad
    from tvm.tirx import Cast

    product = rewrite.find_product(block.body)
    if product is None:
        return None
    summed = str(block.body.buffer.dtype)
    factors = (product.a, product.b)
    if not all(isinstance(f, Cast) and isinstance(f.value, TensorLoad) for f in factors):
        return None
    first, second = (str(f.value.ty.dtype) for f in factors)
    wanted = {_SUMS.get(first), _SUMS.get(second), str(product.ty.dtype), summed}
    if len(wanted) != 1 or summed not in _SUMS.values():
        return None
    return Dot((first, second))


def add_bytes(sums: Any, unsigned: Any, signed: Any) -> Any:
    """A vector of int32 with four products of bytes added to each; these are words of 32 bits."""
    from tvm import tirx

    lanes = int(sums.ty.dtype.lanes)
    factors = [tirx.reinterpret(f"int8x{GROUP * lanes}", words) for words in (unsigned, signed)]
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return tirx.call_llvm_pure_intrin(f"{WORD}x{lanes}", name, sums, *factors)


def add_elements(sums: Any, words: Any, kind: str) -> Any:
    """A vector of int32 with four bytes added to each."""
    ones = broadcast(_ONES, int(sums.ty.dtype.lanes))
    return add_bytes(sums, ones, words) if kind == SIGNED else add_bytes(sums, words, ones)


def broadcast(word: Any, lanes: int) -> Any:
    """A vector of equal words."""
    from tvm import tirx

    return tirx.Broadcast(tirx.const(word, WORD) if isinstance(word, int) else word, lanes)


def write_code(lanes: int) -> str:
    """LLVM IR of the function that adds pairs of products of bfloat16, for so many sums.

    TVM has no bfloat16 in LLVM, and LLVM's intrinsic takes nothing else: the function, which is
    given 32 bits, is linked into the code, and inlined.
    """
    sums, words, pairs = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{lanes * 2} x bfloat>"
    intrinsic = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    return f"""
declare {sums} {intrinsic}({sums}, {pairs}, {pairs})
define {sums} @{_NAME}.{lanes}({sums} %sums, {words} %one, {words} %other) {{
  %a = bitcast {words} %one to {pairs}
  %b = bitcast {words} %other to {pairs}
  %result = call {sums} {intrinsic}({sums} %sums, {pairs} %a, {pairs} %b)
  ret {sums} %result
}}
"""
