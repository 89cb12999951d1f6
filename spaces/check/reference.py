"""The reference of a task's program: seeded inputs, the unscheduled program's outputs, and bounds
on how far the outputs of a schedule may differ from them.

Programs are run on two draws (`spaces.check.draws`). Outputs start as garbage, so elements that a
schedule forgets to write are seen; only where the program itself lets old contents through do they
start as seeded data. The bound of an element follows from the sums and roundings on the way to it
(`spaces.check.error_bounds`); for programs with operations that are not known there it is

    eps * (32 + 8 * sqrt(K)) * (|want| + rms(want))

with `eps` of the coarsest float type that the program stores anything in, K the number of terms
that its reductions add up, and `rms` over the tensor. `spaces.check.compare` compares.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spaces.check.compare import difference
from spaces.check.draws import Argument, Array, arguments, draw, ranges, thresholds_of
from spaces.check.error_bounds import Bounded, with_bounds
from spaces.check.interchange import interchanged
from spaces.check.shadows import Unbounded
from spaces.ir import tvm_compat
from spaces.ir.element_types import eps_of, is_float, limits_of, numpy_dtype
from spaces.targets.target import parse_target, resolve_target
from tuner.errors import first_line

_log = logging.getLogger(__name__)
_FORMAT = 3
"""Part of a cached reference's file name: goes up when inputs, outputs or bounds change meaning."""
_AT_ONCE = 1 << 20
"""Elements whose bounds are computed at once: that takes many times their own memory."""


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs and the expected outputs of one draw.

    Attributes:
        arguments: arguments of the program, in order.
        initial: contents of each argument before the run; None is garbage.
        outputs: contents of the written arguments after the run, by position.
        bounds: the most that each element of these may differ by; None where it must be equal.
    """

    arguments: tuple[Argument, ...]
    initial: tuple[Array | None, ...]
    outputs: dict[int, Array]
    bounds: dict[int, Array | None]

    @property
    def size_bytes(self) -> int:
        """Memory of all arrays."""
        known = (*self.initial, *self.outputs.values(), *self.bounds.values())
        return sum(a.nbytes for a in known if a is not None)

    def fresh(self, position: int) -> Array:
        """Contents for an argument before a run."""
        known = self.initial[position]
        return garbage(self.arguments[position]) if known is None else known

    def wrong(self, position: int, got: Array) -> str | None:
        """The error of the output at a position, in one line; None if the output is right."""
        return difference(got, self.outputs[position], self.bounds[position])


@dataclass(frozen=True, slots=True)
class Reference:
    """The inputs and the expected outputs of a program.

    Attributes:
        cases: the wide draw and the moderate one.
    """

    arguments: tuple[Argument, ...]
    cases: tuple[Case, ...]

    @property
    def size_bytes(self) -> int:
        """Memory of all cases."""
        return sum(case.size_bytes for case in self.cases)


def reference(module: Any, seed: str, cache: Path | None = None) -> Reference:
    """The reference of a task's module, whose one function is "main".

    Args:
        seed: draws the inputs; a task's key.
        cache: folder that keeps outputs, so that another process need not compute them.

    Raises:
        ValueError: the program has a parameter that is no tensor of known shape.
    """
    function = module["main"]
    args = arguments(function)
    path = cache / f"reference-{_FORMAT}-{seed}.npz" if cache else None
    stored = _load(path, args) if path else None
    if stored is None:
        stored = _compute(module, args, seed)
        if path:
            _save(path, stored)
    thresholds = thresholds_of(function)
    cases = []
    for number, (tried, computed) in enumerate(zip(ranges(function), stored, strict=True)):
        initial = draw(args, f"{seed}/{number}", tried[computed.range], thresholds)
        kept = tuple(
            None if arg.written and not computed.keeps else data
            for arg, data in zip(args, initial, strict=True)
        )
        cases.append(Case(args, kept, computed.outputs, computed.bounds))
    return Reference(args, tuple(cases))


def garbage(argument: Argument) -> Array:
    """Contents that no program computes: NaN, or a bit pattern for integers."""
    dtype = numpy_dtype(argument.dtype)
    if is_float(argument.dtype):
        return np.full(argument.shape, math.nan, dtype)
    if dtype == np.bool_:
        return np.ones(argument.shape, dtype)
    raw = np.full(math.prod(argument.shape) * dtype.itemsize, 0x5A, np.uint8)
    return raw.view(dtype).reshape(argument.shape)


def relative_tolerance(function: Any, written: Sequence[int]) -> float:
    """The relative tolerance of a program with unknown errors, see the module.

    Args:
        written: positions of its outputs.
    """
    terms, dtypes = 0, [tvm_compat.param_dtype(function.params[i]) for i in written]
    for block in tvm_compat.sblocks(function):
        extents = [
            tvm_compat.known_int(axis.dom.extent) or 1
            for axis in block.iter_vars
            if int(axis.iter_type) == tvm_compat.REDUCED
        ]
        terms += math.prod(extents) if extents else 0
        dtypes += [tvm_compat.param_dtype(buffer) for buffer in block.alloc_buffers]
    eps = max((eps_of(dtype) for dtype in dtypes if is_float(dtype)), default=0.0)
    return eps * (32 + 8 * math.sqrt(terms))


@dataclass(frozen=True, slots=True)
class _Computed:
    """The results of one draw.

    Attributes:
        range: number of the range that was taken.
        keeps: whether old contents of outputs come through.
    """

    range: int
    keeps: bool
    outputs: dict[int, Array]
    bounds: dict[int, Array | None]


class _Program:
    """The unscheduled program, compiled, with bounds where they are known."""

    def __init__(self, module: Any, args: tuple[Argument, ...]) -> None:
        import tvm

        self.args = args
        # In an order of loops that does not take minutes; every sum still adds its terms in order.
        module = interchanged(module)
        written = [i for i, arg in enumerate(args) if arg.written]
        self._rtol = relative_tolerance(module["main"], written)
        self._bounded: Bounded | None = None
        try:
            bounded = with_bounds(module["main"], written)
            self._library = compiled(tvm.IRModule({"main": bounded.function}))
            self._bounded = bounded
        except (Unbounded, RuntimeError, TypeError, ValueError) as error:  # TVM's, of what it made
            _log.warning("errors are bounded coarsely: %s", first_line(error))
            self._library = compiled(module)

    def run(self, contents: Sequence[Array]) -> tuple[dict[int, Array], dict[int, Array | None]]:
        """Outputs and their bounds."""
        import tvm

        tensors = [tvm.runtime.tensor(data) for data in contents]
        extra = [tvm.runtime.tensor(data) for data in self._shadows(contents)]
        self._library["main"](*tensors, *extra)
        outputs = {i: tensors[i].numpy() for i, arg in enumerate(self.args) if arg.written}
        del tensors  # large tasks take many times the memory of their tensors as it is
        return outputs, self._bounds(outputs, [np.from_dlpack(tensor) for tensor in extra])

    def _shadows(self, contents: Sequence[Array]) -> list[Array]:
        """The shadows before a run, those of exact contents."""
        if self._bounded is None:
            return []
        made = []
        for i, shadow in self._bounded.shadows.items():
            for tensor in shadow.tensors:
                if tensor is shadow.exact:
                    made.append(contents[i].astype(self._bounded.wide))
                else:
                    made.append(np.zeros(contents[i].shape, self._bounded.wide))
        return made

    def _bounds(self, outputs: dict[int, Array], extra: list[Array]) -> dict[int, Array | None]:
        if self._bounded is None:
            return {i: self._coarse(output) for i, output in outputs.items()}
        bounds: dict[int, Array | None] = dict.fromkeys(outputs)
        for i, shadow in self._bounded.shadows.items():
            count = len(shadow.tensors)
            parts, extra = [tensor.reshape(-1) for tensor in extra[:count]], extra[count:]
            flat = outputs[i].reshape(-1)
            bound = np.empty(flat.shape, self._bounded.wide)
            for start in range(0, flat.size, _AT_ONCE):
                some = slice(start, start + _AT_ONCE)
                with np.errstate(all="ignore"):
                    total = flat[some].astype(self._bounded.wide)
                    told = shadow.bound(total, [part[some] for part in parts], np.sqrt, np.abs)
                told[np.isnan(told)] = np.inf
                bound[some] = told + _least(self.args[i].dtype)
            bounds[i] = bound.reshape(outputs[i].shape)
        return bounds

    def _coarse(self, output: Array) -> Array | None:
        if output.dtype.kind in "iub":
            return None
        size = np.abs(output.astype(np.float64))
        size[~np.isfinite(size)] = 0.0
        bound: Array = self._rtol * (size + math.sqrt(float(np.mean(np.square(size)))))
        return bound


def _least(dtype: str) -> float:
    """The error of numbers that are too small for a float type, whatever their value."""
    if not is_float(dtype):
        return 0.0
    limits = limits_of(dtype)
    # Formulas for vectors give no subnormals in float32, see `spaces.passes.arithmetic.fast_math`.
    flushed = limits.smallest_normal if dtype == "float32" else limits.smallest_subnormal
    return 2 * float(flushed)


def compiled(module: Any) -> Any:
    """Compile a module without a schedule for this machine's CPU with all its features; return a
    `tvm.runtime.Executable`.

    Only TVM's own passes run: none of those whose results this code judges.
    """
    import tvm

    return tvm.compile(module, target=parse_target(resolve_target("llvm")))


def _compute(module: Any, args: tuple[Argument, ...], seed: str) -> list[_Computed]:
    program = _Program(module, args)
    thresholds = thresholds_of(module["main"])
    found = []
    for case, tried in enumerate(ranges(module["main"])):
        best: _Computed | None = None
        fewest = math.inf
        for number, values in enumerate(tried):
            inputs = draw(args, f"{seed}/{case}", values, thresholds)
            keeps, outputs, bounds = _outputs(program, inputs)
            broken = sum(_broken(output) for output in outputs.values())
            if broken < fewest:
                best = _Computed(number, keeps, outputs, bounds)
            elif broken == fewest:
                break  # these are not finite whatever the range, as in a mask of -inf
            fewest = min(broken, fewest)
            if broken == 0:
                break
        assert best is not None
        found.append(best)
    return found


def _broken(output: Array) -> int:
    """The number of elements that are NaN or infinite."""
    return 0 if output.dtype.kind in "iub" else int((~np.isfinite(output)).sum())


def _outputs(
    program: _Program, inputs: Sequence[Array]
) -> tuple[bool, dict[int, Array], dict[int, Array | None]]:
    """Whether old contents of outputs come through a run, and one run's outputs and bounds."""
    args = program.args
    blank = [garbage(a) if a.written else data for a, data in zip(args, inputs, strict=True)]
    first, bounds = program.run(blank)
    if all(is_float(args[i].dtype) and np.isfinite(o).all() for i, o in first.items()):
        return False, first, bounds  # no NaN of the garbage is left
    second, bounds = program.run(inputs)
    same = all(_bits(first[i]) == _bits(second[i]) for i in first)
    return not same, second, bounds


