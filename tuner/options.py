"""A user's request, as data: already parsed, not yet looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tuner import checks
from tuner.effort import EFFORTS, Effort
from tuner.errors import UsageError
from tuner.run_location import RunLocation
from tuner.source import Source
from tuner.task import Shapes, SpaceSource

MAX_KERNELS = 4
"""The default for the number of kernels that serve all shapes of one program."""
UNTIL = 0.03
"""The default for the gain of another doubling of the trials below which a run ends."""
SHIPPED = "shipped"
"""The default for the base model: the one that comes with the tuner, if it has one for the CPU."""
DEVICE_WAIT_S = 600.0
"""The default for the time to wait for a machine that has room for a worker."""
_SHOWN = 60
"""The number of characters of a refused value that a message shows."""


@dataclass(frozen=True, slots=True)
class IntRange:
    """Integers to draw an input from, both ends included.

    Raises:
        UsageError: the ends are not integers, or `low` is above `high`.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        checks.integers("NAME", self.low, self.high, f"int:{self}")

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class InputArray:
    """The value of an input, from memory.

    Attributes:
        npy: bytes of a `.npy` file with it: arrays themselves can be neither compared nor hashed.
    """

    npy: bytes = field(repr=False)

    def __str__(self) -> str:
        return "the array"


