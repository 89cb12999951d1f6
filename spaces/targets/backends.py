"""One row for each kind of target: everything that the rest of the program asks of a kind.

No other module compares kinds. To add one, write its row here, name it in
`tuner.request.target_text.TARGET_KINDS`, and write the modules that the row names. Code on floors
above this one is named as `module:callable` and imported where it is used, see `load`.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

from spaces.targets import cuda, emulated, llvm
from spaces.targets.config import Config
from spaces.targets.host import Host
from tuner import checks
from tuner.errors import UsageError
from tuner.request import target_text

GPU = "GPU"
"""Ray's name of the resource."""
MEASURE = "measure"
"""Ray's custom resource of machines where kernels may be timed, one at a time."""


class Devices(Protocol):
    """The interface of a kind's devices, a module beside this one. Targets are canonical JSON."""

    FILLED_IN: frozenset[str]
    """Options that `completed` adds."""

    def present(self) -> bool:
        """Whether this machine has a device that TVM can use."""

    def detected(self, cores: int | None, host: Host | None) -> Config:
        """The target that the bare kind means on this machine; a CPU's has `cores` threads.

        Raises:
            TunerError: the machine has no such device.
        """

    def refuse_incomplete(self, config: Config) -> None:
        """Raise TunerError if a target as written lacks options that this machine cannot tell."""

    def canonical(self, config: Config, tag: str) -> Config:
        """A valid target in the one form that is kept, however its options were said.

        Args:
            tag: of TVM's, by which it was named; else empty.
        """

    def completed(self, config: Config, cores: int | None, host: Host | None) -> Config:
        """A valid target with the options that it leaves open filled in.

        Raises:
            UsageError: it names a device that does not exist.
            TunerError: this machine cannot be that target.
        """

    def missing(self, target_json: str, host: Host | None) -> tuple[str, ...]:
        """Instructions of the target's code that a CPU (None: this machine's) does not have."""

    def fits(self, target_json: str) -> bool:
        """Whether this machine has the device that a target names, as far as it names one."""

    def fingerprint(self, target_json: str, host: Host | None) -> str:
        """The device that kernels of a target run on here; timings of equal ones are comparable."""

    def alike(self, one: str, other: str) -> bool:
        """Whether schedules found for one target can be tried on an unequal one as they are."""

    def device(self) -> Any:
        """TVM's first device of the kind, whether it exists or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A kind of target.

    Attributes:
        kind: TVM's name of the kind.
        word: the name of searches on it while the device is not known yet.
        devices: the module of its devices.
        tags: prefixes of TVM's tags for such targets.

        resource: Ray's name of the resource that a kernel is timed on.
        everywhere: whether each machine has it, so that it need not be declared to be measured on.
        visible: the environment variable by which Ray hides it from workers that take none of it;
            may be empty.
        on_host: whether kernels run on threads of the CPU that calls them.
        quiet: whether nothing else may run on the machine's CPU while a kernel is timed.
        emulated: whether it is no device, and its times are a model's.

        layouts: gives what convolutions with channels last gain on it, `(target) -> Gains | None`
            with TVM's own target; None where layouts stay as they are.
        packs_weights: whether weights may be packed ahead of time.
        runs_unscheduled: whether a program without a schedule runs.
        graph_pass: a pass over graphs for it, before operators become programs, `(module, target)`
            with TVM's own target; may be empty.
        pipeline: gives the name of the passes that kernels are compiled with, `() -> str`.
        templates: gives the templates of a task, best first, `(Task) -> list[Template]`.
        rules: names TVM's schedule rules for a target, `(Config, low_precision) -> RuleNames`.
        device_code: gives the machine code of a compiled library for the device,
            `(library, target, launch_bytes) -> DeviceCode | None` with the shared memory that
            launches ask for, by kernel; may be empty.
        compiling: gives the context in which TVM compiles such code as we do,
            `(target) -> AbstractContextManager`; may be empty.
        try_compiler: compiles a kernel of one line, `(target) -> None`, where the compiler is no
            part of TVM and may be missing; may be empty.
        toolchain: gives the versions of such a compiler for fingerprints, `(target) -> str`
            with canonical JSON; may be empty.
        stock_environment: gives the variables with which TVM's own compiler makes the code that we
            make, `(target) -> dict[str, str]` with canonical JSON; may be empty.
        stopwatch: times kernels on its devices, `(device, target) ->
            spaces.devices.stopwatch.Stopwatch`, with TVM's device and canonical JSON.
        checker: checks outputs on its devices, `(device, target) ->
            spaces.devices.checker.Checker`.
        onnxruntime: its execution provider for such devices; empty for the CPU's.
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
    emulated: bool = False

    layouts: str
    packs_weights: bool
    runs_unscheduled: bool
    graph_pass: str = ""
    pipeline: str
    templates: str
    rules: str
    stopwatch: str
    checker: str
    device_code: str = ""
    compiling: str = ""
    try_compiler: str = ""
    toolchain: str = ""
    stock_environment: str = ""
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
        layouts="spaces.lowering.layouts.gains:cpu_gains",
        packs_weights=True,
        runs_unscheduled=True,
        graph_pass="spaces.lowering.attention.fuse:fuse_cpu_attention",
        pipeline="spaces.passes.pipeline:cpu_pipeline",
        templates="spaces.templates.registry:cpu_templates",
        rules="spaces.design_space.schedule_rules:cpu_rules",
        stopwatch="spaces.devices.stopwatch:CpuStopwatch",
        checker="spaces.devices.checker:HostChecker",
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
        layouts="spaces.lowering.layouts.gains:cuda_gains",
        packs_weights=False,
        runs_unscheduled=False,
        graph_pass="spaces.lowering.attention.fuse:fuse_gpu_attention",
        pipeline="spaces.passes.cuda.pipeline:cuda_pipeline",
        templates="spaces.templates.registry:gpu_templates",
        rules="spaces.design_space.schedule_rules:cuda_rules",
        stopwatch="spaces.devices.graph_stopwatch:cuda_stopwatch",
        checker="spaces.devices.device_checker:DeviceChecker",
        device_code="spaces.codegen.cuda.device_code:device_code",
        compiling="spaces.codegen.cuda.device_code:compiling_for",
        try_compiler="spaces.codegen.cuda.device_code:try_compiler",
        toolchain="spaces.codegen.cuda.nvcc:nvcc_fingerprint",
        stock_environment="spaces.codegen.cuda.nvcc:stock_environment",
        onnxruntime="CUDAExecutionProvider",
    ),
)
"""`auto` means the last one that a machine has; the first one is on every machine."""

EMULATED = replace(
    BACKENDS[1],
    word=target_text.EMULATED,
    devices=emulated,
    tags=(),
    resource=MEASURE,
    everywhere=True,
    visible="",
    emulated=True,
    pipeline="spaces.passes.pipeline:name_emulation_pipeline",
    stopwatch="spaces.devices.emulated:EmulatedStopwatch",
    checker="spaces.devices.emulated:ZonedChecker",
    device_code="",
    compiling="",
    try_compiler="spaces.emulation.library:try_compiler",
    onnxruntime="",
)
"""The row of CUDA targets for the emulated device, which nobody gets who does not ask for it."""


def backend(kind: object, keys: object = None) -> Backend:
    """The row of a kind.

    Args:
        keys: those of the target, if it has any.

    Raises:
        UsageError: there is no such kind.
    """
    name = target_text.target_kind(kind)
    if emulated.is_emulated(keys):
        return EMULATED
    return next(row for row in BACKENDS if row.kind == name)


def backend_of(target: Any) -> Backend:
    """The row of a target.

    Args:
        target: the target as JSON, a kind, or TVM's own.

    Raises:
        UsageError: it is none of these, or of an unknown kind.
    """
    if not isinstance(target, str):
        return backend(str(target.kind), target.keys)
    if target in target_text.TARGET_KINDS:
        return backend(target)
    try:
        config = json.loads(target)
        kind, keys = config["kind"], config.get("keys")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{checks.short(target)} is no target as JSON") from error
    return backend(kind, keys)


def load(name: str) -> Any:
    """Import the callable that a row names as `module:callable`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def compiling(target: Any) -> AbstractContextManager[None]:
    """The context in which TVM compiles for a `tvm.target.Target` as we do."""
    name = backend_of(target).compiling
    context: AbstractContextManager[None] = load(name)(target) if name else nullcontext()
    return context
