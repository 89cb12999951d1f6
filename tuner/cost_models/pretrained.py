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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.checks import EMULATED, is_emulated, marks_of
from tuner.cost_models.base import pairwise_accuracy
from tuner.cost_models.dataset import Dataset, Examples
from tuner.errors import TunerError
from tuner.storage.base import RecordStore

FORMAT = 1
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


def registered_name(of_family: str) -> str:
    """The default name to register a family's model under."""
    return NAME_PREFIX + of_family


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A trained model and its purpose.

    Attributes:
        model: the model, as `XgbModel.dump` wrote it.
        family: family of the targets it learned from.
        features: version of the feature vectors it reads.
        tasks: number of tasks it learned from.
        records: number of measured candidates it learned from.
        accuracy: share of pairs ordered correctly on tasks it had not seen, found by leaving
            tasks out; None with a single task.
        created_s: seconds since the epoch.
    """

    model: bytes
    family: str
    features: str
    tasks: int
    records: int
    accuracy: float | None
    created_s: float

    def to_json(self) -> str:
        """The text of a model file."""
        plain = asdict(self) | {"model": base64.b64encode(self.model).decode("ascii")}
        return json.dumps({"format": FORMAT} | plain) + "\n"


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
        model = BaseModel(**raw | {"model": base64.b64decode(raw["model"], validate=True)})
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
    """All measured candidates of several runs, each task of each run, device and toolchain a group.

    Times of different runs are not compared with each other: a group is what one run measured of
    one task on one device with one toolchain. Records without features, or with a vector of another
    length than `columns`, are left out, and so are groups with less than two rows.

    Raises:
        TunerError: no rows are left.
    """
    parts = [part for store in stores for part in _groups(store, columns) if len(part) > 1]
    if not parts:
        raise TunerError(
            "these runs hold nothing to learn from: no task has two records whose features are "
            "of this version"
        )
    return together(parts)


def together(parts: Sequence[Examples]) -> Examples:
    """Join the examples of several tasks, each as a group of its own."""
    return Examples(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.latencies_s for part in parts]),
        np.concatenate([np.full(len(p), n, dtype=np.int32) for n, p in enumerate(parts)]),
        np.concatenate([part.bounds for part in parts]),
    )


def _groups(store: RecordStore, columns: int) -> Iterator[Examples]:
    for task in store.tasks():
        features = store.features(task.key)
        by_device: dict[tuple[str, str], Dataset] = {}
        for record in store.scan(task.key):
            vector = features.get(record.trial.candidate.key)
            if vector is not None and len(vector) == columns:
                device, toolchain = record.provenance.device, record.provenance.toolchain
                by_device.setdefault((device, toolchain), Dataset()).add(record, vector)
        # Candidates that failed before they reached a device have none: they join the largest.
        homeless = [by_device.pop(d) for d in list(by_device) if not d[0] and len(by_device) > 1]
        groups = sorted((d.snapshot() for d in by_device.values()), key=len, reverse=True)
        for more in homeless:
            if len(more):
                groups[0] = groups[0].with_more(more.snapshot())
        yield from groups


def train(examples: Examples, *, seed: int = 0) -> bytes:
    """A cost model of all rows, as `XgbModel.dump` writes it."""
    from tuner.cost_models.xgb import XgbModel

    model = XgbModel(seed)
    model.fit(examples.features, examples.latencies_s, examples.groups, examples.censored)
    return model.dump()


def accuracy_on_others(examples: Examples, *, seed: int = 0) -> float | None:
    """Share of pairs that models order correctly on groups they did not learn from.

    The mean over groups, each judged by a model that learned from the other folds; at most five
    are fitted. None with less than two groups.
    """
    from tuner.cost_models.xgb import XgbModel

    numbers = np.unique(examples.groups)
    found: list[float] = []
    folds = min(_FOLDS, len(numbers))
    for fold in range(folds if len(numbers) > 1 else 0):
        out = np.isin(examples.groups, numbers[fold::folds])
        model = XgbModel(seed)
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
