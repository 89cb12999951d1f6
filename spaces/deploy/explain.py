"""What a schedule does, and what speaks for and against it, as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from spaces.codegen.artifact import build_artifact, kernels_of
from spaces.codegen.cuda.cubin import KernelUse, resident_blocks
from spaces.codegen.cuda.mix import Mix
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.features.loop_nest import LoopKind, Nest, heaviest_nest
from spaces.features.traffic import traffic
from spaces.targets.backends import backend_of
from spaces.targets.cpu import cpu_of
from spaces.targets.gpu import Gpu, gpu_of
from spaces.targets.target import choose_deploy_target
from spaces.templates.base import FAMILY
from spaces.templates.registry import template_named
from tuner.candidate import Candidate, family, knobs_of
from tuner.task import Task

_KINDS = {
    LoopKind.PARALLEL: "parallel",
    LoopKind.VECTORIZED: "vectorized",
    LoopKind.UNROLLED: "unrolled",
    LoopKind.THREAD: "thread",
}
_IDLE = 0.1
"""Share of the cores' time that may be idle before it is remarked on."""


@dataclass(frozen=True, slots=True)
class LoopOf:
    """A loop around the heaviest block.

    Attributes:
        kind: `parallel`, `vectorized`, `unrolled`, `thread` or `serial`.
        reduces: whether it sums.
    """

    extent: int
    kind: str
    reduces: bool


@dataclass(frozen=True, slots=True)
class CacheUse:
    """The use of one cache.

    Attributes:
        cache_bytes: its size; of the last one, the part of a core.
        loops_inside: innermost loops whose data fit into it, which reach `inside_bytes`.
        moved_bytes: what one run moves into it, all cores together.
    """

    cache: str
    cache_bytes: int
    loops_inside: int
    inside_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler says of a kernel for a device.

    Attributes:
        threads: of a block; 0 where the program does not say.
        registers: of a thread; `spilled_bytes` what it keeps in slow memory for want of more.
        shared_bytes: shared memory of a block; None where the launch asks for an unknown number.
        resident_blocks: blocks that share a multiprocessor, and `occupancy` their share of the
            threads that it may have; None where that is not known.
        mix: instructions of the innermost loop; None where the machine code is not known.
    """

    name: str
    threads: int
    registers: int
    spilled_bytes: int
    shared_bytes: int | None
    resident_blocks: int | None
    occupancy: float | None
    mix: Mix | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a schedule does, or a program that is none.

    Attributes:
        settings: of its space's knobs; None where it has none.
        loops: of the heaviest block, outermost first; none of a program for threads.
        kernels: of a device, as compiled; empty where they do not compile here.
        parallel_steps: that are shared out to `cores`; 1 where nothing is.
        busy: share of the cores' time that they leave none idle, if all steps take equally long.
        lanes: elements of the vectors that it computes with; 1 without vectors.
        caches: from the nearest outwards. Empty for a GPU.
        predicted_ms: analytic estimate of its template; None where it has none.
        remarks: what speaks against it, in words.
    """

    settings: dict[str, int] | None
    loops: tuple[LoopOf, ...]
    kernels: tuple[Compiled, ...]
    parallel_steps: int
    cores: int
    busy: float
    lanes: int
    caches: tuple[CacheUse, ...]
    predicted_ms: float | None
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def explain(task: Task, candidate: Candidate) -> Explanation | None:
    """Explain a candidate of a static task; None where no block of it has loops, and it is no
    setting of a device's template.

    Raises:
        InvalidCandidate: it cannot be scheduled.
    """
    module = realize(task, candidate).mod
    nests = [heaviest_nest(function) for function in module.functions.values()]
    nest = next((found for found in nests if found is not None), None)
    knobs, on_cpu = knobs_of(candidate), backend_of(task.target).on_host
    if nest is None or not nest.loops:
        if knobs is None or on_cpu:
            return None
        nest = Nest((), (), 0)
    cores = cpu_of(task.target).cores if on_cpu else 1
    steps = _product(nest, LoopKind.PARALLEL)
    busy = steps / (math.ceil(steps / cores) * cores)
    inner = nest.loops[:1]
    lanes = inner[0].extent if inner and inner[0].kind == LoopKind.VECTORIZED else 1
    caches = _caches(nest, task.target) if on_cpu else ()
    kernels = () if on_cpu else _compile(module, task.target)
    remarks = _remarks(nest, busy, lanes, caches) if on_cpu else _remark_on(kernels)
    return Explanation(
        settings=knobs,
        kernels=kernels,
        loops=tuple(_loop(loop) for loop in reversed(nest.loops)),
        parallel_steps=steps,
        cores=cores,
        busy=busy,
        lanes=lanes,
        caches=caches,
        predicted_ms=_predict_ms(task, candidate),
        remarks=tuple(remarks),
    )


