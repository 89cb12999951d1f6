"""A run at a URL: its files there, and its working folder on this machine.

    URL/
      run.json              the manifest, as in a run folder
      model.json            names and checksums of the files of the model's copy
      model/SHA256          those files
      import_check.json     whether the model is what its source is
      segments/00000001.seg the content of its store, see `tuner.storage.segments.format`
      lease/00000001.json   the right to add segments, see `tuner.storage.segments.lease`
      damaged/              torn segments, moved out of the way

Each machine has a working folder for the run: a run folder (`tuner.runs.folder`) whose
`records.sqlite` is an index of the segments. It may be deleted at any time while nobody uses it:
only logs and an MLflow database in it are lost, and the latter is filled again. No record is ever
in there alone: the index gets it after its segment is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from tuner.errors import TunerError
from tuner.files.atomic import put_folder, write_bytes
from tuner.files.locks import hold_lock
from tuner.files.machine import machine_name
from tuner.files.mounts import Mount, file_system, is_shared
from tuner.files.own_folder import own_folder, own_folder_path
from tuner.run_location import RunLocation
from tuner.runs.folder import (
    Manifest,
    RunFolder,
    manifest_from_json,
    refuse_other_run,
    runs_below,
)
from tuner.runs.lock import RunLock
from tuner.runs.model_files import DamagedCopy, check_copy
from tuner.storage.objects.base import ObjectStore
from tuner.storage.objects.url import open_object_store
from tuner.storage.segments.index import catch_up
from tuner.storage.segments.store import SegmentStore
from tuner.storage.sqlite_store import SqliteStore

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MANIFEST = "run.json"
_MODEL = "model.json"
_CHECK = "import_check.json"
_LOCAL_STORE = "records.sqlite"
_WORKING_S = 600.0
"""The time to wait for another process that brings the model here."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """A run in an object store, and its working folder on this machine.

    Attributes:
        url: URL of the run, such as `s3://bucket/run1`.
        work: folder for all that is this machine's only; `run` is in it.
    """

    url: str
    work: Path

    @property
    def run(self) -> RunFolder:
        """The working folder, named like the run where that is a plain name."""
        name = self.url.rpartition("/")[2]
        return RunFolder(self.work / (name if _PLAIN.fullmatch(name) else "run"))

    @property
    def objects(self) -> ObjectStore:
        """The object store with the run."""
        return open_object_store(self.url)


def remote_run(
    location: RunLocation, caches: Path | None = None, mounted: Sequence[Mount] | None = None
) -> RemoteRun:
    """The run at a URL, without opening or making anything.

    The working folder lies on a disk of this machine, in a folder named after the machine: in the
    user's cache, or in a temporary folder where the cache is on a file system that several machines
    mount.

    Args:
        caches: folder of all such runs' working folders; None is in this user's cache folder.
        mounted: as for `file_system`.

    Raises:
        TunerError: no disk of this machine is known that could hold the working folder.
    """
    if caches is None:
        import platformdirs

        caches = Path(platformdirs.user_cache_dir("elastic-tuner")) / "runs"
    url = location.text
    called = hashlib.sha256(url.encode()).hexdigest()[:16]
    folders = _on_a_local_disk(caches, mounted)
    return RemoteRun(url, folders / machine_name() / called)


def _on_a_local_disk(caches: Path, mounted: Sequence[Mount] | None) -> Path:
    """The folder of working folders, or a temporary one where SQLite would lose data in it."""
    if not is_shared(kind := file_system(caches, mounted)):
        return caches
    temporary = own_folder_path() / "working"
    if is_shared(file_system(temporary, mounted)):
        raise TunerError(
            f"{caches} is on {kind}, where SQLite loses data, and so is {temporary}: "
            "set XDG_CACHE_HOME to a folder on a disk of this machine"
        )
    return temporary


def begin(remote: RemoteRun, wanted: Manifest) -> None:
    """Make the run if there is none, and its working folder, ready for `open_run`.

    If two machines begin the same run at the same time, one makes it, and both see it.

    Raises:
        TunerError: trouble with the object store or the disk, or there is a run of another model or
        target.
    """
    objects = remote.objects
    if objects.read([_MANIFEST]).get(_MANIFEST) is None:
        objects.create(_MANIFEST, wanted.to_json().encode())
    refuse_other_run(remote.url, _settle(remote, objects), wanted)
    try:
        _get_model(remote, objects)
    except DamagedCopy as damaged:
        _log.error("%s: it is put there anew", damaged.finding)
        objects.remove(_MODEL, objects.read([_MODEL]).get(_MODEL, b""))
    catch_up(objects, remote.run.store)


def fetch(remote: RemoteRun, *, model: bool = False) -> Path:
    """The working folder of an existing run, brought up to date.

    Args:
        model: whether to bring the copy of the model too.

    Raises:
        TunerError: there is no run, or trouble with the object store or the disk.
    """
    objects = remote.objects
    if objects.read([_MANIFEST]).get(_MANIFEST) is None:
        raise TunerError(f"there is no run at {remote.url}: it has no {_MANIFEST}")
    _settle(remote, objects)
    if model:
        _get_model(remote, objects)
    if (check := objects.read([_CHECK]).get(_CHECK)) is not None:
        write_bytes(remote.run.import_check, check)
    catch_up(objects, remote.run.store)
    return remote.run.root


def working_folder(location: RunLocation) -> RunFolder:
    """The run folder on this machine; nothing is opened or made.

    Raises:
        TunerError: as `remote_run`.
    """
    return remote_run(location).run if location.is_url else RunFolder(location.folder)


def runs_at(location: RunLocation) -> list[RunLocation]:
    """The run at a location, or the runs, one for each device, in a folder that is none."""
    if location.is_url or RunFolder(location.folder).manifest.exists():
        return [location]
    return [RunLocation.of(below) for below in runs_below(location.folder)] or [location]


def local(location: RunLocation, *, model: bool = False) -> Path:
    """The run folder to read a run from, brought up to date where the run is at a URL.

    Raises:
        TunerError: as `remote_run` and `fetch`.
    """
    return fetch(remote_run(location), model=model) if location.is_url else location.folder


def begun_as(location: RunLocation) -> Manifest | None:
    """The manifest of an existing run; None where there is no run.

    Raises:
        TunerError: trouble with the object store, or the run is damaged.
    """
    if not location.is_url:
        folder = RunFolder(location.folder)
        return folder.read_manifest() if folder.manifest.exists() else None
    remote = remote_run(location)
    text = remote.objects.read([_MANIFEST]).get(_MANIFEST)
    if text is None:
        return None
    where = f"{remote.url}/{_MANIFEST}"
    return manifest_from_json(text.decode("utf-8", "replace"), where=where)


def open_store(location: RunLocation, run: RunFolder) -> SqliteStore | SegmentStore:
    """Open the store of a run for writing: at a URL its segments, with their index in the folder.

    Raises:
        TunerError: it cannot be opened, another process writes to it, or its disk is not safe.
    """
    if location.is_url:
        return SegmentStore(open_object_store(location.text), run.store)
    refuse_network_disk(run.root)
    return SqliteStore(run.store)


def refuse_network_disk(folder: Path, mounted: Sequence[Mount] | None = None) -> None:
    """Refuse a run that is named by a path on a file system where SQLite loses data.

    Args:
        folder: folder of the run, which need not exist.
        mounted: as for `file_system`.

    Raises:
        TunerError: it is on such a file system.
    """
    kind = file_system(folder, mounted)
    if is_shared(kind):
        raise TunerError(
            f"{folder} is on {kind}, where SQLite loses data: name the run by a URL, --run "
            f"{folder.resolve().as_uri()}, which keeps it in files that are safe there"
        )


def put_model(remote: RemoteRun) -> None:
    """Put the working folder's copy of the model with the run, unless the run has one.

    Raises:
        TunerError: trouble with the object store or the disk.
    """
    objects, run = remote.objects, remote.run
    listed = objects.read([_MODEL]).get(_MODEL)
    if listed is not None:
        return
    files, folder = {}, run.model_dir
    check_copy(folder, run.read_manifest().model_hash)
    try:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            data = file.read_bytes()
            files[file.relative_to(folder).as_posix()] = checksum = _checksum(data)
            path = f"model/{checksum}"
            if not objects.create(path, data) and objects.read([path]).get(path) != data:
                objects.replace(path, data)  # it was damaged there
    except OSError as error:
        raise TunerError(f"cannot read {folder}: {error.strerror}") from error
    description = (json.dumps({"files": files}, indent=1) + "\n").encode()
    objects.create(_MODEL, description)


def put_check(location: RunLocation, run: RunFolder) -> None:
    """Put the working folder's check of the import with the run, if that is at a URL.

    Raises:
        TunerError: trouble with the object store.
    """
    if location.is_url:
        open_object_store(location.text).replace(_CHECK, run.import_check.read_bytes())


def run_uuid(remote: RemoteRun, manifest: Manifest) -> str:
    """The tracker's id of the run: the same on every machine that goes on with it."""
    return uuid5(NAMESPACE_URL, f"{remote.url} {manifest.created_s!r}").hex


