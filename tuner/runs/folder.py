"""The folder of a run: where everything is, and whose run it is.

    RUN/
      run.json              manifest: model, target, options, schema version; see `Manifest`
      run.lock              locked while a process works on the run; names that process
      records.sqlite        every trial, with the tasks and how long the run has worked
                            (and records.sqlite-wal, records.sqlite-shm while it is open)
      model/                the model as it is tuned
      tracking/             what MLflow is told beside the records, and how far it has been told:
                            the spool, records in numbered files, cost models
      mlflow.db             MLflow's own database, unless MLFLOW_TRACKING_URI says otherwise
      mlartifacts/          MLflow's own files, likewise
      scratch/              reference outputs, what the search at work was told to do; may be
                            deleted between sessions
      logs/                 what workers and compilers printed, a file for each worker
      tuner.log             what happened, in lines

Whoever works on a run holds its lock; readers need none.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.files.atomic import NotExclusive, atomic_file
from tuner.options import MAX_KERNELS

_MANIFEST = "run.json"
MANIFEST_VERSION = 1

Option = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """All paths of the run in `root`. Nothing is made or looked at by naming it."""

    root: Path

    @property
    def manifest(self) -> Path:
        """Whose run it is."""
        return self.root / _MANIFEST

    @property
    def lock(self) -> Path:
        """Held by the process at work."""
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
    def spool(self) -> Path:
        """What the tracking server has still to be told."""
        return self.tracking_dir / "spool.jsonl"

    @property
    def mlflow_db(self) -> Path:
        """MLflow's database, where no server was named."""
        return self.root / "mlflow.db"

    @property
    def artifacts(self) -> Path:
        """MLflow's artifacts, where no server was named."""
        return self.root / "mlartifacts"

    @property
    def scratch(self) -> Path:
        """Can be made again: reference outputs, and the order of a search."""
        return self.root / "scratch"

    @property
    def logs(self) -> Path:
        """What workers and compilers printed."""
        return self.root / "logs"

    @property
    def log(self) -> Path:
        """Lines of what happened."""
        return self.root / "tuner.log"

    def read_manifest(self) -> Manifest:
        """Whose run it is.

        Raises:
            TunerError: it is missing, damaged, or of another schema version.
        """
        try:
            text = self.manifest.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError) as error:
            if below := runs_below(self.root):
                raise TunerError(
                    f"{self.root} holds runs, one for each device: name {' or '.join(below)}"
                ) from error
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
    """Whose run it is. The model's hash and the target never change; the rest is for people.

    Attributes:
        model: the model as the user named it.
        model_hash: SHA-256 of what is tuned.
        target: canonical JSON of the TVM target.
        options: what the user asked for, such as seed, effort and strategy.
        created_s: seconds since the epoch.
        tuner_version: of the tuner that made the folder.
        mlflow: names MLflow gave the run, once it did.
    """

    model: str
    model_hash: str
    target: str
    options: Mapping[str, Option] = field(default_factory=dict)
    created_s: float = 0.0
    tuner_version: str = ""
    mlflow: Mapping[str, str] | None = None

    @property
    def max_kernels(self) -> int:
        """How many kernels may serve the shapes of one program."""
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
                f"{MANIFEST_VERSION}: use the tuner that wrote it, or a new run folder"
            )
        manifest = Manifest(**raw)
        texts = (manifest.model, manifest.model_hash, manifest.target)
        if not all(isinstance(t, str) for t in texts) or not isinstance(manifest.options, dict):
            raise TypeError("a value of another type than it should be")
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TunerError(f"{where} is damaged ({error}): use another run folder") from error


def read_run(folder: Path) -> tuple[RunFolder, Manifest]:
    """A run that must be there already.

    Raises:
        TunerError: it is missing, damaged, or of another schema version.
    """
    run = RunFolder(folder)
    if not folder.exists():
        raise TunerError(f"there is no run folder {folder}")
    _refuse_segments(run)
    return run, run.read_manifest()


def runs_below(folder: Path) -> list[str]:
    """Runs that lie in a folder, as one names them."""
    return sorted(str(manifest.parent) for manifest in folder.glob(f"*/{_MANIFEST}"))


def open_run(folder: Path, wanted: Manifest) -> tuple[RunFolder, Manifest]:
    """The run folder for this model and target: a new one, or one to continue.

    Safe against another process that opens the same folder at the same time: one manifest is
    written and both see it.

    Args:
        folder: made if it is not there, parents included.
        wanted: becomes the manifest of a new run; of an old one, model hash and target must match.

    Returns:
        The folder, and the manifest that holds: for an old run the one it began with.

    Raises:
        TunerError: the folder is of another model, target or schema version, holds files that
            are no run's, or cannot be written.
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
        run.write_manifest(wanted)  # of two at the same moment the last one counts


def _refuse_foreign_files(run: RunFolder) -> None:
    """Keep a mistyped `--run` from scattering a run over a folder of other things."""
    ours = {path.name for path in (run.lock, run.log, run.scratch, run.tracking_dir, run.model_dir)}
    for name in sorted(os.listdir(run.root)):
        if name not in ours and not name.startswith(f".{run.manifest.name}."):
            raise TunerError(
                f"{run.root} is no run folder but holds {name}: name a new or empty folder"
            )


def _refuse_segments(run: RunFolder) -> None:
    """Keep two truths from growing in one folder."""
    if (run.root / "segments").is_dir():
        raise TunerError(
            f"the records of {run.root} are segments: name it {run.root.absolute().as_uri()}"
        )


def refuse_other_run(name: Path | str, found: Manifest, wanted: Manifest) -> None:
    """See that a run is one of this model and target.

    Args:
        name: what the user calls the run.

    Raises:
        TunerError: it is not.
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


def _unwritable(folder: Path, error: OSError) -> TunerError:
    free = "free space or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return TunerError(
        f"cannot write to the run folder {folder}: {error.strerror or error}; "
        f"{free}name another with --run"
    )
