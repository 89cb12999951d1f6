"""Untuned, tuned and onnxruntime, side by side: their speed, and the errors of their outputs."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spaces.check.compare import gaps
from spaces.codegen.executable import Array, Executable, LoadedModel
from spaces.devices.launch_model import launch_s
from spaces.frontends.inputs import InputSpec
from spaces.frontends.model import Model
from spaces.targets.backends import backend_of
from spaces.targets.config import target_cores
from tuner.errors import first_line

MIN_ROUNDS = 10
BUDGET_S = 20.0
"""Time for the samples of one comparison; see `take_rounds`."""
_FEW = 3
"""Samples that a slow side gets where they fit: with fewer there is no spread to speak of."""
_SAMPLE_S = 0.02
_MAX_RUNS = 1000
_SLOW_RUN_S = 0.5
# Thread pools spin for a while after their work is done; the next side should not feel that.
_COOL_DOWN_S = 0.03
_WARM_UP_S = 0.15
_ORT_DEVICE = "cuda"
"""onnxruntime's name of the devices of the providers that we know."""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One comparison. Latencies are medians over rounds, in milliseconds.

    Attributes:
        onnxruntime_ms: None where onnxruntime is not installed or cannot run the model on this
            kind of device.
        max_abs_err: largest difference between the tuned outputs and the reference's:
            onnxruntime for an ONNX model where there is one, else the unscheduled program.
        max_rel_err: that difference over the largest reference value of the same output.
        spread: for each side, the distance between the quartiles over the median.
        samples: for each side, the number of samples behind its median.
        reference: `onnxruntime` or `untuned`.
        note: reservations about these numbers: why there is no latency of onnxruntime for an ONNX
            model, or that the reference holds NaN or infinity, which errors leave out; mostly
            empty.
        modelled: whether latencies are those of a model, of the emulated device.
    """

    untuned_ms: float
    tuned_ms: float
    onnxruntime_ms: float | None
    max_abs_err: float
    max_rel_err: float
    spread: dict[str, float]
    samples: dict[str, int]
    reference: str
    note: str = ""
    modelled: bool = False

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "untuned_ms": self.untuned_ms,
            "tuned_ms": self.tuned_ms,
            "onnxruntime_ms": self.onnxruntime_ms,
            "max_abs_err": self.max_abs_err,
            "max_rel_err": self.max_rel_err,
            "spread": self.spread,
            "samples": self.samples,
            "reference": self.reference,
            "note": self.note,
            "modelled": self.modelled,
        }


@dataclass(slots=True)
class Side:
    """One of the programs compared, and its samples so far (seconds for one run).

    Attributes:
        limit_s: the most time that its samples may take together, not counting the first.
        run_s: time of one run when it was tried.
    """

    name: str
    run: Callable[[], object]
    limit_s: float = math.inf
    run_s: float = 0.0
    samples_s: list[float] = field(default_factory=list)

    @property
    def slow(self) -> bool:
        """Whether one run is so long that it is a sample by itself, without a warm-up."""
        return self.run_s >= _SLOW_RUN_S

    @property
    def runs(self) -> int:
        """The number of runs that make a sample long enough for a clock."""
        return max(1, min(_MAX_RUNS, math.ceil(_SAMPLE_S / max(self.run_s, 1e-9))))

    @property
    def cost_s(self) -> float:
        """The most time that another sample takes, with cool-down and warm-up."""
        before_s = 0.0 if self.slow else _WARM_UP_S + self.run_s
        return _COOL_DOWN_S + before_s + self.runs * self.run_s

    @property
    def most(self) -> int:
        """The number of samples that fit in its own time, at least one."""
        if self.run_s <= 0 or math.isinf(self.limit_s):
            return sys.maxsize
        return max(1, int(self.limit_s / self.run_s))


def bench(
    model: Model,
    untuned: Executable,
    tuned: Executable,
    inputs: Sequence[Array],
    *,
    rounds: int = MIN_ROUNDS,
    onnx_path: Path | None = None,
    budget_s: float = BUDGET_S,
) -> BenchResult:
    """Compare a compiled model without schedules, with them, and onnxruntime.

    Rounds are interleaved: each takes one sample of each side, in turning order. All sides use the
    target's number of threads; the caller sets TVM's with
    `spaces.targets.cores.thread_variables`, before the first kernel runs.

    Args:
        untuned: the model without schedules, compiled without the passes that `tuned` went through.
        tuned: the same model with schedules.
        inputs: see `spaces.frontends.inputs.make_inputs`; for one shape of a model with symbolic
            dimensions.
        rounds: at least ten are made; a side that is much slower than the others sits some out.
        onnx_path: the ONNX file to give to onnxruntime; None is the model's own.
        budget_s: time for the samples of all sides, see `take_rounds`.

    Raises:
        TunerError: the device is missing.
    """
    plain, fast = LoadedModel(untuned, inputs), LoadedModel(tuned, inputs)
    peer, note = _peer(model, onnx_path or model.path, tuned.target, inputs)
    expected = plain.outputs() if peer is None else peer.outputs
    max_abs_err, max_rel_err = errors(fast.outputs(), expected)
    sides = [Side("untuned", plain.run), Side("tuned", fast.run)]
    if peer is not None and not note:
        sides.append(Side("onnxruntime", peer.run))
    modelled = backend_of(tuned.target).emulated
    if modelled:
        sides = sides[:2]
        for side, loaded in zip(sides, (plain, fast), strict=True):
            side.samples_s.append(
                sum(launch_s(launch, tuned.target) for launch in loaded.launches())
            )
    else:
        take_rounds(sides, max(rounds, MIN_ROUNDS), budget_s=budget_s)
    ms = {side.name: 1e3 * statistics.median(side.samples_s) for side in sides}
    return BenchResult(
        untuned_ms=ms["untuned"],
        tuned_ms=ms["tuned"],
        onnxruntime_ms=ms.get("onnxruntime"),
        max_abs_err=max_abs_err,
        max_rel_err=max_rel_err,
        spread={side.name: spread(side.samples_s) for side in sides},
        samples={side.name: len(side.samples_s) for side in sides},
        reference="untuned" if peer is None else "onnxruntime",
        note="; ".join(part for part in (note, _doubt(expected)) if part),
        modelled=modelled,
    )


def _doubt(expected: Sequence[Array]) -> str:
    """The reason why equal outputs would prove little; empty where there is none."""
    if all(np.isfinite(a.astype(np.float64)).all() for a in expected):
        return ""
    return "the reference output holds NaN or infinity, which the error leaves out"


def take_rounds(
    sides: Sequence[Side],
    rounds: int,
    *,
    budget_s: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Fill in the sides' samples: one of each a round, the order turning with the rounds.

    Args:
        budget_s: time for all samples together, including the first run of each side, which tells
            how long it takes. A side that is too slow for all rounds takes part in fewer, spread
            over all of them. A side of which no further run fits has its first run as its sample,
            and leaves the others a share of the time.
    """
    started_s = clock()
    for side in sides:
        # The first run pays for lazy initialisation, so a fast side is timed by its second run.
        side.run_s = _time(side.run, 1, clock)
        if not side.slow:
            side.run_s = _time(side.run, 1, clock)
    until_s = max(started_s + budget_s, clock() + budget_s / len(sides))
    turns = list(zip(sides, share_samples(sides, rounds, until_s - clock()), strict=True))
    for number in range(rounds):
        first = number % len(sides)
        for side, count in (*turns[first:], *turns[:first]):
            if (number + 1) * count // rounds == number * count // rounds:
                continue  # it sits this one out
            if side.samples_s and clock() + side.cost_s > until_s:
                continue  # the machine is slower than it was
            _sample(side, clock, sleep)
    for side in sides:
        side.samples_s = side.samples_s or [side.run_s]