def _settle(remote: RemoteRun, objects: ObjectStore) -> Manifest:
    """Make the working folder one of the run in the object store; return the run's manifest."""
    if objects.read([_LOCAL_STORE]):
        raise TunerError(
            f"{remote.url} is a run folder of a local disk: name it by its path, or use another URL"
        )
    run = remote.run
    text = objects.read([_MANIFEST])[_MANIFEST].decode("utf-8", "replace")
    shared = manifest_from_json(text, where=f"{remote.url}/{_MANIFEST}")
    if _read_manifest(run) != shared:
        with _working(remote), RunLock(run.lock):
            if _read_manifest(run) != shared:
                _empty(run)  # of a run that was at this URL before
                run.write_manifest(shared)
    return shared


@contextlib.contextmanager
def _working(remote: RemoteRun) -> Iterator[None]:
    """Make the working folder if it is missing, and lock it against other processes."""
    if remote.work.is_relative_to(own_folder_path()):
        own_folder()
    try:
        remote.run.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TunerError(f"cannot make {remote.run.root}: {error.strerror}") from error
    with hold_lock(remote.work, wait_s=_WORKING_S):
        yield


def _empty(run: RunFolder) -> None:
    """Remove all content of a run folder except its lock; only for the lock's holder."""
    try:
        for path in run.root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != run.lock:
                path.unlink()
    except OSError as error:
        raise TunerError(f"cannot make {run.root} anew: {error.strerror}") from error


