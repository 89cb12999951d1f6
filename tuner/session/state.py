"""A session's knowledge of its tasks: each record is stored first, then learned from, then told."""

from __future__ import annotations

import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.arrays import Features
from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.base import FittedModel
from tuner.cost_models.checkpoints import Checkpoints
from tuner.cost_models.dataset import Dataset
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.shapes import choose_measured, shape_text
from tuner.measure import Evaluated
from tuner.record import Predicted, Record, Status, Trial, TrialKey
from tuner.request.target_text import is_emulated
from tuner.search.base import ChoosesKernels, Doubts, KnowsCandidates, Search, by_task
from tuner.search.dynamic.specialization import specializations
from tuner.session.ending.doubling import Doublings, Place
from tuner.session.estimate_accuracy import EstimateQuality
from tuner.session.observer import Observer
from tuner.storage.base import RecordStore
from tuner.storage.facts import Sizes
from tuner.task import Instance, Task
from tuner.user_code.faults import LayerFailed
from tuner.view.progress import TaskProgress, fold

_log = logging.getLogger(__name__)

_ANSWERS_KEPT = 20_000
_JUDGED_AFTER = 1.05
"""Growth of the number of trials after which the next doubling is predicted anew."""


class SessionState:
    """Takes in a run's records and answers, and passes them on to searches, model and observers.

    Args:
        defaults: the default candidate of each task.
        searches: one for each task; they learn from earlier sessions' records at once.
        store: gets each new record before anyone hears of it.

    Attributes:
        progress: of each task.
        dataset: training data of the cost model.
        new_records: number of records that this session added.
        spent: trials that count against the budget, those of earlier sessions too.
        chosen_s: latency of the kernel set chosen for each task with many shapes, by its key.
        next_gain: see `tuner.view.progress.Snapshot`.
        left_out: why nothing is measured of a task any more, by its key.
        answered: keys of the tasks that have candidates, or were refused some.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        defaults: Mapping[str, Candidate],
        searches: Mapping[str, Search],
        store: RecordStore,
        observers: Sequence[Observer],
    ) -> None:
        self.searches = searches
        self.progress = fold(tasks, {k: c.key for k, c in defaults.items()}, ())
        self.dataset = Dataset()
        self.new_records = 0
        self.spent = 0
        self.chosen_s: dict[str, float] = {}
        self.left_out: dict[str, str] = {}
        self.answered: set[str] = set()
        self._store = store
        self._observers = observers
        self._seen: set[TrialKey] = set()
        self._sets: dict[str, KernelSet | None] = {}  # of tasks with no new record since
        self._answers: OrderedDict[tuple[str, str], Evaluated] = OrderedDict()
        self._estimates = EstimateQuality(tasks)
        self._processes = EstimateQuality()
        self._checkpoints = Checkpoints()
        self._doublings = Doublings(_weights(tasks))
        self._judged_at = 0
        self.next_gain: float | None = None
        self._know_candidates = [s for s in searches.values() if isinstance(s, KnowsCandidates)]
        self._sizes = {key: dict(mine) for key, mine in store.get(Sizes).by_task.items()}
        self._refusals: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._resume()

    @property
    def modelled(self) -> bool:
        """Whether times are a model's, of the emulated device."""
        return any(is_emulated(known.task.target) for known in self.progress.values())

    def _resume(self) -> None:
        """Take in the records of earlier sessions from the store."""
        features = {key: self._store.features(key) for key in self.progress}
        for record in self._store.scan():
            task_key = record.trial.task_key
            if task_key in self.progress:
                known = features[task_key].get(record.trial.candidate.key)
                self._learn_from(record, known)

    def has(self, trial: Trial) -> bool:
        """Whether the trial has its record."""
        return trial.key in self._seen

    def doubts(self, record: Record) -> bool:
        """Whether a record contradicts what its search expected."""
        search = self.searches[record.trial.task_key]
        return isinstance(search, Doubts) and search.doubts(record)

    def leave_out(self, record: Record) -> None:
        """Give up a task whose kernels cannot be checked, and log that once.

        The record says nothing of its candidate and is not kept: the next session asks again.
        """
        trial = record.trial
        if trial.task_key in self.left_out:
            return
        where = f", on {shape_text(trial.instance)}" if trial.instance else ""
        said = f"task {self.progress[trial.task_key].task.name}{where} is left out: "
        self.left_out[trial.task_key] = said + record.measurement.error
        _log.warning("%s", self.left_out[trial.task_key])

    def keep(self, records: Sequence[Record]) -> list[Record]:
        """Store records, then tell of them. Return those that are new: each trial's first answer is
        the one that counts."""
        items = [self._with_features(record) for record in records]
        kept = self._store.append_many(items) if items else []
        new = []
        for (record, features), is_new in zip(items, kept, strict=True):
            if is_new:
                self.new_records += 1
                self._learn_from(record, features)
                self._tell_of(record)
                new.append(record)
        return new

    def keep_untold(self, record: Record) -> None:
        """Store a record that nobody will hear of."""
        if record.measurement.status is not Status.UNCHECKED:
            self._store.append_many([self._with_features(record)])

    def absorb(self, answers: Sequence[Evaluated]) -> None:
        """Take in the answers to drafts.

        Raises:
            LayerFailed: an object of the user's is at fault.
        """
        if fault := next((answer.fault for answer in answers if answer.fault), ""):
            raise LayerFailed(fault)
        for task_key, answered in by_task(answers).items():
            self.searches[task_key].absorb(answered)
            if any(answer.settings or not answer.draft.listing for answer in answered):
                self.answered.add(task_key)
            for answer in answered:
                if answer.draft.listing and not answer.error:
                    continue
                if answer.candidate is None:
                    self._note_refusal(answer)
                else:
                    self._answers[task_key, answer.candidate.key] = answer
            self._note_sizes(task_key, answered)
        while len(self._answers) > _ANSWERS_KEPT:
            self._answers.popitem(last=False)  # most candidates are never measured

    def _note_sizes(self, task_key: str, answered: Sequence[Evaluated]) -> None:
        """Keep how many points spaces have, where that is news."""
        known = self._sizes.setdefault(task_key, {})
        told = {a.candidate.space: a.space_points for a in answered if a.candidate is not None}
        news = {s: n for s, n in told.items() if n is not None and known.get(s) != n}
        if news:
            known.update(news)
            self._store.put(Sizes({task_key: news}))

    def choose_kernels(self) -> None:
        """Choose the kernel set of each task with many shapes, and tell of it."""
        for task_key in self.searches:
            if (chosen := self._kernel_set(task_key)) is not None:
                self.chosen_s[task_key] = chosen.latency_s
                for observer in self._observers:
                    observer.on_kernels(task_key, chosen)

    def serving(self) -> list[tuple[TaskProgress, list[tuple[Candidate, Instance]]]]:
        """Each task with many shapes, with pairs of a kernel chosen as of now and a shape that it
        is chosen for; only shapes that are measured."""
        found = []
        for task_key, progress in self.checked():
            if (chosen := self._kernel_set(task_key)) is not None:
                measured = {instance for instance, _ in choose_measured(progress.task.shapes)}
                pairs = [(chosen.kernels[s.kernel], s.instance) for s in chosen.shapes]
                found.append((progress, [pair for pair in pairs if pair[1] in measured]))
        return found

    def specializations(self, rounds: int, generation: int = 0) -> list[Trial]:
        """Trials that are still to be made of specialised copies of the kernels chosen as of now;
        see `tuner.search.dynamic.specialization`."""
        found: list[Trial] = []
        for task_key, progress in self.checked():
            if (chosen := self._kernel_set(task_key)) is not None:
                found.extend(specializations(progress.task, chosen, rounds, generation))
        return [trial for trial in found if not self.has(trial)]

    def checked(self) -> list[tuple[str, TaskProgress]]:
        """The tasks that were not left out, with their progress."""
        return [(k, p) for k, p in self.progress.items() if k not in self.left_out]

    def _kernel_set(self, task_key: str) -> KernelSet | None:
        search = self.searches[task_key]
        if not isinstance(search, ChoosesKernels):
            return None
        if task_key not in self._sets:
            self._sets[task_key] = search.kernel_set(tuple(self._store.scan(task_key)))
        return self._sets[task_key]

    @property
    def exhausted(self) -> bool:
        """Whether no search has anything left to try."""
        return not any(map(self.is_open, self.searches))

    def is_open(self, task_key: str) -> bool:
        """Whether more trials of a task may come."""
        return task_key not in self.left_out and not self.searches[task_key].exhausted

    @property
    def estimate_accuracy(self) -> float | None:
        """Share of pairs of candidates that the analytic estimates order correctly."""
        return self._estimates.accuracy

    @property
    def process_accuracy(self) -> float | None:
        """The same of the times that searches expected of templates' settings."""
        return self._processes.accuracy

    def process(self) -> FittedModel | None:
        """The process of templates' settings, when it is time to keep it."""
        times = sum(search.times for search in self._know_candidates)
        return self._checkpoints.take(
            times,
            lambda: (search.examples() for search in self._know_candidates if search.times),
            self.process_accuracy,
        )

    def gains_less_than(self, share: float) -> bool:
        """Whether the next doubling of the trials is predicted to save less than a share of the
        model's time. Predicted anew once there are some more trials."""
        if self.spent >= _JUDGED_AFTER * self._judged_at and self.spent > self._judged_at:
            self._judged_at = self.spent
            self.next_gain = self._doublings.next_gain(self.spent, self._expect_s)
        return self.next_gain is not None and self.next_gain < share

    def _expect_s(self, task_key: str, candidates: Sequence[Candidate]) -> Sequence[float] | None:
        search = self.searches[task_key]
        return search.expect_s(candidates) if isinstance(search, KnowsCandidates) else None

    @property
    def complaint(self) -> str:
        """A line for people: a task was left out, or no trial gave a time, or no draft was valid so
        far; empty otherwise."""
        if self.left_out:
            first, *others = self.left_out.values()
            return first + (f"; and {len(others)} more" if others else "")
        if self._errors and all(p.so_far_s is None for p in self.progress.values()):
            (reason, count), *_ = self._errors.most_common(1)
            return f"no trial gave a time so far; {count} failed: {reason}"
        if self._refusals and not self._answers and not len(self.dataset):
            (reason, count), *_ = self._refusals.most_common(1)
            return f"no draft was valid so far; {count} were refused: {reason}"
        return ""

    def _with_features(self, record: Record) -> tuple[Record, Features | None]:
        """A new record, with its program's hash, what was predicted of it, and its features, from
        the answer to its draft."""
        trial = record.trial
        answer = self._answer_for(trial)
        if answer and answer.code_hash and not record.code_hash:
            record = replace(record, code_hash=answer.code_hash)
        if answer:
            record = replace(record, predicted=self._predict(answer, trial.instance))
            if record.latency_s is not None:
                self._estimates.judge(answer, trial.instance, record.latency_s)
                if answer.model_version and answer.features is None:  # a setting's, of a pool
                    expected_s = math.exp(-answer.score)
                    self._processes.add(trial.task_key, expected_s, record.latency_s)
        return record, answer.features if answer else None

    def _predict(self, answer: Evaluated, instance: Instance) -> Predicted | None:
        """The merit that an answer's candidate was thought to have; None where nothing was."""
        estimate_s = self._estimates.estimate_s(answer, instance)
        if estimate_s is not None and not math.isfinite(estimate_s):
            estimate_s = None
        scored = answer.model_version > 0 and math.isfinite(answer.score)
        if scored:
            return Predicted(float(answer.score), answer.model_version, estimate_s)
        return None if estimate_s is None else Predicted(estimate_s=estimate_s)

    def _answer_for(self, trial: Trial) -> Evaluated | None:
        key = (trial.task_key, trial.candidate.key)
        # A kernel for several shapes is measured more than once.
        answer = self._answers.get(key) if trial.instance else self._answers.pop(key, None)
        search = self.searches[trial.task_key]
        if answer is None and isinstance(search, KnowsCandidates):
            return search.answer_for(trial.candidate)
        return answer

    def _tell_of(self, record: Record) -> None:
        best_s = self.progress[record.trial.task_key].best_s
        for observer in self._observers:
            observer.on_record(record, best_s)

    def _learn_from(self, record: Record, features: Features | None) -> None:
        self._seen.add(record.trial.key)
        self._sets.pop(record.trial.task_key, None)
        if record.measurement.error:
            self._errors[record.measurement.error.splitlines()[0]] += 1
        progress = self.progress[record.trial.task_key]
        self.spent -= progress.spent
        progress.observe(record)
        self.spent += progress.spent
        self._doublings.observe(record, self.spent)
        if record.trial.candidate.kind is not CandidateKind.LIBRARY:  # it is no point of a space
            self.searches[record.trial.task_key].observe([record])
        if features is not None and not record.trial.instance:
            self.dataset.add(record, features)  # kernels of many shapes have a model of their own

    def _note_refusal(self, answer: Evaluated) -> None:
        """Refused drafts are ordinary; each reason is worth one line in the log."""
        if answer.error not in self._refusals:
            _log.info("task %s: draft refused: %s", answer.draft.task_key, answer.error)
        self._refusals[answer.error] += 1


def _weights(tasks: Sequence[Task]) -> dict[Place, float]:
    """How often a model runs each task on each shape that is measured, by their shares."""
    found: dict[Place, float] = {}
    for task in tasks:
        shapes = choose_measured(task.shapes) if task.shapes else (((), 1.0),)
        total = sum(weight for _, weight in shapes)
        found.update({(task.key, i): task.weight * weight / total for i, weight in shapes})
    return found
