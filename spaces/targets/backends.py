"""One row for each kind of target: all that the rest of the program asks of a kind.

Nobody else compares kinds. To add one, write its row here, name it in `tuner.checks.TARGET_KINDS`,
and write the modules that the row names. What belongs to floors above this one is named as
`module:callable` and imported by who uses it, see `load`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from spaces.targets import cuda, llvm
from spaces.targets.config import Config
from spaces.targets.host import Host
from tuner import checks
from tuner.errors import UsageError

GPU = "GPU"
"""Ray's name of it."""
MEASURE = "measure"
"""Ray's custom resource that says: kernels may be timed here, one at a time."""


class Devices(Protocol):
    """What is known of a kind's devices: a module beside this one. Targets are canonical JSON."""

    FILLED_IN: frozenset[str]
    """Options that `completed` adds."""

    def present(self) -> bool:
        """Whether this machine has one that TVM can use."""

    def detected(self, cores: int | None, host: Host | None) -> Config:
        """The target that the bare kind means on this machine; of a CPU with so many threads.

        Raises:
            TunerError: it has no such device.
        """

    def refuse_incomplete(self, config: Config) -> None:
        """Raises TunerError if a target as written lacks what this machine cannot tell."""

    def completed(self, config: Config, cores: int | None, host: Host | None) -> Config:
        """A valid target with what it leaves open.

        Raises:
            UsageError: it names a device that there is not.
            TunerError: this machine cannot be it.
        """

    def missing(self, target_json: str, host: Host | None) -> tuple[str, ...]:
        """Instructions of the target's code that a CPU, None is this machine's, does not have."""

    def fits(self, target_json: str) -> bool:
        """Whether this machine has the device that a target names, as far as it names one."""

    def fingerprint(self, target_json: str, host: Host | None) -> str:
        """What kernels of this target run on here; of equal ones, timings can be compared."""

    def former_fingerprint(self, target_json: str) -> str:
        """What that was in older versions."""

    def alike(self, one: str, other: str) -> bool:
        """Whether what was found for one target can be tried on an unequal one as it is."""

    def device(self) -> Any:
        """TVM's first device of the kind, whether it exists or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A kind of target.

    Attributes:
        kind: TVM's name of it.
        word: how searches on it are called where the device is not known yet.
        devices: what is known of them.
        tags: how TVM's tags for such targets begin.

        resource: Ray's name of what a kernel is timed on.
        everywhere: each machine has it, so one may be measured on where none is declared.
        visible: the environment variable by which Ray hides it from who takes none; may be empty.
        on_host: kernels run on threads of the CPU that calls them.
        quiet: while one is timed, nothing else may run on the machine's CPU.

        packs_weights: layouts are chosen for it, and weights may be packed ahead of time.
        runs_unscheduled: a program without a schedule runs.
        pipeline: gives the name of the passes that kernels are compiled with, `() -> str`.
        templates: of a task, best first, `(Task) -> list[Template]`.
        rules: names TVM's schedule rules for a target, `(Config, low_precision) -> RuleNames`.
        device_code: of a compiled library, `(library, target) -> bytes | None`; may be empty.
        onnxruntime: its execution provider for such devices; empty is the CPU's.
    """

    kind: str
    word: str
    devices: Devices
    tags: tuple[str, ...] = ()

    resource: str
    everywhere: bool
    visible: str = ""
    on_host: bool
    quiet: bool

    packs_weights: bool
    runs_unscheduled: bool
    pipeline: str
    templates: str
    rules: str
    device_code: str = ""
    onnxruntime: str = ""


BACKENDS = (
    Backend(
        kind="llvm",
        word="cpu",
        devices=llvm,
        resource=MEASURE,
        everywhere=True,
        on_host=True,
        quiet=True,
        packs_weights=True,
        runs_unscheduled=True,
        pipeline="spaces.passes.pipeline:cpu_pipeline",
        templates="spaces.templates.registry:cpu_templates",
        rules="spaces.design_space.schedule_rules:cpu_rules",
    ),
    Backend(
        kind="cuda",
        word="cuda",
        devices=cuda,
        tags=("nvidia/",),
        resource=GPU,
        everywhere=False,
        visible="CUDA_VISIBLE_DEVICES",
        on_host=False,
        quiet=False,
        packs_weights=False,
        runs_unscheduled=False,
        pipeline="spaces.passes.pipeline:stock_pipeline",
        templates="spaces.templates.registry:gpu_templates",
        rules="spaces.design_space.schedule_rules:cuda_rules",
        device_code="spaces.codegen.cuda_code:device_code",
        onnxruntime="CUDAExecutionProvider",
    ),
)
"""The last one that a machine has is what `auto` means there; the first one is on every machine."""


def backend(kind: object) -> Backend:
    """The row of a kind.

    Raises:
        UsageError: there is none.
    """
    name = checks.target_kind(kind)
    return next(row for row in BACKENDS if row.kind == name)


def backend_of(target: Any) -> Backend:
    """The row of a target.

    Args:
        target: JSON of it, or TVM's own.

    Raises:
        UsageError: it is neither, or of an unknown kind.
    """
    if not isinstance(target, str):
        return backend(str(target.kind))
    try:
        kind = json.loads(target)["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{checks.short(target)} is no target as JSON") from error
    return backend(kind)


def load(name: str) -> Any:
    """What a row names as `module:callable`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