def share_samples(sides: Sequence[Side], rounds: int, budget_s: float) -> list[int]:
    """The number of samples for each side: one in each round, if they all fit.

    Otherwise one for each side, then a few for each, and then always the next for the side whose
    samples take the least time.
    """
    counts, spent_s = [0] * len(sides), 0.0
    for goal in (1, min(_FEW, rounds), rounds):
        open_ends = {i for i, side in enumerate(sides) if counts[i] < min(goal, side.most)}
        while open_ends:
            i = min(open_ends, key=lambda i: ((counts[i] + 1) * sides[i].cost_s, i))
            if spent_s + sides[i].cost_s > budget_s:
                open_ends.discard(i)
                continue
            counts[i] += 1
            spent_s += sides[i].cost_s
            if counts[i] >= min(goal, sides[i].most):
                open_ends.discard(i)
    return counts


def _sample(side: Side, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    sleep(_COOL_DOWN_S)
    if not side.slow:
        _warm_up(side, clock)
    side.samples_s.append(_time(side.run, side.runs, clock))


def _warm_up(side: Side, clock: Callable[[], float]) -> None:
    """Run a side until the system has its threads on cores of their own again.

    Each side has threads of its own, which slept while the others ran. Where two wake up on one
    core, all of them are several times slower until the system moves one.
    """
    until_s = clock() + _WARM_UP_S
    side.run()
    while clock() < until_s:
        side.run()


def _time(run: Callable[[], object], runs: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(runs):
        run()
    return (clock() - start) / runs


def spread(samples: Sequence[float]) -> float:
    """Distance between the quartiles over the median; 0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0


def errors(got: Sequence[Array], expected: Sequence[Array]) -> tuple[float, float]:
    """Largest absolute difference, and largest one relative to its output's largest value.

    Both are infinite where shapes differ, or where one side alone has NaN or infinity; where
    both have the same of these in one place, it counts as no difference.
    """
    if len(got) != len(expected):
        return math.inf, math.inf
    max_abs = max_rel = 0.0
    for ours, theirs in zip(got, expected, strict=True):
        if ours.shape != theirs.shape:
            return math.inf, math.inf
        if not ours.size:
            continue
        difference = float(gaps(ours, theirs).max())
        finite = np.abs(theirs.astype(np.float64))
        scale = float(np.max(finite, where=np.isfinite(finite), initial=0.0))
        max_abs = max(max_abs, difference)
        if difference:
            max_rel = max(max_rel, difference / scale if scale else math.inf)
    return max_abs, max_rel


@dataclass(frozen=True, slots=True)
class _Peer:
    run: Callable[[], object]
    outputs: list[Array]


def _peer(
    model: Model, path: Path | None, target_json: str, inputs: Sequence[Array]
) -> tuple[_Peer | None, str]:
    """The model in onnxruntime, if that runs it; and a reason why its latency does not count."""
    if model.kind != "onnx" or path is None:
        return None, ""
    try:
        import onnxruntime
    except ImportError:
        return None, "onnxruntime is not installed"
    wanted = backend_of(target_json).onnxruntime
    device = [wanted] if wanted in onnxruntime.get_available_providers() else []
    try:
        peer = _session(path, model.inputs, inputs, target_cores(target_json), device)
    except Exception as error:  # it raises kinds of its own for each way a model can fail
        return None, f"onnxruntime cannot run the model: {first_line(error)}"
    if wanted and not device:
        return peer, f"onnxruntime here has no {wanted.removesuffix('ExecutionProvider')} support"
    return peer, ""


def _session(
    path: Path,
    specs: Sequence[InputSpec],
    inputs: Sequence[Array],
    threads: int,
    providers: list[str],
) -> _Peer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(path), options, providers=[*providers, "CPUExecutionProvider"]
    )
    feed = {spec.name: array for spec, array in zip(specs, inputs, strict=True)}
    outputs = list(session.run(None, feed))
    if not providers:
        return _Peer(lambda: session.run(None, feed), outputs)
    return _Peer(_bound_run(session, feed), outputs)


def _bound_run(session: Any, feed: dict[str, Array]) -> Callable[[], object]:
    """A run of a session whose inputs lie on its device and whose outputs stay there, as ours do.

    Such a run ends when the device is done.
    """
    import onnxruntime

    binding = session.io_binding()
    for name, array in feed.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array, _ORT_DEVICE)
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, _ORT_DEVICE)
    return lambda: session.run_with_iobinding(binding)
