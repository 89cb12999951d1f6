"""A run that several machines see: what each of them makes of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.power_cut import Disk
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError, UsageError
from tuner.files.machine import machine_name
from tuner.files.mounts import Mount
from tuner.record import Measurement, Record, Status, Trial
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, open_run, read_run
from tuner.runs.lock import RunLock
from tuner.runs.model_files import checksums
from tuner.runs.remote import RemoteRun, begin, fetch, local, put_model, remote_run, run_uuid
from tuner.storage.segments.store import SegmentStore
from tuner.storage.sqlite_store import SqliteStore

at = RunLocation.of
WANTED = Manifest("model.onnx", "a" * 64, '{"kind":"llvm"}', {"seed": 3}, created_s=12.5)
RECORD = Record(
    Trial("t", Candidate(CandidateKind.TRACE, "[1]", "space")), Measurement(Status.OK, (1.0,))
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared" / "run1"


@pytest.fixture
def here(tmp_path: Path, shared: Path) -> RemoteRun:
    return remote_run(at(shared.as_uri()), tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path, shared: Path) -> RemoteRun:
    """The same run on another machine."""
    return remote_run(at(f"{shared.as_uri()}/"), tmp_path / "there")


@pytest.fixture
def begun(here: RemoteRun) -> Iterator[RemoteRun]:
    """A run with a model and a record, begun here."""
    begin(here, WANTED)
    run, _ = open_run(here.run.root, WANTED)
    (run.model_dir / "inner").mkdir(parents=True)
    (run.model_dir / "model.json").write_text("{}")
    (run.model_dir / "inner" / "model.onnx").write_bytes(b"weights")
    put_model(here)
    with closing(SegmentStore(here.objects, run.store)) as store:
        store.append_many([(RECORD, None)])
    return here


class TestNames:
    def test_each_url_has_a_working_folder_called_as_the_run(self, tmp_path: Path) -> None:
        urls = ["s3://b/run1", "s3://c/run1", "gs://b/run1", "file:///mnt/run1"]
        folders = [remote_run(at(url), tmp_path).run.root for url in urls]
        assert len(set(folders)) == 4
        assert {folder.name for folder in folders} == {"run1"}
        assert remote_run(at("s3://b/run1/"), tmp_path) == remote_run(at("s3://b/run1"), tmp_path)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("url", ["s3://b/..", "s3://b/a b", "s3://b/%2e%2e", "s3://b/.x"])
    def test_a_name_that_is_no_folders_is_not_used(self, tmp_path: Path, url: str) -> None:
        remote = remote_run(at(url), tmp_path)
        assert remote.run.root == remote.work / "run"

    def test_a_url_that_names_no_run_is_refused(self) -> None:
        with pytest.raises(UsageError, match="cannot live on"):
            remote_run(at("http://host/run"))

    def test_by_default_it_is_in_the_users_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert tmp_path in remote_run(at("s3://b/run1")).work.parents

    def test_each_machine_has_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        works = {remote_run(at("s3://b/run1"), tmp_path).work}
        monkeypatch.setattr("socket.gethostname", lambda: "another/.. one")
        works.add(remote_run(at("s3://b/run1"), tmp_path).work)
        assert len(works) == 2
        assert all(work.parent.parent == tmp_path for work in works)

    def test_machines_of_one_name_are_told_apart(self, tmp_path: Path) -> None:
        files = tmp_path / "none", tmp_path / "empty", tmp_path / "id"
        files[1].touch()
        names = {machine_name(files)}
        for identity in ("one\n", "other\n"):
            files[2].write_text(identity)
            names.add(machine_name(files))
        assert len(names) == 3
        assert machine_name(files) == machine_name(files)


def nfs_at(home: Path) -> list[Mount]:
    return [Mount(Path("/"), "ext4"), Mount(home, "nfs4")]


class TestSharedCaches:
    """A cache that several machines mount, as home folders of clusters are."""

    @pytest.fixture
    def mounted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Mount]:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        return nfs_at(tmp_path / "home")

    def test_hold_no_working_folder(
        self, begun: RemoteRun, tmp_path: Path, mounted: list[Mount]
    ) -> None:
        home = tmp_path / "home"
        remote = remote_run(at(begun.url), home, mounted)
        with closing(SqliteStore(fetch(remote) / "records.sqlite", read_only=True)) as store:
            assert list(store.scan()) == [RECORD]
        assert not home.exists()
        (own,) = (tmp_path / "tmp").iterdir()
        assert remote.work.is_relative_to(own)
        assert own.stat().st_mode & 0o777 == 0o700

    def test_a_planted_folder_is_not_used_in_their_place(
        self, begun: RemoteRun, tmp_path: Path, mounted: list[Mount]
    ) -> None:
        (tmp_path / "tmp").mkdir()
        (tmp_path / "tmp" / f"elastic-tuner-{os.geteuid()}").symlink_to(tmp_path / "victim")
        with pytest.raises(TunerError, match="is a link"):
            fetch(remote_run(at(begun.url), tmp_path / "home", mounted))
        assert not (tmp_path / "victim").exists()

    def test_are_refused_where_nothing_else_is_known(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        with pytest.raises(TunerError, match=r"is on nfs4.*set XDG_CACHE_HOME") as caught:
            remote_run(at("s3://b/run1"), tmp_path / "home", nfs_at(tmp_path))
        assert "\n" not in str(caught.value)


class TestGoingOn:
    def test_elsewhere_finds_manifest_model_and_records(
        self, begun: RemoteRun, there: RemoteRun
    ) -> None:
        begin(there, replace(WANTED, created_s=99.0))
        run, manifest = open_run(there.run.root, replace(WANTED, created_s=99.0))
        assert manifest == WANTED
        files = {p.relative_to(run.model_dir) for p in run.model_dir.rglob("*") if p.is_file()}
        assert files == {Path("model.json"), Path("inner/model.onnx")}
        assert (run.model_dir / "inner" / "model.onnx").read_bytes() == b"weights"
        with closing(SegmentStore(there.objects, run.store)) as store:
            assert list(store.scan()) == [RECORD]
        assert run_uuid(there, manifest) == run_uuid(begun, WANTED)

    def test_another_model_or_target_is_refused_by_the_name_of_the_run(
        self, begun: RemoteRun, there: RemoteRun
    ) -> None:
        for other in (replace(WANTED, model_hash="b" * 64), replace(WANTED, target="{}")):
            with pytest.raises(
                TunerError, match=f"{begun.url} is a run (of|for) another"
            ) as caught:
                begin(there, other)
            assert "\n" not in str(caught.value)

    def test_a_working_folder_that_was_deleted_is_made_again(self, begun: RemoteRun) -> None:
        shutil.rmtree(begun.work)
        with closing(SqliteStore(fetch(begun) / "records.sqlite", read_only=True)) as store:
            assert list(store.scan()) == [RECORD]

    def test_a_new_run_at_an_old_url_gets_nothing_of_the_old_one(
        self, begun: RemoteRun, shared: Path
    ) -> None:
        shutil.rmtree(shared)
        begin(begun, replace(WANTED, created_s=99.0, model_hash="b" * 64))
        assert read_run(begun.run.root)[1].created_s == 99.0
        assert not begun.run.model_dir.exists()
        with closing(SegmentStore(begun.objects, begun.run.store)) as store:
            assert list(store.scan()) == []

    def test_a_folder_that_is_in_use_is_not_emptied(self, begun: RemoteRun, shared: Path) -> None:
        shutil.rmtree(shared)
        before = sorted(begun.run.root.rglob("*"))
        with RunLock(begun.run.lock):
            with pytest.raises(TunerError, match=f"in use by process {os.getpid()}"):
                begin(begun, replace(WANTED, created_s=99.0))
            assert set(before) <= set(begun.run.root.rglob("*"))
        begin(begun, replace(WANTED, created_s=99.0))
        assert read_run(begun.run.root)[1].created_s == 99.0
        assert not begun.run.model_dir.exists()

    def test_the_first_copy_of_a_model_stays(self, begun: RemoteRun, shared: Path) -> None:
        before = sorted(shared.rglob("*"))
        (begun.run.model_dir / "model.json").write_text("[]")
        put_model(begun)
        assert sorted(shared.rglob("*")) == before


class TestLooking:
    def test_gives_a_run_folder(self, begun: RemoteRun, there: RemoteRun) -> None:
        root = fetch(there)
        assert read_run(root)[1] == WANTED
        assert not there.run.model_dir.exists()
        fetch(there, model=True)
        assert there.run.model_dir.exists()
        with closing(SqliteStore(there.run.store, read_only=True)) as store:
            assert list(store.scan()) == [RECORD]

    def test_follows_a_writer(self, begun: RemoteRun, there: RemoteRun) -> None:
        fetch(there)
        other = replace(RECORD, trial=replace(RECORD.trial, rung=1))
        with closing(SegmentStore(begun.objects, begun.run.store)) as store:
            store.append_many([(other, None)])
            store.flush()
            for objects in (there, begun):
                with closing(
                    SqliteStore(fetch(objects) / "records.sqlite", read_only=True)
                ) as seen:
                    assert list(seen.scan()) == [RECORD, other]

    def test_where_there_is_no_run_says_so_and_leaves_nothing(
        self, there: RemoteRun, tmp_path: Path
    ) -> None:
        with pytest.raises(TunerError, match=f"there is no run at {there.url}"):
            fetch(there)
        assert list(tmp_path.iterdir()) == []

    def test_a_path_is_left_alone(self, tmp_path: Path) -> None:
        assert local(at(tmp_path / "none")) == tmp_path / "none"

    def test_a_damaged_model_is_refused_and_none_is_left(
        self, begun: RemoteRun, there: RemoteRun, shared: Path
    ) -> None:
        victim = next((shared / "model").iterdir())
        victim.write_bytes(b"other")
        with pytest.raises(TunerError, match=f"{victim.name} is missing or damaged"):
            fetch(there, model=True)
        assert not there.run.model_dir.exists()

    @pytest.mark.parametrize("name", ["../../evil", "/evil", "a/../../evil"])
    def test_a_file_that_leads_out_of_the_model_is_refused(
        self, begun: RemoteRun, there: RemoteRun, shared: Path, name: str
    ) -> None:
        checksum = next((shared / "model").iterdir()).name
        (shared / "model.json").write_text(f'{{"files": {{"{name}": "{checksum}"}}}}')
        with pytest.raises(TunerError, match=r"model\.json is damaged"):
            fetch(there, model=True)

    @pytest.mark.parametrize("text", ["", "{", '{"schema": 1}', '{"schema": 9}'])
    def test_a_damaged_manifest_is_one_line(
        self, there: RemoteRun, shared: Path, text: str
    ) -> None:
        shared.mkdir(parents=True)
        (shared / "run.json").write_text(text)
        with pytest.raises(TunerError, match=r"run1/run\.json ") as caught:
            fetch(there)
        assert "\n" not in str(caught.value)


@pytest.fixture
def described(begun: RemoteRun) -> RemoteRun:
    """The same with a description of the model's copy that lists its files, not yet passed on."""
    for file in ("model.json", *(f"model/{p.name}" for p in (_shared(begun) / "model").iterdir())):
        (_shared(begun) / file).unlink()
    folder = begun.run.model_dir
    about = {"content_hash": WANTED.model_hash, "files": checksums(folder)}
    (folder / "model.json").write_text(json.dumps(about))
    return begun


