"""Base models: cost models to begin with, trained on earlier runs' records, kept as one file.

A base model has learned from other tasks: it ranks a run's candidates before anything was
measured, and the run fits further trees on top of it as records come in. It is for one family of
targets and one version of the features; both are written into its file, and a model that does not
fit is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Features
from tuner.candidate import Candidate, form_of
from tuner.cost_models.base import CostModel, pairwise_accuracy
from tuner.cost_models.dataset import Dataset, Examples
from tuner.cost_models.prior import PriorModel
from tuner.errors import TunerError
from tuner.request.target_text import EMULATED, is_emulated, marks_of
from tuner.storage.base import RecordStore
from tuner.task import Task

FORMAT = 3
NAME_PREFIX = "tuner-cost-model-"
_FOLDS = 5


def family(target_json: str) -> str:
    """The family of a target, whose records go into one model: one kind, one processor, and apart
    from others fast math and cold caches. That of the emulated device is its own, and has no model.

    The number of threads is left out: the features hold it where it matters.

    Args:
        target_json: canonical JSON of a target.
    """
    target: dict[str, Any] = json.loads(target_json)
    kind = "emulated" if is_emulated(target_json) else str(target.get("kind", "unknown"))
    processor = str(target.get("mcpu") or target.get("arch") or "generic")
    marks = sorted(marks_of(target_json) - {EMULATED})
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join([kind, processor, *marks]))


def default_name(of_family: str) -> str:
    """The default name to register a family's model under."""
    return NAME_PREFIX + of_family


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A trained model and its purpose.

    Attributes:
        model: the model of programs, as `XgbModel.dump` wrote it; empty where none was learned.
        family: family of the targets it learned from.
        features: version of the feature vectors it reads.
        tasks: number of tasks it learned from.
        records: number of measured candidates it learned from.
        accuracy: share of pairs ordered correctly on tasks it had not seen, found by leaving
            tasks out; None with a single task.
        created_s: seconds since the epoch.
        priors: models of templates' settings, by form, as `tuner.cost_models.prior.PriorModel`
            dumps them.
    """

    model: bytes
    family: str
    features: str
    tasks: int
    records: int
    accuracy: float | None
    created_s: float
    priors: Mapping[str, bytes] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of a model file."""
        models = {
            "model": _text_of(self.model),
            "priors": {form: _text_of(data) for form, data in self.priors.items()},
        }
        return json.dumps({"format": FORMAT} | asdict(self) | models) + "\n"


def _text_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes_of(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def base_model_from_json(text: str, *, where: str) -> BaseModel:
    """Parse what `BaseModel.to_json` wrote.

    Raises:
        TunerError: it is not such a file, or of another format; `where` names it.
    """
    try:
        raw: dict[str, Any] = json.loads(text)
        if (found := raw.pop("format")) != FORMAT:
            raise TunerError(
                f"{where} is a base model of format {found}, this tuner reads {FORMAT}: train anew"
            )
        raw["model"] = _bytes_of(raw["model"])
        raw["priors"] = {form: _bytes_of(data) for form, data in raw["priors"].items()}
        model = BaseModel(**raw)
        if not all(isinstance(t, str) and t for t in (model.family, model.features)):
            raise TypeError("family or features")
        return model
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise TunerError(f"{where} is no base model: make one with 'tuner train'") from error


def read_base_model(path: Path) -> BaseModel:
    """A base model from a file.

    Raises:
        TunerError: the file is missing, or cannot be read.
    """
    try:
        return base_model_from_json(path.read_text(encoding="utf-8"), where=str(path))
    except FileNotFoundError as error:
        raise TunerError(f"there is no base model {path}") from error
    except UnicodeDecodeError as error:
        raise TunerError(f"{path} is no base model: make one with 'tuner train'") from error
    except OSError as error:
        raise TunerError(f"cannot read {path}: {error.strerror or error}") from error


def refuse_misfit(base: BaseModel, *, target: str, features: str, name: str) -> None:
    """Refuse a model that cannot score candidates of a target.

    A model for another processor of the same kind is accepted: the user named it.

    Raises:
        TunerError: it is for another kind of target, or reads other features.
    """
    if base.features != features:
        raise TunerError(
            f"base model {name} reads features of version {base.features}, this tuner makes "
            f"version {features}: train it anew with 'tuner train', or use --base-model none"
        )
    kind = family(target).partition("-")[0]
    if base.family.partition("-")[0] != kind:
        raise TunerError(
            f"base model {name} is for {base.family}, not for {kind}: "
            "name another, or use --base-model none"
        )


def training_set(stores: Iterable[RecordStore], *, columns: int) -> Examples:
    """All measured programs of several runs, each task of each run, device and toolchain a group.

    Times of different runs are not compared with each other: a group is what one run measured of
    one task on one device with one toolchain. Records without features, or with a vector of another
    length than `columns`, are left out, and so are groups with less than two rows.
    """
    found = (_groups(s, partial(_read_vectors, s, columns), lambda space: "") for s in stores)
    return together([group for groups in found for _, group in groups])


def _read_vectors(store: RecordStore, columns: int, task: Task) -> Describe:
    """The vectors of a task that a store has, of so many columns."""
    known = store.features(task.key)

    def describe(candidate: Candidate) -> Features | None:
        vector = known.get(candidate.key)
        return vector if vector is not None and len(vector) == columns else None

    return describe


def settings_set(
    stores: Iterable[RecordStore], describe: Callable[[Task], Describe]
) -> dict[str, Examples]:
    """The same of the settings of templates, whose features are worked out anew, by form."""
    found: dict[str, list[Examples]] = {}
    for store in stores:
        for form, group in _groups(store, describe, form_of):
            found.setdefault(form, []).append(group)
    return {form: together(groups) for form, groups in found.items()}


def together(parts: Sequence[Examples]) -> Examples:
    """Join the examples of several tasks, each as a group of its own; of none, no rows."""
    if not parts:
        none = np.zeros(0, dtype=np.float32)
        return Examples(none[:, None], none, none.astype(np.int32))
    return Examples(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.latencies_s for part in parts]),
        np.concatenate([np.full(len(p), n, dtype=np.int32) for n, p in enumerate(parts)]),
        np.concatenate([part.bounds for part in parts]),
    )


