"""A user's request, as data: already parsed, not yet looked up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tuner import checks
from tuner.effort import EFFORTS, Effort
from tuner.errors import UsageError
from tuner.precision import ASKED, DRAWN
from tuner.request import target_text
from tuner.request.model_spec import ModelSpec
from tuner.request.setting import Setting, check, settings_of
from tuner.run_location import RunLocation
from tuner.source import Source
from tuner.task import SpaceSource

MAX_KERNELS = 4
"""The default for the number of kernels that serve all shapes of one program."""
UNTIL = 0.03
"""The default for the gain of another doubling of the trials below which a run ends."""
SHIPPED = "shipped"
"""The default for the base model: the one that comes with the tuner, if it has one for the CPU."""
DEVICE_WAIT_S = 600.0
"""The default for the time to wait for a machine that has room for a worker."""


def _read_target(value: Any) -> str:
    """The text as it was given, which a run that goes on has in its manifest."""
    text = target_text.target(value)
    return value.strip() if isinstance(value, str) else text


def _read_effort(value: Any) -> Effort:
    return value if isinstance(value, Effort) else EFFORTS[checks.one_of("effort", value, EFFORTS)]


def _read_strategy(value: Any) -> Source | str:
    return value if isinstance(value, Source) else checks.strategy(value)


def _read_space(value: Any) -> SpaceSource | str:
    if isinstance(value, SpaceSource):
        return value
    checks.code_name(value, "space")
    return str(value)


def _tell_efforts() -> str:
    told = (
        f"{name}: {e.trials_per_task} trials a task, {e.time_budget_s / 60:g} minutes"
        for name, e in EFFORTS.items()
    )
    return "; ".join(told) + "."


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """One request to tune a model. Each setting but the model has a flag of `tuner tune` and a
    keyword of `tuner.tune`; values may be given as they are typed.

    Attributes:
        fast_math: kernels are judged by bounds that allow for it; with `tf32` likewise.
        l2: `warm` is what the run before left, `cold` other data; None is `warm`, or what a run
            began with.
        trials: None is the effort's `trials_per_task` for each task.
        time_budget_s: see `limit_s` for None.
        until: share of the model's time.
        run: None is a new folder under `runs/`.
        strategy: `evolutionary`; `random` for replaying traces with random decisions, or
            `replay-function` for running anew what makes them; or what names a user's own, as in
            `layers`.
        base_model: `shipped` (the one that comes with the tuner), `none`, `auto` (the registered
            model of the target's family), a registered name, `NAME:VERSION`, or the path of a file.
        space: `FILE.py`, `FILE.py:NAME` or `package.module:NAME` (see `tuner.space`), or what such
            a file holds; None is everything that is known here.
        space_arguments: as JSON; empty is none.
        device_wait_s: None is `DEVICE_WAIT_S` where the cluster can start one, else no wait.
        layers: what is put in the place of a layer of ours, or beside it: the name of the layer, as
            in `tuner.layers.Layers`, and `FILE.py:NAME`, `package.module:NAME`, the name of an
            entry point, or the source of an object.

    Raises:
        UsageError: a value is invalid; nothing is opened, and no device is looked for.
    """

    model: ModelSpec
    target: Annotated[
        str,
        Setting(
            "--target",
            _read_target,
            "What to compile for; auto is what this machine, or the cluster, has.",
            "auto|llvm|cuda|JSON",
            words=("auto", *target_text.TARGET_KINDS),
        ),
    ] = "auto"
    only: Annotated[
        str | None,
        Setting(
            "--only",
            checks.nonempty,
            "Only the tasks whose name matches, for example 'conv2d*'.",
            "GLOB",
        ),
    ] = None
    measure: Annotated[
        str,
        Setting(
            "--measure",
            target_text.measure,
            "What to time kernels on; emulated runs a CUDA target's kernels on the CPU, and has"
            " times of a model's.",
            words=target_text.MEASURES,
        ),
    ] = target_text.MEASURES[0]
    fast_math: Annotated[
        bool,
        Setting(
            "--fast-math",
            None,
            "Compile CUDA kernels with nvcc's fast math, and judge them by bounds that allow for"
            " it.",
        ),
    ] = False
    tf32: Annotated[
        bool,
        Setting(
            "--tf32",
            None,
            "Multiply float32 in TF32 on a CUDA device's tensor cores where that is faster, and"
            " judge such products by bounds that allow for it.",
        ),
    ] = False
    precision: Annotated[
        str | None,
        Setting(
            "--precision",
            partial(checks.one_of, "precision", known=ASKED),
            "The types that products and convolutions, with their weights, have; all else stays as"
            " it is. Default: the model's own, or what the run began with.",
            words=ASKED,
        ),
    ] = None
    calibrate: Annotated[
        str | None,
        Setting(
            "--calibrate",
            checks.samples,
            "What rows of int8 are scaled by: inputs in a file, or drawn ones. Default: each tensor"
            " by its own largest number, when it runs.",
            "FILE.npz|drawn",
            words=(DRAWN,),
        ),
    ] = None
    max_error: Annotated[
        float | None,
        Setting(
            "--max-error",
            checks.share,
            "Refuse a precision whose relative error is larger.",
            "1%",
        ),
    ] = None
    l2: Annotated[
        str | None,
        Setting(
            "--l2",
            target_text.l2_policy,
            "What a timed run finds in a CUDA device's L2 cache: what the run before left there, or"
            " other data. Default: warm, or what the run began with.",
            words=target_text.L2_POLICIES,
        ),
    ] = None
    trials: Annotated[
        int | None,
        Setting(
            "--trials",
            checks.positive,
            "Total of the run, earlier sessions included. Default: the effort's, for each task.",
            "N",
        ),
    ] = None
    time_budget_s: Annotated[
        float | None,
        Setting(
            "--time-budget",
            checks.duration_s,
            "Wall time from when a trial can be measured. Default: the effort's, or what many"
            " --trials take.",
            "20m",
            keyword="time_budget",
        ),
    ] = None
    until: Annotated[
        float,
        Setting(
            "--until",
            checks.share,
            "End once twice as many trials are predicted to save less than this; 0 uses the whole"
            " budget.",
            "3%",
            default=f"{UNTIL:.0%}",
        ),
    ] = UNTIL
    effort: Annotated[
        Effort,
        Setting(
            "--effort",
            _read_effort,
            f"How much to spend where nothing else is said. {_tell_efforts()}",
            words=tuple(EFFORTS),
            default="normal",
        ),
    ] = EFFORTS["normal"]
    no_cut: Annotated[
        bool,
        Setting(
            "--no-cut",
            None,
            "Time every candidate to its end; else one much slower than the best is cut off.",
        ),
    ] = False
    run: Annotated[
        RunLocation | Path | str | None,
        Setting(
            "--run",
            RunLocation.of,
            "The run folder, or where several machines see it; one that exists is continued."
            " Default: a new one under runs/.",
            "DIR|URL",
        ),
    ] = None
    seed: Annotated[
        int, Setting("--seed", checks.seed, "Of everything random in the search.", "N")
    ] = 0
    strategy: Annotated[
        Source | str,
        Setting(
            "--strategy",
            _read_strategy,
            "How candidates are found; or a class of yours that does.",
            "|".join((*checks.STRATEGIES, "FILE.py:CLASS")),
            words=checks.STRATEGIES,
        ),
    ] = "evolutionary"
    space: Annotated[
        SpaceSource | str | None,
        Setting(
            "--space",
            _read_space,
            "What to search: a space declared in a Python file. Default: everything known here.",
            "FILE.py[:NAME]|MODULE:NAME",
            files=True,
        ),
    ] = None
    space_arguments: Annotated[
        str,
        Setting(
            "--space-arguments",
            checks.space_arguments,
            "What the space that is named is called with, as '{\"most\": 64}'.",
            "JSON",
        ),
    ] = ""
    base_model: Annotated[
        str,
        Setting(
            "--base-model",
            checks.nonempty,
            "What cost models begin with: the one that comes with the tuner, nothing, the"
            " registered one of the target's family, or another.",
            "shipped|none|auto|NAME|FILE",
            words=(SHIPPED, "none", "auto"),
        ),
    ] = SHIPPED
    seeds_from: Annotated[
        tuple[RunLocation | Path | str, ...],
        Setting(
            "--seeds-from",
            RunLocation.of,
            "A run whose best schedules of equal and similar tasks are tried first.",
            "DIR",
            repeated=True,
        ),
    ] = ()
    address: Annotated[
        str,
        Setting(
            "--address",
            checks.address,
            "The Ray cluster to use; local starts one on this machine's loopback.",
            "auto|local|HOST:PORT",
            words=("auto", "local"),
        ),
    ] = "auto"
    devices: Annotated[
        int | None,
        Setting(
            "--devices",
            checks.positive,
            "Devices to measure on, at most. Default: all that the cluster has or can start.",
            "N",
        ),
    ] = None
    device_wait_s: Annotated[
        float | None,
        Setting(
            "--device-wait",
            checks.duration_s,
            "How long to wait for a machine of the cluster that has such a device."
            f" Default: {DEVICE_WAIT_S / 60:g}m if the cluster starts one, else not at all.",
            "10m",
            keyword="device_wait",
        ),
    ] = None
    max_kernels: Annotated[
        int,
        Setting(
            "--max-kernels",
            checks.positive,
            "Kernels that may serve all shapes of one program with symbolic dimensions.",
            "N",
        ),
    ] = MAX_KERNELS
    import_check: Annotated[
        bool,
        Setting(
            "--no-import-check",
            None,
            "Do not compare the imported model with its source, or go on where they differ.",
        ),
    ] = True
    layers: tuple[tuple[str, Source | str], ...] = ()

    def __post_init__(self) -> None:
        for name, known in SETTINGS.items():
            self._set(name, known.check(getattr(self, name)))
        for name, given in self.layers:
            if not isinstance(given, Source):
                check(name, given, partial(checks.layer_name, name=name))
        if self.measure == "emulated":
            self._set("target", target_text.emulate(self.target))
        if self.fast_math:
            self._set("target", target_text.fast_math(self.target))
        if self.tf32:
            self._set("target", target_text.tf32(self.target))
        if self.l2 is not None:
            self._set("target", target_text.l2(self.target, self.l2))
        if self.no_cut:
            self._set("effort", self.effort.uncut)
        if self.space_arguments and not isinstance(self.space, str):
            raise UsageError("space_arguments: they are for a space that is named, not given")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def own_layers(self) -> tuple[tuple[str, Source | str], ...]:
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


SETTINGS = settings_of(TuneOptions)
"""The settings of a request, by the names of their fields."""
