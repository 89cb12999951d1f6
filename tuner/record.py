"""Trials, their measurements, and the record that keeps both."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tuner.candidate import Candidate, CandidateKind
from tuner.task import Instance


class Status(StrEnum):
    """The way a trial ended."""

    OK = "ok"
    """Built, ran, its output matched, its time is known."""
    CENSORED = "censored"
    """Built and ran, but so slow that it was cut off: its samples are a lower bound."""
    DUPLICATE = "duplicate"
    """Built, but its program is one that was measured before: its samples are those."""
    INVALID = "invalid"
    """The candidate cannot be realised: a schedule primitive or a post-processor refused it."""
    BUILD_FAILED = "build_failed"
    """The compiler refused the program, crashed or ran past its deadline, or no device could start
    the compiled kernel, or it spills registers."""
    RUN_FAILED = "run_failed"
    """The kernel crashed or raised, or its memory limit was reached."""
    WRONG = "wrong"
    """The kernel ran, but its output differs from the unscheduled program's."""
    TIMEOUT = "timeout"
    """The kernel ran past its deadline and was killed."""
    LOST = "lost"
    """The workers that held it vanished, as often as is allowed."""
    UNCHECKED = "unchecked"
    """The output could not be checked: computing the task's reference output failed. This says
    nothing of the candidate, so the record is not kept."""

    @property
    def spends_budget(self) -> bool:
        """Whether such a trial counts against the budget: its kernel was built and run, or its
        workers were lost as often as is allowed. Without the latter a search might never end."""
        return self in _SPENDS_BUDGET

    @property
    def failed(self) -> bool:
        """Whether the candidate was found to be of no use."""
        return self not in _GOOD


_SPENDS_BUDGET = frozenset(
    {Status.OK, Status.CENSORED, Status.WRONG, Status.RUN_FAILED, Status.TIMEOUT, Status.LOST}
)
_GOOD = frozenset({Status.OK, Status.CENSORED, Status.DUPLICATE})


@dataclass(frozen=True, slots=True)
class Trial:
    """The unit of work: one candidate of one task, on one instance, at one rung.

    Rung 0 is the search; rungs from 1 up are re-timings of finalists, see `tuner.generations`.
    """

    task_key: str
    candidate: Candidate
    instance: Instance = ()
    rung: int = 0

    @property
    def key(self) -> TrialKey:
        """The identity of the trial in a store."""
        return TrialKey(self.task_key, self.candidate.key, self.instance, self.rung)