Describe = Callable[[Candidate], Features | None]
"""Features of a task's candidate; None where there are none."""


def _groups(
    store: RecordStore, describe_task: Callable[[Task], Describe], part: Callable[[str], str]
) -> Iterator[tuple[str, Examples]]:
    """The groups of a store that have two rows or more.

    Args:
        part: gives the part of a space by its name: what is of another part is another group.
    """
    for task in store.tasks():
        describe = describe_task(task)
        parts: dict[str, dict[tuple[str, str], Dataset]] = {}
        for record in store.scan(task.key):
            if (vector := describe(record.trial.candidate)) is not None:
                device, toolchain = record.provenance.device, record.provenance.toolchain
                by_device = parts.setdefault(part(record.trial.candidate.space), {})
                by_device.setdefault((device, toolchain), Dataset()).add(record, vector)
        for name, by_device in parts.items():
            yield from ((name, group) for group in _of_devices(by_device) if len(group) > 1)


def _of_devices(by_device: dict[tuple[str, str], Dataset]) -> list[Examples]:
    """What was measured on each device with each toolchain. Candidates that failed before they
    reached a device have none: they join the largest."""
    homeless = [by_device.pop(d) for d in list(by_device) if not d[0] and len(by_device) > 1]
    groups = sorted((d.snapshot() for d in by_device.values()), key=len, reverse=True)
    for more in homeless:
        if len(more):
            groups[0] = groups[0].with_more(more.snapshot())
    return groups


def learn(
    programs: Examples,
    settings: Mapping[str, Examples],
    family: str,
    features: str,
    created_s: float,
) -> BaseModel:
    """The base model of what was measured of programs and of templates' settings, by form.

    Raises:
        TunerError: nothing was.
    """
    records = len(programs) + sum(map(len, settings.values()))
    if not records:
        raise TunerError(
            "these runs hold nothing to learn from: no task has two records whose features are "
            "of this version"
        )
    priors = [(examples, PriorModel) for examples in settings.values()]
    found: list[tuple[Examples, Callable[[int], CostModel] | None]] = [(programs, None), *priors]
    judged = [(len(np.unique(e.groups)), accuracy_on_others(e, make)) for e, make in found]
    known = [(tasks, accuracy) for tasks, accuracy in judged if accuracy is not None]
    return BaseModel(
        model=train(programs) if len(programs) else b"",
        family=family,
        features=features,
        tasks=sum(tasks for tasks, _ in judged),
        records=records,
        accuracy=sum(n * a for n, a in known) / sum(n for n, _ in known) if known else None,
        created_s=created_s,
        priors={form: train(examples, PriorModel) for form, examples in settings.items()},
    )


def train(
    examples: Examples, make: Callable[[int], CostModel] | None = None, *, seed: int = 0
) -> bytes:
    """A model of all rows, as it dumps itself.

    Args:
        make: makes a model; None is XGBoost's.
    """
    from tuner.cost_models.xgb import XgbModel

    model = (make or XgbModel)(seed)
    model.fit(examples.features, examples.latencies_s, examples.groups, examples.censored)
    return model.dump()


def accuracy_on_others(
    examples: Examples, make: Callable[[int], CostModel] | None = None, *, seed: int = 0
) -> float | None:
    """Share of pairs that models order correctly on groups they did not learn from.

    The mean over groups, each judged by a model that learned from the other folds; at most five
    are fitted. None with less than two groups.

    Args:
        make: makes a model; None is XGBoost's.
    """
    from tuner.cost_models.xgb import XgbModel

    make = make or XgbModel
    numbers = np.unique(examples.groups)
    found: list[float] = []
    folds = min(_FOLDS, len(numbers))
    for fold in range(folds if len(numbers) > 1 else 0):
        out = np.isin(examples.groups, numbers[fold::folds])
        model = make(seed)
        model.fit(
            examples.features[~out],
            examples.latencies_s[~out],
            examples.groups[~out],
            examples.bounds[~out],
        )
        for number in numbers[fold::folds]:
            rows = examples.groups == number
            share = pairwise_accuracy(
                model.predict(examples.features[rows]),
                examples.latencies_s[rows],
                examples.groups[rows],
                examples.bounds[rows],
            )
            if share is not None:
                found.append(share)
    return math.fsum(found) / len(found) if found else None
