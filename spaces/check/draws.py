"""Inputs for a task's program: seeded values that reveal errors, and that it can be run on.

There are two draws, of different values and sizes. The first is wide: integers of the whole range
of their type, so that a kernel that reads one with another sign or saturates is seen; floats beyond
the thresholds at which the program clips, and a few so large that rounding them to integers clips
them. The second is moderate, so that nothing is clipped. Both contain the edges: zeros, -0.0, the
smallest and largest values, and the program's own thresholds.

Inputs that a program must not get are ruled out: integers that index a tensor stay inside it,
integers that are divided by are positive, sums and products of 32 and 64 bits do not overflow (that
is undefined where they are signed). Floats that are divided by, or of which roots or logarithms are
taken, are positive. Integers that choose a matrix for each row, as in a mixture of experts, are
sorted as models give them; the wide draw has some out of order. The rest is found by trying: of
several ranges, widest first, the first that gives no NaN and no infinity is taken, or else the one
that gives the fewest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import rewrite, tvm_compat
from spaces.ir.accesses import find_written
from spaces.ir.byte_floats import SATURATING
from spaces.ir.element_types import is_float, limits_of, numpy_dtype

Array = npt.NDArray[Any]

_WIDE, _MODERATE, _SMALL_INTEGERS = 8.0, 1.0, 4
_POSITIVE = 0.1
_OUTLIER = 1e4
"""A float in a wide draw: past 255, where 8-bit values are clipped, at any scale below 39."""
_OUTLIERS = 2
_OUTLIER_TYPES = 1e30
"""Types whose largest value is below this get no outliers: their products would be infinite."""
_EDGE_SHARE = 4
"""At most one element in this many is an edge."""
_LARGEST_THRESHOLD = 1e30
"""A constant beyond this stands for infinity and is not taken for a threshold."""
_SHIFTS = 8
_ROOTS = ("sqrt", "rsqrt", "log", "log2", "log10", "pow")


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a tensor program.

    Attributes:
        written: whether the program stores to it: an output.
        bound: for integers that index tensors, the smallest extent they index; 0 for others.
        positive: whether it is divided by, or roots or logarithms are taken of it.
        most: for integers, the largest size with which nothing overflows.
        sorted: whether they say for each sum what it is read from.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    written: bool
    bound: int = 0
    positive: bool = False
    most: int = 0
    sorted: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """The range that values are drawn from.

    Attributes:
        size: the largest float.
        low: the smallest float, for arguments that need not be positive.
        integers: size of the largest integer; 0 is as large as the argument allows.
        outliers: whether some floats are far larger.
        shuffled: whether some of what is sorted is out of order.
    """

    size: float
    low: float
    integers: int = 0
    outliers: bool = False
    shuffled: bool = False


def ranges(function: Any) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """The ranges to try for the wide draw and for the moderate one, in order."""
    wide = max(_WIDE, 2 * max(_thresholds(function), default=0.0))
    few = _SMALL_INTEGERS
    last = (
        Range(_MODERATE, -_MODERATE, few),
        Range(_MODERATE, _POSITIVE, few),
    )
    first = (
        Range(wide, -wide, outliers=True, shuffled=True),
        Range(wide, -wide, shuffled=True),
        Range(_WIDE, -_WIDE, shuffled=True),
        Range(_WIDE, _POSITIVE, shuffled=True),
        *last,
    )
    return first, (Range(_MODERATE, -_MODERATE, 16), *last)


def draw(
    args: Sequence[Argument], seed: str, values: Range, thresholds: Sequence[float] = ()
) -> list[Array]:
    """Contents of every argument, outputs too."""
    digest = hashlib.sha256(seed.encode()).digest()
    random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return [_draw(arg, random, values, thresholds) for arg in args]


def _draw(
    arg: Argument, random: np.random.Generator, values: Range, thresholds: Sequence[float]
) -> Array:
    if is_float(arg.dtype):
        return _floats(arg, random, values, thresholds)
    dtype = numpy_dtype(arg.dtype)
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, arg.shape)).astype(dtype)
    low, high = _integer_limits(arg, values.integers)
    drawn = np.asarray(random.integers(low, high, arg.shape, endpoint=True))
    if arg.sorted:
        drawn = np.sort(drawn, axis=None).reshape(arg.shape)
        if values.shuffled:
            where = random.choice(drawn.size, drawn.size // (8 * _EDGE_SHARE), replace=False)
            drawn.reshape(-1)[np.sort(where)] = drawn.reshape(-1)[where]
    if not arg.bound:
        edges = (*_integer_limits(arg, 0), min(max(0, low), high), low, high)
        _place(drawn, dict.fromkeys(edges), random)
    return drawn.astype(dtype)


def limits(arg: Argument, values: Range) -> tuple[float, float]:
    """The smallest and the largest value that is drawn for an argument, edges aside."""
    if is_float(arg.dtype):
        return max(values.low, _POSITIVE) if arg.positive else values.low, values.size
    return (0, 1) if numpy_dtype(arg.dtype).kind == "b" else _integer_limits(arg, values.integers)


def _integer_limits(arg: Argument, size: int) -> tuple[int, int]:
    """The smallest and the largest value of an integer argument; a size of 0 is no limit."""
    if arg.bound:
        return 0, arg.bound - 1
    bits, unsigned = tvm_compat.element_bits(arg.dtype), arg.dtype.startswith("uint")
    most = (1 << bits) - 1 if unsigned else (1 << (bits - 1)) - 1
    least = 0 if unsigned else -most - 1
    if size and unsigned:
        size *= 2  # as many values as where half of them are negative
    size = min(size or arg.most, arg.most)
    return 1 if arg.positive else max(-size, least), min(size, most)


def _floats(
    arg: Argument, random: np.random.Generator, values: Range, thresholds: Sequence[float]
) -> Array:
    low = max(values.low, _POSITIVE) if arg.positive else values.low
    wide = np.float64 if arg.dtype == "float64" else np.float32
    drawn = np.asarray(random.random(arg.shape, dtype=wide) * wide(values.size - low) + wide(low))
    edges = [low, values.size]
    if low < 0:
        edges += [0.0, -0.0, *(sign * t for t in thresholds for sign in (1, -1))]
    _place(drawn, [e for e in edges if low <= e <= values.size], random)
    if values.outliers and float(limits_of(arg.dtype).max) > _OUTLIER_TYPES:
        signs = [_OUTLIER if i % 2 or arg.positive else -_OUTLIER for i in range(_OUTLIERS)]
        _place(drawn, signs, random)
    if arg.dtype in SATURATING:  # of which one has no infinity, and the other little room before it
        most = float(limits_of(arg.dtype).max)
        drawn = drawn.clip(-most, most)
    return drawn.astype(numpy_dtype(arg.dtype))


def _place(array: Array, edges: Iterable[Any], random: np.random.Generator) -> None:
    """Write values to random places, at most to one in `_EDGE_SHARE`."""
    chosen = list(edges)[: array.size // _EDGE_SHARE]
    where = random.choice(array.size, len(chosen), replace=False)
    array.reshape(-1)[where] = np.array(chosen, array.dtype)


def arguments(function: Any) -> tuple[Argument, ...]:
    """Parameters of a PrimFunc.

    Raises:
        ValueError: a parameter is no tensor, or its shape is not known.
    """
    program = _Program(function)
    written = find_written(function)
    bounds, positive, choosing = program.index_bounds(), program.positive(), program.choosing()
    found = []
    for i, param in enumerate(function.params):
        shape = tvm_compat.param_shape(param)
        if shape is None or not all(isinstance(n, int) for n in shape):
            raise ValueError(f"parameter {param.name} is no tensor of known shape")
        dims = tuple(int(n) for n in shape)
        dtype = tvm_compat.param_dtype(param)
        most = 0 if is_float(dtype) else program.largest_integer(tvm_compat.element_bits(dtype))
        told = (i in written, bounds.get(i, 0), i in positive, most, i in choosing)
        found.append(Argument(str(param.name), dims, dtype, *told))
    return tuple(found)


def divisors(function: Any) -> set[int]:
    """Positions of the parameters that hold integers which a PrimFunc divides by."""
    found = _Program(function).divisors()
    return {i for i in found if not is_float(tvm_compat.param_dtype(function.params[i]))}


def thresholds_of(function: Any) -> tuple[float, ...]:
    """Sizes of the floats that a program compares with, as the 6 of ReLU6: the largest two."""
    return tuple(sorted(set(_thresholds(function))))[-2:]


def _thresholds(function: Any) -> list[float]:
    """Sizes of the float constants that values are compared with.

    Only small ones in a program that multiplies or divides floats: their scale is not known then,
    and clipping all values would hide more than it shows.
    """
    from tvm import tirx
    from tvm.ir import Call

    found: list[float] = []
    scaled: list[Any] = []

    def compare(node: Any) -> None:
        for operand in (node.a, node.b):
            if isinstance(operand, tirx.FloatImm):
                found.append(abs(float(operand.value)))

    def scale(node: Any) -> None:
        if is_float(str(node.ty.dtype)):
            scaled.append(node)

    kinds = (tirx.Max, tirx.Min, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    _walk(function.body, (kinds, compare), ((tirx.Mul, tirx.Div, Call), scale))
    most = 2 * _WIDE if scaled else _LARGEST_THRESHOLD
    return [value for value in found if 0 < value <= most]


class _Program:
    """The uses of a program's parameters: as indices, divisors, under roots, in sums."""

    def __init__(self, function: Any) -> None:
        import tvm
        from tvm import tirx

        self._function = function
        self._stores: list[Any] = []
        self._indexed: list[tuple[Any, int]] = []

        def access(node: Any, buffer: Any) -> None:
            extents = map(tvm_compat.as_int, tvm_compat.param_dims(buffer) or ())
            self._indexed += [(i, n or 1) for i, n in zip(node.indices, extents, strict=False)]

        def store(node: Any) -> None:
            self._stores.append(node)
            access(node, node.buffer)

        loads = (tvm.ir.TensorLoad, lambda load: access(load, load.source))
        _walk(function.body, loads, (tirx.BufferStore, store))

    def index_bounds(self) -> dict[int, int]:
        """For each parameter whose elements index a tensor, directly or through other tensors, the
        smallest extent that they index."""
        bounds: dict[int, int] = {}
        shifts = [(shift, _SHIFTS) for shift in self._seconds("LShift", "RShift")]
        for index, extent in (*self._indexed, *shifts):
            for i in self._trace(_find_loads(index), lambda _: True):
                bounds[i] = min(extent, bounds.get(i, extent))
        return bounds

    def positive(self) -> set[int]:
        """Parameters that are divided by, or that roots or logarithms are taken of; through other
        tensors only where these are computed element by element, without calls."""
        return self.divisors() | self._behind(self._under_roots())

    def choosing(self) -> set[int]:
        """Parameters that say where a sum reads its terms, with one element for all of these."""
        tables: list[Any] = []
        for block in tvm_compat.sblocks(self._function):
            axes = [a.var for a in block.iter_vars if int(a.iter_type) == tvm_compat.REDUCED]
            indices = [i for load in _list_loads(block.body) for i in load.indices if axes]
            own = [table for index in indices for table in _list_loads(index)]
            tables += [table.source for table in own if not rewrite.uses(table, axes)]
        return {i for i, p in enumerate(self._function.params) if rewrite.is_among(p, tables)}

    def divisors(self) -> set[int]:
        """Parameters that are divided by, as in `positive`."""
        return self._behind(self._seconds("Div", "Mod", "FloorDiv", "FloorMod"))

    def _behind(self, values: Sequence[Any]) -> set[int]:
        found: set[int] = set()
        for value in values:
            if not _calls(value):
                found |= self._trace(_find_loads(value), self._is_elementwise)
        return found

    def largest_integer(self, bits: int) -> int:
        """The largest size of integers with which the longest sum of products of two does not
        overflow 32 bits, or their own type where that is wider. Where nothing is multiplied, there
        is room for a few more terms."""
        wide = max(bits, 32)
        if self._multiplies():
            return math.isqrt((1 << (wide - 2)) // self._terms())
        return (1 << (wide - 4)) // self._terms()

    def _terms(self) -> int:
        longest = 1
        for block in tvm_compat.sblocks(self._function):
            axes = [axis for axis in block.iter_vars if int(axis.iter_type) == tvm_compat.REDUCED]
            longest = max(longest, math.prod(tvm_compat.as_int(a.dom.extent) or 1 for a in axes))
        return longest

    def _multiplies(self) -> bool:
        from tvm.ir import Call
        from tvm.tirx import Mul

        found: list[Any] = []

        def look(node: Any) -> None:
            if not is_float(str(node.ty.dtype)):
                found.append(node)

        for store in self._stores:
            _walk(store.value, ((Mul, Call), look))
        return bool(found)

    def _under_roots(self) -> list[Any]:
        found: list[Any] = []
        for call in _calls(self._function.body):
            name = str(getattr(call.op, "name", "")).rpartition(".")[2]
            if name in _ROOTS and not (name == "pow" and _is_whole(call.args[1])):
                found.append(call.args[0])
        return found

    def _seconds(self, *kinds: str) -> list[Any]:
        """The right operands of all nodes of these kinds."""
        from tvm import tirx

        found: list[Any] = []
        looked_at = tuple(getattr(tirx, kind) for kind in kinds)
        _walk(self._function.body, (looked_at, lambda node: found.append(node.b)))
        return found

    def _trace(self, sources: Sequence[Any], passes: Callable[[Any], bool]) -> set[int]:
        """Positions of the parameters that tensors depend on, through stores `passes` accepts."""
        seen: list[Any] = []
        waiting = list(sources)
        while waiting:
            source = waiting.pop()
            if rewrite.is_among(source, seen):
                continue
            seen.append(source)
            made = [store for store in self._stores if store.buffer.same_as(source)]
            waiting += [t for store in made if passes(store) for t in _find_loads(store.value)]
        return {i for i, p in enumerate(self._function.params) if rewrite.is_among(p, seen)}

    def _is_elementwise(self, store: Any) -> bool:
        """Whether a store neither accumulates nor calls anything."""
        own = any(store.buffer.same_as(source) for source in _find_loads(store.value))
        return not own and not _calls(store.value)


def _is_whole(exponent: Any) -> bool:
    from tvm.tirx import FloatImm

    return isinstance(exponent, FloatImm) and float(exponent.value).is_integer()


def _calls(expression: Any) -> list[Any]:
    from tvm.ir import Call

    found: list[Any] = []
    _walk(expression, (Call, found.append))
    return found


def _find_loads(expression: Any) -> list[Any]:
    """The tensors that an expression reads."""
    return [load.source for load in _list_loads(expression)]


def _list_loads(expression: Any) -> list[Any]:
    from tvm.ir import TensorLoad

    found: list[Any] = []
    _walk(expression, (TensorLoad, found.append))
    return found


def _walk(node: Any, *visits: Any) -> None:
    import tvm_ffi

    tvm_ffi.structural_walk(node, list(visits))
