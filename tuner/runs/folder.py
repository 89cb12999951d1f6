"""The folder of a run: the paths of its files, and its manifest.

    RUN/
      run.json              manifest: model, target, options, schema version; see `Manifest`
      run.lock              locked while a process works on the run; names that process
      records.sqlite        every trial, with the tasks, how long the run has worked, and what
                            MLflow is told beside them
                            (and records.sqlite-wal, records.sqlite-shm while it is open)
      model/                the model as it is tuned
      tracking/             how far all was pushed to MLflow, and the files that go with it:
                            records in numbered files, cost models
      mlflow.db             MLflow's own database, unless MLFLOW_TRACKING_URI says otherwise
      mlartifacts/          MLflow's own files, unless that variable says otherwise
      report.html           a page that shows the run, written at its end
      plots/                its charts as images
      import_check.json     whether the model is what its source is (import_check/: values where
                            they differ)
      bench.json            what `tuner bench` measured last
      scratch/              reference outputs, the job of the search at work; may be deleted
                            between sessions
      logs/                 output of workers and compilers, a file for each worker
      tuner.log             log of the run's events

A process that works on a run holds its lock; readers need no lock.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.files.atomic import NotExclusive, atomic_file
from tuner.precision import AS_IS, Precision, precision_from_json
from tuner.request.options import MAX_KERNELS

_MANIFEST = "run.json"
MANIFEST_VERSION = 1

LAYER = "layer:"
"""Begins the names of options that say which layers were a user's, and of what version."""
_OF_MEASUREMENTS = ("features", "builder", "runner", "measurer", "postprocs")
"""Layers without which what a run has measured means something else."""

_BESIDE = ("observers", "libraries")
"""Layers of which there are none but a user's."""

