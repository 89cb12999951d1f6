"""Whether the winners of a run are what its records claim: decisions alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuner.report.noise import deviation
from tuner.report.trust.claims import Claim
from tuner.session.ending.finalists import noise_factor
from tuner.view.as_json import to_ms

_MOST = 1.5
"""The largest factor that is put down to noise of the run, which is what its records say, and to a
machine that is in another state. Beyond it, noise here leaves nothing to be judged."""
_LEAST, _LEAST_OF_SEARCH = 1.1, 1.25
"""The least factor that is, of a winner that was timed again, and of one that only the search
timed: that the fastest of many was fast is partly luck."""
_DEVIATIONS = 1.5
"""Times two: with two deviations, one of each twenty good kernels would be found to differ."""
_ENOUGH = 4
"""As many other winners say how fast the machine is. With fewer, default schedules do as well, and
a kernel only differs where it does by itself, too."""


class Verdict(StrEnum):
    """What became of a claim."""

    SAME = "same"
    """Rebuilt, right, and as fast as it was."""
    RIGHT = "right"
    """Rebuilt and right; its time is not judged, or noise here would hide much."""
    DIFFERS = "differs"
    """Another program, a wrong output, or another time."""
    UNCHECKED = "unchecked"
    """It could not be rebuilt and run here."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a claim.

    Attributes:
        differs: why it is not what the records say, in words, the times apart.
        unchecked: why it could not be looked at in full; empty where it was.
        turns_s: its time in each turn, and the default schedule's.
        default_s: the latter.
    """

    differs: tuple[str, ...] = ()
    unchecked: str = ""
    turns_s: tuple[float, ...] = ()
    default_s: tuple[float, ...] = ()

    @property
    def latency_s(self) -> float | None:
        """The median over the turns; None where it was not timed."""
        return statistics.median(self.turns_s) if self.turns_s else None

    @property
    def by_default_s(self) -> float | None:
        """The same of the default schedule."""
        return statistics.median(self.default_s) if self.default_s else None


@dataclass(frozen=True, slots=True)
class Judged:
    """One winner, beside its record.

    Attributes:
        ratio: its time over the record's; None where it was not timed.
        noise: the factor that the two may be apart by.
        why: what differs, or why it could not be looked at.
    """

    claim: Claim
    seen: Seen
    verdict: Verdict
    ratio: float | None
    noise: float
    why: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        claim, seen = self.claim, self.seen
        return {
            "name": claim.task.name,
            "key": claim.task.key,
            "shape": dict(claim.record.trial.instance),
            "candidate": claim.candidate.key,
            "verdict": str(self.verdict),
            "why": list(self.why),
            "recorded_ms": to_ms(claim.latency_s),
            "latency_ms": to_ms(seen.latency_s),
            "ratio": self.ratio,
            "noise": self.noise,
            "default_recorded_ms": to_ms(claim.default_s),
            "default_ms": to_ms(seen.by_default_s),
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """A run, verified.

    Attributes:
        machine: the median factor between times now and times of the records; None where nothing
            was timed.
        kernels: the number of kernels that it is the median of.
        unsure: why times are not judged; empty where they are.
        noisy: the factor that times of one kernel are apart by here, where that is too much to find
            a winner to be as fast as it was.
    """

    winners: tuple[Judged, ...]
    machine: float | None
    kernels: int
    unsure: tuple[str, ...] = ()
    noisy: float | None = None

    @property
    def other_machine(self) -> bool:
        """Whether all kernels are slower or faster by one factor that is no noise."""
        if self.machine is None or self.unsure or self.kernels < 2:
            return False
        return _apart(self.machine) > max(_MOST, self.noisy or 1.0)

    @property
    def ok(self) -> bool:
        """Whether every winner was rebuilt, is right, and is not known to be slower or faster."""
        good = all(w.verdict in (Verdict.SAME, Verdict.RIGHT) for w in self.winners)
        return good and not self.other_machine

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "ok": self.ok,
            "judged": not self.unsure,
            "notes": list(self.unsure),
            "machine": self.machine,
            "other_machine": self.other_machine,
            "noisy": self.noisy,
            "tasks": [winner.to_json() for winner in self.winners],
        }


def judge(
    claims: Sequence[Claim], seen: Sequence[Seen], unsure: Sequence[str] = ()
) -> Verification:
    """Judge what was seen.

    A machine may be slower today than when the run was measured, for all kernels by one factor.
    That factor is estimated from all others before a kernel is called slower or faster, and is said
    for itself.

    Args:
        unsure: why times are not to be judged, as on another device.
    """
    pace = _Pace(claims, seen)
    here = _factor([what.turns_s for what in seen], math.inf)
    noise = max(_factor([claim.again_s for claim in claims], _MOST), here)
    rows = [
        _judge(claim, what, pace.beside(place), noise, () if unsure else pace.of_winners)
        for place, (claim, what) in enumerate(zip(claims, seen, strict=True))
    ]
    ratios = pace.all()
    machine = statistics.median(ratios) if ratios else None
    noisy = here if here > _MOST else None
    return Verification(tuple(rows), machine, len(ratios), tuple(unsure), noisy)


def _judge(
    claim: Claim, seen: Seen, pace: Sequence[float], noise: float, winners: Sequence[float]
) -> Judged:
    """Judge one kernel.

    Args:
        pace, winners: what its ratio, and that of its default schedule, are compared with; no
            time is judged where the latter is empty.
    """
    ratio, by_default = _ratio(claim.latency_s, seen.latency_s), _of_default(claim, seen)
    noise = max(noise, _LEAST if claim.again_s else _LEAST_OF_SEARCH)
    why = list(seen.differs)
    if winners and ratio is not None and not why:
        if _beyond(ratio, pace, noise):
            why.append(_word("", ratio, pace[0], noise))
        elif by_default is not None and _beyond(by_default, winners, max(noise, _MOST)):
            why.append(_word("its default schedule is ", by_default, winners[0], max(noise, _MOST)))
    if why:
        return Judged(claim, seen, Verdict.DIFFERS, ratio, noise, tuple(why))
    if seen.unchecked:
        return Judged(claim, seen, Verdict.UNCHECKED, ratio, noise, (seen.unchecked,))
    judged = bool(winners) and ratio is not None and noise <= _MOST
    verdict = Verdict.SAME if judged else Verdict.RIGHT
    return Judged(claim, seen, verdict, ratio, noise, ())


def _beyond(ratio: float, pace: Sequence[float], noise: float) -> bool:
    return min(_apart(ratio / one) for one in pace) > noise


def _word(what: str, ratio: float, pace: float, noise: float) -> str:
    slower = "slower" if ratio > pace else "faster"
    beside = f", all others {pace:.2f}x" if _apart(pace) > _LEAST else ""
    return f"{what}{slower}: {ratio:.2f}x of its record's time{beside}; noise reaches {noise:.2f}x"


class _Pace:
    """Times now over times then, of all kernels."""

    def __init__(self, claims: Sequence[Claim], seen: Sequence[Seen]) -> None:
        pairs = list(zip(claims, seen, strict=True))
        self._won = [_ratio(claim.latency_s, what.latency_s) for claim, what in pairs]
        ratios = (_of_default(claim, what) for claim, what in pairs)
        self._default = [ratio for ratio in ratios if ratio is not None]

    @property
    def of_winners(self) -> tuple[float, ...]:
        """What the ratio of a default schedule is to be compared with; empty without any time."""
        won = [ratio for ratio in self._won if ratio is not None]
        return (statistics.median(won), 1.0) if won else ()

    def all(self) -> list[float]:
        """The ratios that say how fast the machine is."""
        return self._of([ratio for ratio in self._won if ratio is not None])

    def beside(self, place: int) -> tuple[float, ...]:
        """What the ratio of one kernel is to be compared with: how much slower the machine is by
        all others, and where these are few, that it is not."""
        others = [r for n, r in enumerate(self._won) if n != place and r is not None]
        ratios = self._of(others)
        pace = statistics.median(ratios) if ratios else 1.0
        return (pace,) if len(others) >= _ENOUGH else (pace, 1.0)

    def _of(self, won: list[float]) -> list[float]:
        return won if len(won) >= _ENOUGH else won + self._default


def suspects(claims: Sequence[Claim], seen: Sequence[Seen]) -> list[int]:
    """Places of the winners whose times seem to differ: they are worth more turns."""
    rows = judge(claims, seen).winners
    return [
        place
        for place, row in enumerate(rows)
        if row.verdict is Verdict.DIFFERS and not row.seen.differs
    ]


def _factor(kernels: Sequence[Sequence[float]], most: float) -> float:
    """The factor that two times of one kernel are apart by, given the times of each."""
    apart = deviation(kernels)
    return _LEAST if apart is None else noise_factor(_DEVIATIONS * apart, most)


def _of_default(claim: Claim, seen: Seen) -> float | None:
    return _ratio(claim.default_s, seen.by_default_s)


def _ratio(then_s: float | None, now_s: float | None) -> float | None:
    return now_s / then_s if then_s and now_s else None


def _apart(ratio: float) -> float:
    return max(ratio, 1 / ratio)