def _compile(module: Any, target: str) -> tuple[Compiled, ...]:
    """What the compiler says of a scheduled module's kernels; nothing where they do not compile
    here."""
    deployed = choose_deploy_target(target)
    try:
        uses = kernels_of(build_artifact(module, deployed))
    except Exception:  # no compiler is here, or TVM raises whatever its C++ side threw
        return ()
    return tuple(_compiled(name, use, gpu_of(deployed)) for name, use in uses.items())


def _compiled(name: str, use: KernelUse, gpu: Gpu) -> Compiled:
    resident = resident_blocks(use, gpu)
    share = None if resident is None else resident * use.threads / gpu.numbers.resident_threads
    at_launch = use.launch_bytes
    return Compiled(
        name=name,
        threads=use.threads,
        registers=use.registers,
        spilled_bytes=use.stack_bytes,
        shared_bytes=None if at_launch is None else use.shared_bytes + at_launch,
        resident_blocks=resident,
        occupancy=share,
        mix=use.mix,
    )


def _remark_on(kernels: tuple[Compiled, ...]) -> list[str]:
    return [
        f"{kernel.name} keeps {kernel.spilled_bytes} bytes of each thread in slow memory"
        for kernel in kernels
        if kernel.spilled_bytes
    ]


def _loop(loop: Any) -> LoopOf:
    return LoopOf(loop.extent, _KINDS.get(LoopKind(loop.kind), "serial"), loop.reduces)


def _product(nest: Nest, kind: LoopKind) -> int:
    return math.prod(loop.extent for loop in nest.loops if loop.kind == kind)


def _caches(nest: Nest, target: str) -> tuple[CacheUse, ...]:
    cpu = cpu_of(target)
    sizes = {"L1": cpu.l1_bytes, "L2": cpu.l2_bytes, "L3": cpu.l3_bytes // max(1, cpu.cores)}
    found = []
    for name, size in sizes.items():
        use = traffic(nest, size)
        found.append(CacheUse(name, size, use.loops_inside, use.inside_bytes, use.moved_bytes))
    return tuple(found)


def _predict_ms(task: Task, candidate: Candidate) -> float | None:
    knobs = knobs_of(candidate)
    if knobs is None or family(candidate.space) != FAMILY:
        return None
    template = template_named(task, candidate.space)
    if template is None or knobs.keys() != template.choices.keys():
        return None  # it is of another version of the template
    estimate_s = KnobSpace(task, template).describe(knobs).estimate_s
    return None if estimate_s is None or math.isinf(estimate_s) else estimate_s * 1e3


def _remarks(nest: Nest, busy: float, lanes: int, caches: tuple[CacheUse, ...]) -> list[str]:
    found = []
    if busy < 1 - _IDLE:
        found.append(f"{1 - busy:.0%} of the cores' time is idle")
    if lanes == 1:
        found.append("nothing is computed in vectors")
    written, *read = nest.accesses
    if lanes > 1 and written.strides[0] not in (0, 1):
        found.append(f"vectors are written {written.strides[0]} elements apart")
    apart = [access.strides[0] for access in read if abs(access.strides[0]) > 1]
    if lanes > 1 and apart:
        found.append(f"vectors are read {max(apart)} elements apart")
    if caches and not caches[0].loops_inside:
        found.append("not even the innermost loop's data fit into the nearest cache")
    return found
