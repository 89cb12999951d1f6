"""A run that lives away from this machine's disk: what is where, and the working folder here.

    URL/
      run.json              the manifest, as in a run folder
      model.json            names and checksums of the files of the model's copy
      model/SHA256          those files
      segments/00000001.seg the records and all else a store knows, see `tuner.segments`
      lease/00000001.json   who may add segments, see `tuner.lease`
      damaged/              torn segments, moved out of the way

Each machine has a working folder for it, which is a run folder (`tuner.run_folder`) whose
`records.sqlite` is an index of the segments. It may be deleted at any time while nobody uses it:
only logs and an MLflow database that lies in it are lost, and the latter is told everything again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from tuner.errors import TunerError
from tuner.mounts import MOUNTINFO, file_system, is_shared
from tuner.place import Place
from tuner.place_url import check_url, open_place
from tuner.run_folder import Manifest, RunFolder, manifest_from_json, refuse_other_run
from tuner.segment_index import catch_up
from tuner.segment_store import SegmentStore
from tuner.sqlite_store import SqliteStore

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MANIFEST = "run.json"
_MODEL = "model.json"
_LOCAL_STORE = "records.sqlite"
_ARCHIVE = "model.pt2"
"""In a model's copy of older versions, where it was PyTorch's."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run in a place, and its working folder on this machine.

    Attributes:
        url: of the run, such as `s3://bucket/run1`.
        work: everything that is of this machine only; `run` is in it.
    """

    url: str
    work: Path

    @property
    def run(self) -> RunFolder:
        """The working folder, called as the run is."""
        name = self.url.rpartition("/")[2]
        return RunFolder(self.work / (name if _PLAIN.fullmatch(name) else "run"))

    @property
    def place(self) -> Place:
        """Where the run is."""
        return open_place(self.url)


def run_place(url: str, caches: Path | None = None) -> RunPlace:
    """The run at a URL; nothing is opened or made.

    Args:
        caches: where the working folders of all such runs are; None is this user's cache folder.

    Raises:
        UsageError: the URL cannot name a run.
    """
    check_url(url)
    url = url.rstrip("/")
    if caches is None:
        import platformdirs

        caches = Path(platformdirs.user_cache_dir("elastic-tuner")) / "runs"
    return RunPlace(url, caches / hashlib.sha256(url.encode()).hexdigest()[:16])


def begin(remote: RunPlace, wanted: Manifest) -> None:
    """Make the run where there is none, and its working folder, ready for `open_run`.

    Of two machines that begin the same run at the same time one makes it, and both see it.

    Raises:
        TunerError: trouble with the place or the disk, or a run of another kind is there.
    """
    place = remote.place
    if place.read([_MANIFEST]).get(_MANIFEST) is None:
        place.create(_MANIFEST, wanted.to_json().encode())
    refuse_other_run(remote.url, _settle(remote, place), wanted)
    _get_model(remote, place)
    catch_up(place, remote.run.store)


def fetch(remote: RunPlace, *, model: bool = False) -> Path:
    """The working folder of a run that is there, brought up to date.

    Args:
        model: with the copy of the model, too.

    Raises:
        TunerError: there is no run, or trouble with the place or the disk.
    """
    place = remote.place
    if place.read([_MANIFEST]).get(_MANIFEST) is None:
        raise TunerError(f"there is no run at {remote.url}: it has no {_MANIFEST}")
    _settle(remote, place)
    if model:
        _get_model(remote, place)
    catch_up(place, remote.run.store)
    return remote.run.root


def local(run: Path | str, *, model: bool = False) -> Path:
    """The run folder to read a run from, whether it is named by its path or by its URL.

    Raises:
        UsageError, TunerError: as `run_place` and `fetch`.
    """
    return run if isinstance(run, Path) else fetch(run_place(run), model=model)


def target_of(run: Path | str) -> str | None:
    """The target of the run that is in a folder or at a URL; None where there is none.

    Raises:
        UsageError, TunerError: the URL can name no run, trouble with the place, or it is damaged.
    """
    if isinstance(run, Path):
        folder = RunFolder(run)
        return folder.read_manifest().target if folder.manifest.exists() else None
    remote = run_place(run)
    text = remote.place.read([_MANIFEST]).get(_MANIFEST)
    if text is None:
        return None
    where = f"{remote.url}/{_MANIFEST}"
    return manifest_from_json(text.decode("utf-8", "replace"), where=where).target


def open_store(run: RunFolder, url: str = "") -> SqliteStore | SegmentStore:
    """The store of a run, to write to. One with a URL has its segments there, its index in `run`.

    Raises:
        TunerError: it cannot be opened, another process writes to it, or it is not safe there.
    """
    if url:
        return SegmentStore(open_place(url), run.store)
    refuse_network_disk(run.root)
    return SqliteStore(run.store)


def refuse_network_disk(folder: Path, mountinfo: Path = MOUNTINFO) -> None:
    """Keep runs that are named by a path away from file systems that lose what SQLite writes.

    Args:
        folder: of the run; it need not be there.

    Raises:
        TunerError: it is on such a file system.
    """
    kind = file_system(folder, mountinfo)
    if is_shared(kind):
        raise TunerError(
            f"{folder} is on {kind}, where SQLite loses data: name the run by a URL, --run "
            f"{folder.resolve().as_uri()}, which keeps it in files that are safe there"
        )


def put_model(remote: RunPlace) -> None:
    """Keep the working folder's copy of the model with the run, unless one is there.

    One that holds an archive of PyTorch, as those of older versions do, gives way to one that does
    not: such an archive is not read any more, see `spaces.model_copy`.

    Raises:
        TunerError: trouble with the place or the disk.
    """
    place = remote.place
    listed = place.read([_MODEL]).get(_MODEL)
    if listed is not None and (_ARCHIVE not in _files(remote, listed) or _has_archive(remote.run)):
        return
    files = {}
    folder = remote.run.model_dir
    try:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            data = file.read_bytes()
            files[file.relative_to(folder).as_posix()] = checksum = _checksum(data)
            place.create(f"model/{checksum}", data)  # if it is there, it is this
    except OSError as error:
        raise TunerError(f"cannot read {folder}: {error.strerror}") from error
    description = (json.dumps({"files": files}, indent=1) + "\n").encode()
    if listed is None:
        place.create(_MODEL, description)
    else:
        place.replace(_MODEL, description)


def run_uuid(remote: RunPlace, manifest: Manifest) -> str:
    """What the tracker knows the run by: the same on every machine that goes on with it."""
    return uuid5(NAMESPACE_URL, f"{remote.url} {manifest.created_s!r}").hex


def _settle(remote: RunPlace, place: Place) -> Manifest:
    """Make the working folder one of the run that is in the place now; gives its manifest."""
    if place.read([_LOCAL_STORE]):
        raise TunerError(
            f"{remote.url} is a run folder of a local disk: name it by its path, or use another URL"
        )
    run = remote.run
    text = place.read([_MANIFEST])[_MANIFEST].decode("utf-8", "replace")
    shared = manifest_from_json(text, where=f"{remote.url}/{_MANIFEST}")
    if _known(run) != shared:
        try:
            if run.root.exists():
                shutil.rmtree(run.root)  # of a run that was at this URL before
            run.root.mkdir(parents=True)
        except OSError as error:
            raise TunerError(f"cannot make {run.root} anew: {error.strerror}") from error
        run.write_manifest(shared)
    return shared


def _known(run: RunFolder) -> Manifest | None:
    try:
        return run.read_manifest()
    except TunerError:
        return None


def _get_model(remote: RunPlace, place: Place) -> None:
    """Bring the copy of the model here, whole or not at all, if the place has one."""
    run = remote.run
    listed = place.read([_MODEL]).get(_MODEL)
    if listed is None:
        return
    files = _files(remote, listed)
    if run.model_dir.exists() and (_ARCHIVE in files or not _has_archive(run)):
        return
    partial = run.model_dir.with_name("model.part")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for name, checksum in files.items():
            data = place.read([f"model/{checksum}"]).get(f"model/{checksum}", b"")
            if _checksum(data) != checksum:
                raise TunerError(f"{remote.url}/model/{checksum} is missing or damaged")
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(data)
        shutil.rmtree(run.model_dir, ignore_errors=True)
        partial.rename(run.model_dir)
    except OSError as error:
        raise TunerError(f"cannot write {partial}: {error.strerror}") from error


def _has_archive(run: RunFolder) -> bool:
    return (run.model_dir / _ARCHIVE).exists()


def _files(remote: RunPlace, listed: bytes) -> Mapping[str, str]:
    """Checksums of the model's files by name; none of them leads out of its folder."""
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