def _bits(array: Array) -> bytes:
    """Contents for comparison; every NaN is the same."""
    if array.dtype.kind in "iub":
        return array.tobytes()
    exact = array.astype(np.float64)
    exact[np.isnan(exact)] = math.nan
    return exact.tobytes()


def _save(path: Path, computed: Sequence[_Computed]) -> None:
    """Write whole or not at all; an unwritable cache costs time and nothing else."""
    raw: dict[str, Array] = {"meta": np.array([[c.range, int(c.keeps)] for c in computed])}
    for case, known in enumerate(computed):
        for i, output in known.outputs.items():
            raw[f"output{case}-{i}"] = np.frombuffer(output.tobytes(), np.uint8)
        for i, bound in known.bounds.items():
            if bound is not None:
                raw[f"bound{case}-{i}"] = bound
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            try:
                np.savez(file, allow_pickle=False, **raw)
                os.replace(file.name, path)
            except OSError:  # a full disk, which must not stay full because of this file
                os.unlink(file.name)


def _load(path: Path, args: tuple[Argument, ...]) -> list[_Computed] | None:
    written = [(i, arg) for i, arg in enumerate(args) if arg.written]
    found = []
    try:
        with np.load(path, allow_pickle=False) as stored:
            for case, (number, keeps) in enumerate(stored["meta"]):
                outputs = {
                    i: stored[f"output{case}-{i}"].view(numpy_dtype(arg.dtype)).reshape(arg.shape)
                    for i, arg in written
                }
                bounds = {
                    i: stored[name].reshape(arg.shape)
                    if (name := f"bound{case}-{i}") in stored
                    else None
                    for i, arg in written
                }
                found.append(_Computed(int(number), bool(keeps), outputs, bounds))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    return found or None