@dataclass(frozen=True, slots=True)
class TrialKey:
    """Identity of a trial: at most one record has it."""

    task_key: str
    candidate_key: str
    instance: Instance
    rung: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """The condition of a device while a kernel was timed; nothing is known of a CPU's.

    Attributes:
        l2: what a run found in the last cache: `warm` is what the run before left there, `cold`
            other data.
        anchor_s: time of a fixed piece of work on the same device.
        clock_mhz: of the multiprocessors, after the last sample; 0 where it is not known, as are
            all others. `most_clock_mhz` is the device's most.
        slowed_by: reasons for a lower clock.
        strangers: other processes that computed on the device.
    """

    l2: str = ""
    anchor_s: float = 0.0
    clock_mhz: int = 0
    most_clock_mhz: int = 0
    temperature_c: int = 0
    power_w: float = 0.0
    slowed_by: tuple[str, ...] = ()
    strangers: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain data; empty where nothing is known."""
        return {} if self == NO_CONDITIONS else {**asdict(self), "slowed_by": list(self.slowed_by)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Conditions:
        """The conditions that `to_json` gave this data for."""
        return cls(**{**raw, "slowed_by": tuple(raw["slowed_by"])}) if raw else NO_CONDITIONS


NO_CONDITIONS = Conditions()


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of a trial.

    Attributes:
        status: the way it ended.
        samples_s: every timed sample, seconds for one run of the kernel; not only a summary. Of a
            duplicate those of the program when it was measured.
        error: the reason where it did not end well; its first line is a summary.
        build_s: seconds spent building.
        run_s: seconds spent loading, checking and timing.
        fault: what a user's object did wrong, which ends the run. It says nothing of the candidate,
            so the record is not kept.
        conditions: the device's, while it was timed.
    """

    status: Status
    samples_s: tuple[float, ...] = ()
    error: str = ""
    build_s: float = 0.0
    run_s: float = 0.0
    fault: str = ""
    conditions: Conditions = NO_CONDITIONS

    @property
    def latency_s(self) -> float | None:
        """Median of the samples of a good measurement; None for any other.

        A sample that is no time (NaN, infinite, not above zero) makes the measurement worthless.
        """
        if self.status is not Status.OK or not self.samples_s:
            return None
        if not all(0 < sample < math.inf for sample in self.samples_s):
            return None
        return statistics.median(self.samples_s)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The worker, device and toolchain that a trial was measured with.

    Attributes:
        worker: name of the runner, or of the builder where the trial never ran.
        device: fingerprint of the device: model, threads or compute capability.
        toolchain: versions that change a kernel, such as TVM's and LLVM's.
    """

    worker: str = ""
    device: str = ""
    toolchain: str = ""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The merit that a candidate was thought to have before it was measured.

    Attributes:
        score: of the cost model, higher is better; comparable within one task and model version.
            Of a template's setting it is minus the logarithm of the expected latency, seconds.
        model_version: of the cost model, counted from 1 in each session, or the number of times
            that a template's process knew; 0 is none.
        estimate_s: analytic latency on the trial's instance, where the space has such an estimate.
    """

    score: float = 0.0
    model_version: int = 0
    estimate_s: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Everything known of one trial. Exactly one exists for each submitted trial."""

    trial: Trial
    measurement: Measurement
    provenance: Provenance = Provenance()
    attempt: int = 1
    time_s: float = 0.0
    """Seconds since the epoch when the result arrived."""
    code_hash: str = ""
    """Hash of the candidate's program, so that none is measured twice; empty where not known."""
    predicted: Predicted | None = None
    """None where nothing was predicted, as of default schedules."""

    @property
    def latency_s(self) -> float | None:
        """Median seconds of one run, or None if the trial gave no valid time."""
        return self.measurement.latency_s

    def to_json(self) -> dict[str, Any]:
        """The line of an exported records file, as plain data."""
        predicted = {} if self.predicted is None else {"predicted": asdict(self.predicted)}
        conditions = self.measurement.conditions.to_json()
        return {
            "task": self.trial.task_key,
            "candidate": _plain(self.trial.candidate),
            "instance": dict(self.trial.instance),
            "rung": self.trial.rung,
            "status": str(self.measurement.status),
            "seconds": list(self.measurement.samples_s),
            "error": self.measurement.error,
            "build_s": self.measurement.build_s,
            "run_s": self.measurement.run_s,
            "attempt": self.attempt,
            **asdict(self.provenance),
            "time": self.time_s,
            "code_hash": self.code_hash,
            **predicted,
            **({"conditions": conditions} if conditions else {}),
        }


def _plain(candidate: Candidate) -> dict[str, str]:
    plain = {
        "key": candidate.key,
        "kind": str(candidate.kind),
        "space": candidate.space,
        "payload": candidate.payload,
    }
    return {**plain, "trace": candidate.trace} if candidate.trace else plain


def record_from_json(line: str) -> Record:
    """Parse one line written from `Record.to_json`.

    Raises:
        ValueError: the line is not a record; the message says what is missing.
    """
    try:
        return record_from_plain(json.loads(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"not a record: {error!r}") from error


def record_from_plain(raw: Any) -> Record:
    """The record that `Record.to_json` gave this data for.

    Raises:
        ValueError: it is not one; the message says what is missing.
    """
    try:
        candidate = raw["candidate"]
        return Record(
            trial=Trial(
                task_key=raw["task"],
                candidate=Candidate(
                    CandidateKind(candidate["kind"]),
                    candidate["payload"],
                    candidate["space"],
                    candidate.get("trace", ""),
                ),
                instance=tuple(sorted((str(k), int(v)) for k, v in raw["instance"].items())),
                rung=int(raw["rung"]),
            ),
            measurement=Measurement(
                status=Status(raw["status"]),
                samples_s=tuple(float(s) for s in raw["seconds"]),
                error=raw.get("error", ""),
                build_s=float(raw.get("build_s", 0.0)),
                run_s=float(raw.get("run_s", 0.0)),
                conditions=Conditions.from_json(raw.get("conditions", {})),
            ),
            provenance=Provenance(raw["worker"], raw.get("device", ""), raw.get("toolchain", "")),
            attempt=int(raw["attempt"]),
            time_s=float(raw["time"]),
            code_hash=str(raw.get("code_hash", "")),
            predicted=Predicted(**raw["predicted"]) if "predicted" in raw else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record: {error!r}") from error


def record_line(record: Record) -> str:
    """One record as one line of strict JSON: NaN and infinities become strings."""
    return json.dumps(strict(record.to_json()), allow_nan=False)


def strict(value: Any) -> Any:
    """Plain data with NaN and the infinities as strings, which strict JSON does not have."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: strict(inner) for key, inner in value.items()}
        case list():
            return [strict(inner) for inner in value]
        case _:
            return value
