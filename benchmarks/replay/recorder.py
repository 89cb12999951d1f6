"""What works on the recording of one task: workers of their own, and a journal that survives them.

See `benchmarks/replay/record_space.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.candidate import Candidate, Draft
from tuner.effort import EFFORTS, Timing
from tuner.errors import TunerError
from tuner.measure import Evaluated
from tuner.record import Measurement, Predicted, Record, Trial
from tuner.runs.lock import RunLock
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

if TYPE_CHECKING:
    from actors.builder import Built
    from actors.runner import Runner

AGAIN = Timing(total_s=0.030, sample_s=0.003, min_samples=5, max_samples=10)
_PROBE = Timing(total_s=0.012, sample_s=0.003, min_samples=3, max_samples=5)
_HOPELESS = 12.0
"""Times the best: beyond, a bound says enough."""
_BUILD_DEADLINE_S, _RUN_DEADLINE_S = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """What became of one draft: a line of the journal.

    Attributes:
        parent: key of what it mutated; empty for a fresh sample.
        key: of the candidate; empty where the draft was refused.
        code_hash: of its program; empty where it was not measured for this draft.
        repeat: whether it, or its program, was known already.
    """

    number: int
    parent: str
    key: str
    code_hash: str
    repeat: bool


class Hand:
    """One core's workers: a space worker and a builder, used by a thread of their own."""

    def __init__(self, task: Task, logs: Path, number: int) -> None:
        self._thread = ThreadPoolExecutor(1, f"hand-{number}")
        self._thread.submit(self._start, task, logs, number).result()

    def _start(self, task: Task, logs: Path, number: int) -> None:
        from actors.builder import Builder
        from actors.space_worker import SpaceWorker

        self._task = task
        self._space = SpaceWorker(log_dir=logs, name=f"space-{number}")
        self._space.put_tasks([task])
        self._builder = Builder(log_dir=logs, name=f"builder-{number}")

    def evaluate(self, drafts: Sequence[Draft]) -> Future[list[Evaluated]]:
        """Carry out drafts."""
        return self._thread.submit(self._space.evaluate, drafts, 60.0)

    def build(self, candidates: Sequence[Candidate]) -> Future[list[Built | Measurement]]:
        """Build candidates."""
        return self._thread.submit(
            lambda: [self._builder.build(self._task, c, _BUILD_DEADLINE_S) for c in candidates]
        )

    def close(self) -> None:
        """Stop the workers."""
        self._thread.submit(self._space.close)
        self._thread.submit(self._builder.close)
        self._thread.shutdown()


class Journal:
    """All that was drawn and measured of one task, on disk: what a killed recording goes on from.

    Attributes:
        known: measured candidates by key, with their program's hash and parent.
        refused: drafts that no candidate came of: fresh samples, and mutations.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.store = SqliteStore(folder / "records.sqlite")
        self._path = folder / "drafts.jsonl"
        self.drawn: list[Drawn] = []
        if self._path.exists():
            lines = self._path.read_text().split("\n")[:-1]  # a torn last line is dropped
            self._path.write_text("".join(f"{line}\n" for line in lines))
            self.drawn = [Drawn(**json.loads(line)) for line in lines]

    def note(self, drawn: Sequence[Drawn]) -> None:
        """Keep what a batch of drafts came to. Their records must be stored before."""
        with self._path.open("a") as file:
            file.writelines(json.dumps(asdict(d)) + "\n" for d in drawn)
        self.drawn += drawn

    @property
    def number(self) -> int:
        """The next draft's number."""
        return 1 + max((d.number for d in self.drawn), default=0)

    def codes(self) -> set[str]:
        """Hashes of the programs that were measured."""
        return {d.code_hash for d in self.drawn if d.key and not d.repeat}

    def refused(self) -> tuple[int, int]:
        """How many fresh samples, and how many mutations, were refused."""
        bad = [bool(d.parent) for d in self.drawn if not d.key]
        return len(bad) - sum(bad), sum(bad)

    def close(self) -> None:
        """Let go of the files."""
        self.store.close()