def _shared(remote: RemoteRun) -> Path:
    return Path(remote.url.removeprefix("file://"))


class TestTornModels:
    """What a power cut, or a disk, made of a copy that nobody synced."""

    @pytest.mark.parametrize("torn", [b"", b"weigh"])
    def test_are_not_passed_on(self, described: RemoteRun, torn: bytes) -> None:
        (described.run.model_dir / "inner" / "model.onnx").write_bytes(torn)
        with pytest.raises(TunerError, match=r"model\.onnx is not what was copied") as caught:
            put_model(described)
        assert "\n" not in str(caught.value)
        assert not (_shared(described) / "model.json").exists()

    def test_nor_are_those_of_another_model(self, described: RemoteRun) -> None:
        described.run.write_manifest(replace(WANTED, model_hash="b" * 64))
        with pytest.raises(TunerError, match="it is of model aaa"):
            put_model(described)

    def test_are_fetched_anew_where_the_place_has_a_whole_one(
        self, described: RemoteRun, there: RemoteRun
    ) -> None:
        put_model(described)
        fetch(there, model=True)
        file = there.run.model_dir / "inner" / "model.onnx"
        file.write_bytes(b"")
        fetch(there, model=True)
        assert file.read_bytes() == b"weights"

    def test_that_were_passed_on_once_are_refused_and_put_there_anew_by_who_has_the_model(
        self, begun: RemoteRun, there: RemoteRun
    ) -> None:
        """By an earlier version, under the checksums of empty files."""
        empty = hashlib.sha256().hexdigest()
        (_shared(begun) / "model" / empty).touch()
        (_shared(begun) / "model.json").write_text(
            json.dumps({"files": {"model.json": _sha(b"{}"), "inner/model.onnx": empty}})
        )
        with pytest.raises(TunerError, match=r"model\.onnx is empty"):
            fetch(there, model=True)
        assert not there.run.model_dir.exists()
        begin(there, WANTED)
        put_model(begun)
        fetch(there, model=True)
        assert (there.run.model_dir / "inner" / "model.onnx").read_bytes() == b"weights"

    def test_an_object_that_is_damaged_is_replaced_when_it_is_passed_on(
        self, described: RemoteRun, there: RemoteRun
    ) -> None:
        (_shared(described) / "model" / _sha(b"weights")).write_bytes(b"wei")
        put_model(described)
        fetch(there, model=True)
        assert (there.run.model_dir / "inner" / "model.onnx").read_bytes() == b"weights"

    def test_a_power_cut_leaves_a_fetched_copy_whole_or_none(
        self, begun: RemoteRun, there: RemoteRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = Disk(tmp_path, monkeypatch)
        fetch(there, model=True)
        folder = there.run.model_dir.relative_to(tmp_path).as_posix()
        whole = {f"{folder}/model.json": b"{}", f"{folder}/inner/model.onnx": b"weights"}
        for moment in disk.moments:
            assert {n: d for n, d in moment.items() if n.startswith(f"{folder}/")} in ({}, whole)
        assert whole.items() <= disk._now().items()


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class TestTwoTruths:
    def test_a_local_run_is_not_continued_by_its_url(self, shared: Path, here: RemoteRun) -> None:
        open_run(shared, WANTED)
        with closing(SqliteStore(shared / "records.sqlite")):
            pass
        with pytest.raises(TunerError, match="run folder of a local disk: name it by its path"):
            begin(here, WANTED)

    def test_a_run_of_segments_is_not_continued_by_its_path(
        self, begun: RemoteRun, shared: Path
    ) -> None:
        for look in (lambda: open_run(shared, WANTED), lambda: read_run(shared)):
            with pytest.raises(TunerError, match=f"are segments: name it {begun.url}"):
                look()