def _read_manifest(run: RunFolder) -> Manifest | None:
    try:
        return run.read_manifest()
    except TunerError:
        return None


def _get_model(remote: RemoteRun, objects: ObjectStore) -> None:
    """Bring the copy of the model here, whole or not at all, if the object store has one.

    Raises:
        DamagedCopy: the object store's copy is damaged.
    """
    run = remote.run
    listed = objects.read([_MODEL]).get(_MODEL)
    if listed is None:
        return
    files = _files(remote, listed)
    if _has_model(run):
        return
    partial = run.model_dir.with_name("model.fetched")
    with _working(remote):
        if _has_model(run):
            return  # another process brought it meanwhile
        try:
            shutil.rmtree(partial, ignore_errors=True)
            for name, checksum in files.items():
                data = objects.read([f"model/{checksum}"]).get(f"model/{checksum}", b"")
                if _checksum(data) != checksum:
                    raise DamagedCopy(remote.url, f"model/{checksum} is missing or damaged")
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                (partial / name).write_bytes(data)
            check_copy(partial, run.read_manifest().model_hash, where=remote.url)
            if run.model_dir.exists():
                shutil.rmtree(run.model_dir)  # damaged here
            put_folder(partial, run.model_dir)
        except OSError as error:
            raise TunerError(f"cannot write {partial}: {error.strerror}") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _has_model(run: RunFolder) -> bool:
    """Whether there is a whole copy of the model here."""
    if not run.model_dir.exists():
        return False
    try:
        check_copy(run.model_dir, run.read_manifest().model_hash)
    except DamagedCopy as damaged:
        _log.error("%s: it is fetched anew", damaged.finding)
        return False
    return True


def _files(remote: RemoteRun, listed: bytes) -> Mapping[str, str]:
    """Checksums of the model's files by name, where no name leads out of the folder."""
    try:
        files = json.loads(listed)["files"]
        if not all(
            isinstance(checksum, str) and ".." not in Path(name).parts and not Path(name).anchor
            for name, checksum in files.items()
        ):
            raise ValueError("a name that is none")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TunerError(f"{remote.url}/{_MODEL} is damaged: {error}") from error
    return {str(name): str(checksum) for name, checksum in files.items()}


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