@dataclass(frozen=True, slots=True)
class Bench:
    """What works on the recording of one task.

    Attributes:
        built: what was built, by the candidate's key.
    """

    task: Task
    hands: Sequence[Hand]
    runner: Runner
    journal: Journal
    built: dict[str, Built | Measurement] = field(default_factory=dict)

    def draw(self, drafts: Sequence[Draft]) -> None:
        """Carry out a batch of drafts, build what is new, time it, and keep it all."""
        self.take(self._spread("evaluate", drafts))

    def take(self, answers: Sequence[Evaluated]) -> None:
        """Build the candidates of a batch that are new, time them, and keep it all."""
        keys = {d.key for d in self.journal.drawn}
        fresh = {a.candidate.key: a for a in answers if a.candidate and a.candidate.key not in keys}
        built = self._spread("build", [a.candidate for a in fresh.values()])
        measured = self._measure_new(fresh, built)
        drawn = []
        for answer in answers:
            draft = answer.draft
            parent = draft.parent.key if draft.parent else ""
            key = answer.candidate.key if answer.candidate else ""
            code_hash = measured.pop(key, "")
            drawn.append(Drawn(draft.number, parent, key, code_hash, bool(key and not code_hash)))
        self.journal.note(drawn)

    def _measure_new(
        self, fresh: Mapping[str, Evaluated], built: Sequence[Built | Measurement]
    ) -> dict[str, str]:
        """Time what was built and is no program that was timed before. Return the hashes of these
        programs by the keys of their candidates; the key itself where there is no program."""
        from actors.builder import Built

        known, measured = self.journal.codes(), {}
        for (key, answer), result in zip(fresh.items(), built, strict=True):
            code_hash = result.written.code_hash if isinstance(result, Built) else key
            if code_hash not in known:
                known.add(code_hash)
                measured[key] = code_hash
                self.built[key] = result
                self._measure(answer, result)
        return measured

    def _spread(self, method: str, work: Sequence[Any]) -> list[Any]:
        """Give each hand its part; answers in order."""
        parts = [work[n :: len(self.hands)] for n in range(len(self.hands))]
        futures = [
            getattr(hand, method)(part) for hand, part in zip(self.hands, parts, strict=True)
        ]
        answers: list[Any] = [None] * len(work)
        for n, future in enumerate(futures):
            answers[n :: len(self.hands)] = future.result()
        return answers

    def _measure(self, answer: Evaluated, built: Built | Measurement) -> None:
        from actors.builder import Built

        candidate = answer.candidate
        assert candidate is not None
        if isinstance(built, Built):
            candidate = built.written.of(candidate)
        trial = Trial(self.task.key, candidate)
        measurement = self.time(built, _PROBE, cutoff=True)
        record = Record(trial, measurement, predicted=Predicted(estimate_s=answer.estimate_s))
        self.journal.store.append_many([(record, answer.features)])

    def time(self, built: Built | Measurement, timing: Timing, *, cutoff: bool) -> Measurement:
        """Check a build's output and time it; nothing else of ours works meanwhile."""
        if isinstance(built, Measurement):
            return built
        best = list(self.journal.store.scan(self.task.key, fastest=1))
        least_s = best[0].latency_s if best else None
        measured = self.runner.run(
            self.task,
            built.artifact,
            timing=timing,
            cutoff_s=_HOPELESS * least_s if cutoff and least_s else None,
            deadline_s=_RUN_DEADLINE_S,
        )
        return Measurement(
            measured.status, measured.samples_s, measured.error, built.build_s, measured.run_s
        )

    def retime(self, chosen: Sequence[Candidate], rounds: int) -> None:
        """Time candidates again, in rounds, each in the same order: drift meets all alike."""
        store, task = self.journal.store, self.task
        done = {r.trial.key for r in store.scan(task.key, min_rung=1)}
        trials = [Trial(task.key, c, rung=rung) for rung in range(1, 1 + rounds) for c in chosen]
        left = [trial for trial in trials if trial.key not in done]
        wanted = {trial.candidate.key: trial.candidate for trial in left}
        lacking = [c for key, c in wanted.items() if key not in self.built]
        built = self._spread("build", lacking)
        self.built.update((c.key, b) for c, b in zip(lacking, built, strict=True))
        for trial in left:
            measured = self.time(self.built[trial.candidate.key], AGAIN, cutoff=False)
            store.append_many([(Record(trial, measured), None)])


@contextmanager
def bench(task: Task, work: Path, cores: int) -> Iterator[Bench]:
    """Workers and journal of one task.

    Raises:
        TunerError: another process records it, or its reference output cannot be made.
    """
    folder = work / f"{task.name}-{task.key}"
    folder.mkdir(parents=True, exist_ok=True)
    with RunLock(folder / "run.lock"):
        yield from _working(task, folder, cores)


def _working(task: Task, folder: Path, cores: int) -> Iterator[Bench]:
    from actors.runner import Runner

    journal = Journal(folder)
    journal.store.put(Tasks([task]))
    hands = [Hand(task, folder, n) for n in range(cores)]
    runner = Runner(target=task.target, log_dir=folder, scratch=folder)
    try:
        runner.ready()
        if error := runner.learn(task, (), EFFORTS["max"].reference_deadline_s).error:
            raise TunerError(f"the reference output of {task.name}: {error}")
        yield Bench(task, hands, runner, journal)
    finally:
        runner.close()
        for hand in hands:
            hand.close()
        journal.close()