InputValue = Path | IntRange | InputArray


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model, with the values of its dynamic shapes and free arguments.

    Attributes:
        source: `model.onnx`, `model.pt2`, `path.py:function` or `package.module:function`.
        shapes: shape of each input that the model leaves dynamic.
        inputs: values of inputs: a file, an array, or a range of integers to draw from.
        args: keyword arguments for a function that makes the model.
        dims: sizes of each dimension that stays symbolic, ascending.
        weights: file with the weight of each shape, or the weights; None weighs all shapes alike.
        program: the model itself where it came from memory, a `spaces.frontends.model.Model`;
            `source` is then only what people call it.

    Raises:
        UsageError: a value is invalid, or a name is given twice; nothing is opened.
    """

    source: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    inputs: tuple[tuple[str, InputValue], ...] = ()
    args: tuple[tuple[str, str | int | float], ...] = ()
    dims: tuple[tuple[str, tuple[int, ...]], ...] = ()
    weights: Path | Shapes | None = None
    program: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check("source", self.source, checks.nonempty)
        _pairs("shapes", self.shapes, _check_shape, _sizes)
        _pairs("inputs", self.inputs, _check_input, _input_text)
        _pairs("args", self.args, _check_argument, str)
        _pairs("dims", self.dims, _check_dimension, _sizes)
        if isinstance(self.weights, str | Path):
            _check("weights", str(self.weights), checks.nonempty)


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """One request to tune a model.

    Attributes:
        target: `auto`, `llvm`, `cuda`, or the JSON of a TVM target.
        measure: what kernels are timed on: `device`, or `emulated`, which makes `target`, a CUDA
            target, the emulated device.
        fast_math: whether kernels for `target`, a CUDA target, are compiled with nvcc's fast math,
            and judged by bounds that allow for it.
        l2: what a timed run finds in the L2 cache of `target`, a CUDA target: `warm` is what the
            run before left, `cold` other data; None is `warm`, or what a run began with.
        trials: total of the run; None is the effort's `trials_per_task` for each task.
        time_budget_s: wall time from when a trial can be measured; see `limit_s` for None.
        until: the run ends once twice as many trials are predicted to save less than this share of
            the model's time; 0 uses the whole budget.
        only: glob on task names; None is all of them.
        run: the run folder, or the URL of a run that several machines see (see
            `tuner.runs.remote`); None is a new folder under `runs/`.
        address: `auto`, `local` or `HOST:PORT` of a Ray cluster.
        strategy: `evolutionary`; `random` for replaying traces with random decisions, or
            `replay-function` for running anew what makes them; or what names a user's own, as in
            `layers`.
        base_model: what cost models begin with: `shipped` (the one that comes with the tuner),
            `none`, `auto` (the registered model of the target's family), a registered name,
            `NAME:VERSION`, or the path of a file.
        seeds_from: other runs whose best schedules of equal and similar tasks are tried first.
        max_kernels: most kernels that may serve the shapes of one program.
        devices: most devices to measure on; None is all that the cluster has or can start.
        space: what to search: `FILE.py`, `FILE.py:NAME` or `package.module:NAME` (see
            `tuner.space`), or what such a file holds; None is everything that is known here.
        space_arguments: the arguments with which the space that is named is called, where it is a
            function that gives one, as JSON (a dictionary is made that); empty is none.
        layers: what is put in the place of a layer of ours, or beside it: the name of the layer, as
            in `tuner.layers.Layers`, and `FILE.py:NAME`, `package.module:NAME`, the name of an
            entry point, or the source of an object.
        import_check: whether the imported model is compared with its source.
        device_wait_s: time to wait for a machine with a device; None is `DEVICE_WAIT_S` where the
            cluster can start one, else no wait.

    Raises:
        UsageError: a value is invalid; nothing is opened, and no device is looked for.
    """

    model: ModelSpec
    target: str = "auto"
    trials: int | None = None
    time_budget_s: float | None = None
    effort: Effort = EFFORTS["normal"]
    until: float = UNTIL
    only: str | None = None
    run: RunLocation | Path | str | None = None
    seed: int = 0
    address: str = "auto"
    strategy: Source | str = "evolutionary"
    base_model: str = SHIPPED
    seeds_from: tuple[RunLocation | Path | str, ...] = ()
    max_kernels: int = MAX_KERNELS
    devices: int | None = None
    import_check: bool = True
    device_wait_s: float | None = None
    space: SpaceSource | str | None = None
    space_arguments: str = ""
    layers: tuple[tuple[str, Source | str], ...] = ()
    measure: str = "device"
    fast_math: bool = False
    l2: str | None = None

    def __post_init__(self) -> None:
        _check("target", self.target, checks.target)
        object.__setattr__(self, "target", self.target.strip())
        _check("measure", self.measure, checks.measure)
        if self.measure == "emulated":
            object.__setattr__(self, "target", checks.emulated(self.target))
        if self.fast_math:
            object.__setattr__(self, "target", checks.fast_math(self.target))
        _check("l2", self.l2, checks.l2_policy, optional=True)
        if self.l2 is not None:
            object.__setattr__(self, "target", checks.l2(self.target, self.l2))
        _check("trials", self.trials, _positive, optional=True)
        _check("time_budget_s", self.time_budget_s, _duration, optional=True)
        _check("until", self.until, checks.share)
        _check("effort", self.effort, _check_effort)
        _check("only", self.only, checks.nonempty, optional=True)
        _check("run", self.run, RunLocation.of, optional=True)
        _check("seed", self.seed, lambda seed: checks.whole(seed, at_least=0))
        _check("address", self.address, checks.address)
        object.__setattr__(self, "address", self.address.strip())
        _check("strategy", self.strategy, _check_strategy)
        for name, given in self.layers:
            if not isinstance(given, Source):
                _check(name, given, partial(checks.layer_name, name=name))
        _check("base_model", self.base_model, checks.nonempty)
        for other in self.seeds_from:
            _check("seeds_from", other, RunLocation.of)
        _check("max_kernels", self.max_kernels, _positive)
        _check("devices", self.devices, _positive, optional=True)
        _check("device_wait_s", self.device_wait_s, _duration, optional=True)
        _check("space", self.space, _check_space, optional=True)
        _check("space_arguments", self.space_arguments, checks.space_arguments)
        canonical = checks.space_arguments(self.space_arguments)
        object.__setattr__(self, "space_arguments", canonical)
        if self.space_arguments and not isinstance(self.space, str):
            raise UsageError("space_arguments: they are for a space that is named, not given")

    @property
    def replaced(self) -> tuple[tuple[str, Source | str], ...]:
        """`layers`, and the strategy if it is a user's own."""
        if self.strategy in checks.STRATEGIES:
            return self.layers
        return (("strategy", self.strategy), *self.layers)

    @property
    def limit_s(self) -> float:
        """Wall time after which the run ends, whatever was done.

        The user's `time_budget_s`, or the effort's. If the user asked for more trials than the
        effort has for a task, and named no time, the effort's grows in proportion, as a guard only.
        """
        if self.time_budget_s is not None:
            return self.time_budget_s
        asked = (self.trials or 0) / self.effort.trials_per_task
        return self.effort.time_budget_s * max(1.0, asked)

    @property
    def finalists_s(self) -> float:
        """The most of `limit_s` that finalists may take; more trials do not raise it."""
        return self.effort.finalist_share * (self.time_budget_s or self.effort.time_budget_s)


def _check(
    field: str, value: object, check: Callable[[Any], object], *, optional: bool = False
) -> None:
    """Check a field; the error of a refused value names the field."""
    if optional and value is None:
        return
    try:
        check(value)
    except UsageError as error:
        raise UsageError(f"{field}={repr(value)[:_SHOWN]}: {error}") from error


def _pairs(
    field: str,
    pairs: Iterable[tuple[str, Any]],
    check: Callable[[str, Any, str], object],
    text: Callable[[Any], str],
) -> None:
    """Check each pair of a name and a value, shown as a user types it: `x=1,3`."""
    shown = []
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise UsageError(f"{field}: {checks.short(pair)} is no pair of a name and its value")
        name, value = pair
        shown.append((name, f"{name}={text(value)}"))
        try:
            check(name, value, shown[-1][1])
        except UsageError as error:
            raise UsageError(f"{field}: {error}") from error
    try:
        checks.each_once(shown)
    except UsageError as error:
        raise UsageError(f"{field}: {error}") from error


def _sizes(sizes: Any) -> str:
    return ",".join(map(str, sizes)) if isinstance(sizes, Iterable) else str(sizes)


def _input_text(value: Any) -> str:
    return f"int:{value}" if isinstance(value, IntRange) else str(value)


def _check_shape(name: str, sizes: Any, shown: str) -> None:
    checks.extents(name, _listed(sizes), shown)


def _check_dimension(name: str, sizes: Any, shown: str) -> None:
    listed = _listed(sizes)
    if listed != list(checks.dimension(name, listed, shown)):
        raise UsageError(f"{shown!r} is not in order: give each size once, the smallest first")


def _listed(sizes: Any) -> list[Any]:
    return list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str) else []


def _check_input(name: str, value: Any, shown: str) -> None:
    if isinstance(value, IntRange):
        checks.integers(name, value.low, value.high, shown)
    elif isinstance(value, InputArray):
        checks.input_name(name, shown)
    else:
        checks.array_file(name, value, shown)


def _check_argument(name: str, value: Any, shown: str) -> None:
    checks.argument(name, shown)
    if not isinstance(value, str | int | float):
        raise UsageError(f"{shown!r} is not an argument: its value is no text and no number")


def _check_effort(effort: Any) -> None:
    if not isinstance(effort, Effort):
        name = checks.one_of("effort", effort, EFFORTS)
        raise UsageError(f"it is a name: give tuner.effort.EFFORTS[{name!r}]")


def _check_space(value: Any) -> None:
    if not isinstance(value, SpaceSource):
        checks.code_name(value, "space")


def _check_strategy(value: Any) -> None:
    if not isinstance(value, Source):
        checks.strategy(value)


def _positive(number: Any) -> None:
    checks.whole(number, at_least=1)


def _duration(value_s: Any) -> None:
    checks.seconds(value_s, f"{value_s}s")