Option = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """All paths of the run in `root`. Naming a path neither makes nor reads it."""

    root: Path

    @property
    def manifest(self) -> Path:
        """The manifest's file."""
        return self.root / _MANIFEST

    @property
    def lock(self) -> Path:
        """The lock file, held by the process at work."""
        return self.root / "run.lock"

    @property
    def store(self) -> Path:
        """Database of the records."""
        return self.root / "records.sqlite"

    @property
    def model_dir(self) -> Path:
        """The model as it is tuned."""
        return self.root / "model"

    @property
    def tracking_dir(self) -> Path:
        """State of the tracker."""
        return self.root / "tracking"

    @property
    def mlflow_db(self) -> Path:
        """MLflow's database, if no server was named."""
        return self.root / "mlflow.db"

    @property
    def artifacts(self) -> Path:
        """MLflow's artifacts, if no server was named."""
        return self.root / "mlartifacts"

    @property
    def report(self) -> Path:
        """The page that shows the run."""
        return self.root / "report.html"

    @property
    def plots(self) -> Path:
        """The charts of that page as images."""
        return self.root / "plots"

    @property
    def import_check(self) -> Path:
        """Whether the model computes what its source does, see `tuner.runs.import_check`."""
        return self.root / "import_check.json"

    @property
    def bench(self) -> Path:
        """The whole model's latencies, as they were measured last."""
        return self.root / "bench.json"

    @property
    def scratch(self) -> Path:
        """Files that can be made again: reference outputs, and the job of a search."""
        return self.root / "scratch"

    @property
    def logs(self) -> Path:
        """Output of workers and compilers."""
        return self.root / "logs"

    @property
    def log(self) -> Path:
        """The log of the run's events."""
        return self.root / "tuner.log"

    def read_manifest(self) -> Manifest:
        """Read the manifest.

        Raises:
            TunerError: it is missing, damaged, or of another schema version.
        """
        try:
            text = self.manifest.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError) as error:
            if below := runs_below(self.root):
                raise folder_of_runs(self.root, below) from error
            raise TunerError(
                f"{self.root} is no run folder: it has no {self.manifest.name}"
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise TunerError(f"cannot read {self.manifest}: {error}") from error
        return manifest_from_json(text, where=self.manifest)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, whole or not at all; only for the holder of the lock.

        Raises:
            TunerError: the folder cannot be written.
        """
        try:
            with atomic_file(self.manifest) as file:
                file.write(manifest.to_json())
        except OSError as error:
            raise _unwritable(self.root, error) from error


@dataclass(frozen=True, slots=True)
class Manifest:
    """The identity of a run. Its model's hash and target never change; the rest is for people.

    Attributes:
        model: the model as the user named it.
        model_hash: SHA-256 of the tuned model.
        target: canonical JSON of the TVM target.
        options: the user's options, such as seed, effort and strategy.
        created_s: seconds since the epoch.
        tuner_version: version of the tuner that made the folder.
        mlflow: names that MLflow gave the run; None before.
        precision: types in which its model multiplies; None where these are the model's own.
    """

    model: str
    model_hash: str
    target: str
    options: Mapping[str, Option] = field(default_factory=dict)
    created_s: float = 0.0
    tuner_version: str = ""
    mlflow: Mapping[str, str] | None = None
    precision: Precision | None = None

    @property
    def max_kernels(self) -> int:
        """The most kernels that may serve the shapes of one program."""
        number = self.options.get("max_kernels")
        return MAX_KERNELS if number is None else int(number)

    def to_json(self) -> str:
        """The text of a manifest file."""
        return json.dumps({"schema": MANIFEST_VERSION} | asdict(self), indent=2) + "\n"


def manifest_from_json(text: str, *, where: Path | str) -> Manifest:
    """Parse a manifest.

    Args:
        text: as `Manifest.to_json` wrote it.
        where: the file, for messages.

    Raises:
        TunerError: it is damaged, or of another schema version.
    """
    try:
        raw: dict[str, Any] = json.loads(text)
        if (found := raw.pop("schema")) != MANIFEST_VERSION:
            raise TunerError(
                f"{where} has schema version {found}, this tuner reads version "
                f"{MANIFEST_VERSION}: use the tuner that wrote it{_of(raw)}, or a new run folder"
            )
        if strange := sorted(raw.keys() - {f.name for f in fields(Manifest)}):
            raise TunerError(
                f"{where} says {strange[0]}, which this tuner does not know: use the one that "
                f"wrote it{_of(raw)}, or a new run folder"
            )
        if (precision := raw.get("precision")) is not None:
            raw["precision"] = precision_from_json(precision)
        manifest = Manifest(**raw)
        texts = (manifest.model, manifest.model_hash, manifest.target)
        if not all(isinstance(t, str) for t in texts) or not isinstance(manifest.options, dict):
            raise TypeError("a value of another type than it should be")
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TunerError(f"{where} is damaged ({error}): use another run folder") from error


def _of(raw: Mapping[str, Any]) -> str:
    """The version of the tuner that wrote a manifest, where it says it."""
    version = raw.get("tuner_version")
    return f" ({version})" if isinstance(version, str) and version else ""


def read_run(folder: Path) -> tuple[RunFolder, Manifest]:
    """Open an existing run.

    Raises:
        TunerError: it is missing, damaged, or of another schema version.
    """
    run = RunFolder(folder)
    if not folder.exists():
        raise TunerError(f"there is no run folder {folder}")
    _refuse_segments(run)
    return run, run.read_manifest()


def refuse_unbegun(run: RunFolder, name: object) -> None:
    """Refuse a run without records.

    Args:
        name: the user's name of the run.

    Raises:
        TunerError: it has none.
    """
    if not run.store.exists():
        raise TunerError(f"{name} holds no records yet: the run has not begun")


def folder_of_runs(folder: object, below: Sequence[str]) -> TunerError:
    """What to say where a run was meant, and the folder only holds some.

    Args:
        below: their names, as `runs_below` gives them.
    """
    return TunerError(f"{folder} is a folder of runs: name one, as {below[0]}")


def runs_below(folder: Path) -> list[str]:
    """Names of the runs that lie in a folder, as a user would type them."""
    return sorted(str(manifest.parent) for manifest in folder.glob(f"*/{_MANIFEST}"))


def open_run(folder: Path, wanted: Manifest) -> tuple[RunFolder, Manifest]:
    """Open the run folder for this model and target: a new one, or one to continue.

    Safe against another process that opens the same folder at the same time: one manifest is
    written and both see it.

    Args:
        folder: path of the folder, which is made if it is missing, parents included.
        wanted: manifest for a new run; model hash and target must match those of an old run.

    Returns:
        The folder, and the manifest in force: for an old run the one it began with.

    Raises:
        TunerError: the folder is of another model, target or schema version, holds files that are
            not a run's, or cannot be written.
    """
    run = RunFolder(folder)
    _refuse_segments(run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not run.manifest.exists():
            _refuse_foreign_files(run)
            _create_manifest(run, wanted)
        with tempfile.TemporaryFile(dir=folder):  # an old folder may have become read-only
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error
    found = run.read_manifest()
    refuse_other_run(run.root, found, wanted)
    return run, found


def _create_manifest(run: RunFolder, wanted: Manifest) -> None:
    try:
        with atomic_file(run.manifest, replace=False) as file:
            file.write(wanted.to_json())
    except FileExistsError:
        return  # another process was first: the caller compares
    except NotExclusive:
        run.write_manifest(wanted)  # if two do this at the same moment, the last one counts


def _refuse_foreign_files(run: RunFolder) -> None:
    """Keep a mistyped `--run` from scattering a run over a folder of other things."""
    ours = {path.name for path in (run.lock, run.log, run.scratch, run.tracking_dir, run.model_dir)}
    for name in sorted(os.listdir(run.root)):
        if name not in ours and not name.startswith(f".{run.manifest.name}."):
            raise TunerError(
                f"{run.root} is no run folder but holds {name}: name a new or empty folder"
            )


def _refuse_segments(run: RunFolder) -> None:
    """Refuse a folder whose records are segments: a second store must not grow beside them."""
    if (run.root / "segments").is_dir():
        raise TunerError(
            f"the records of {run.root} are segments: name it {run.root.absolute().as_uri()}"
        )


def refuse_other_run(name: Path | str, found: Manifest, wanted: Manifest) -> None:
    """Refuse a run of another model or target.

    Args:
        name: the user's name of the run.

    Raises:
        TunerError: it is of another.
    """
    if found.model_hash != wanted.model_hash:
        raise TunerError(
            f"{name} is a run of another model ({found.model}, "
            f"{found.model_hash[:12]} instead of {wanted.model_hash[:12]}): "
            "name another run folder"
        )
    if found.target != wanted.target:
        raise TunerError(
            f"{name} is a run for another target ({found.target} instead of "
            f"{wanted.target}): name another run folder"
        )
    if found.precision != wanted.precision:
        was, is_now = (m.precision.asked if m.precision else AS_IS for m in (found, wanted))
        raise TunerError(
            f"{name} was begun with --precision {was}, not {is_now}: name another run folder"
        )
    begun, now = found.options.get("space_version"), wanted.options.get("space_version")
    if begun and now and begun != now:
        raise TunerError(
            f"{name} was begun with another {found.options['space']}, whose points are not those "
            f"of {wanted.options['space']} as it is now: name another run folder"
        )
    for layer in _OF_MEASUREMENTS:
        begun, now = (m.options.get(f"{LAYER}{layer}") for m in (found, wanted))
        if begun != now:
            raise TunerError(
                f"{name} was begun with {_show(layer, begun)}, not with {_show(layer, now)}: its "
                "measurements are not comparable: name another run folder"
            )


def other_layers(found: Manifest, wanted: Manifest) -> list[str]:
    """Lines on the layers that a run goes on with, where they are not those that it began with."""
    names = {n for m in (found, wanted) for n in m.options if n.startswith(LAYER)}
    return [
        f"it goes on with {_show(layer, now)} instead of {_show(layer, begun)}"
        for name in sorted(names)
        if (layer := name.removeprefix(LAYER)) not in _OF_MEASUREMENTS
        and (begun := found.options.get(name)) != (now := wanted.options.get(name))
    ]


def _show(layer: str, version: object) -> str:
    ours = "no" if layer in _BESIDE else "our"
    return f"the {layer} {version}" if version else f"{ours} {layer}"


def _unwritable(folder: Path, error: OSError) -> TunerError:
    free = "free space or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return TunerError(
        f"cannot write to the run folder {folder}: {error.strerror or error}; "
        f"{free}name another with --run"
    )
