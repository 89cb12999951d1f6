"""A run that several machines see: what each of them makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError, UsageError
from tuner.record import Measurement, Record, Status, Trial
from tuner.run_folder import Manifest, open_run, read_run
from tuner.run_place import RunPlace, begin, fetch, local, put_model, run_place, run_uuid
from tuner.segment_store import SegmentStore
from tuner.sqlite_store import SqliteStore

WANTED = Manifest("model.onnx", "a" * 64, '{"kind":"llvm"}', {"seed": 3}, created_s=12.5)
RECORD = Record(
    Trial("t", Candidate(CandidateKind.TRACE, "[1]", "space")), Measurement(Status.OK, (1.0,))
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared" / "run1"


@pytest.fixture
def here(tmp_path: Path, shared: Path) -> RunPlace:
    return run_place(shared.as_uri(), tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path, shared: Path) -> RunPlace:
    """The same run on another machine."""
    return run_place(f"{shared.as_uri()}/", tmp_path / "there")


@pytest.fixture
def begun(here: RunPlace) -> Iterator[RunPlace]:
    """A run with a model and a record, begun here."""
    begin(here, WANTED)
    run, _ = open_run(here.run.root, WANTED)
    (run.model_dir / "inner").mkdir(parents=True)
    (run.model_dir / "model.json").write_text("{}")
    (run.model_dir / "inner" / "model.onnx").write_bytes(b"weights")
    put_model(here)
    with closing(SegmentStore(here.place, run.store)) as store:
        store.append(RECORD)
    return here


class TestNames:
    def test_each_url_has_a_working_folder_called_as_the_run(self, tmp_path: Path) -> None:
        urls = ["s3://b/run1", "s3://c/run1", "gs://b/run1", "file:///mnt/run1"]
        folders = [run_place(url, tmp_path).run.root for url in urls]
        assert len(set(folders)) == 4
        assert {folder.name for folder in folders} == {"run1"}
        assert run_place("s3://b/run1/", tmp_path) == run_place("s3://b/run1", tmp_path)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("url", ["s3://b/..", "s3://b/a b", "s3://b/%2e%2e", "s3://b/.x"])
    def test_a_name_that_is_no_folders_is_not_used(self, tmp_path: Path, url: str) -> None:
        remote = run_place(url, tmp_path)
        assert remote.run.root == remote.work / "run"

    def test_a_url_that_names_no_run_is_refused(self) -> None:
        with pytest.raises(UsageError, match="cannot live on"):
            run_place("http://host/run")

    def test_by_default_it_is_in_the_users_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert tmp_path in run_place("s3://b/run1").work.parents


class TestGoingOn:
    def test_elsewhere_finds_manifest_model_and_records(
        self, begun: RunPlace, there: RunPlace
    ) -> None:
        begin(there, replace(WANTED, created_s=99.0))
        run, manifest = open_run(there.run.root, replace(WANTED, created_s=99.0))
        assert manifest == WANTED
        files = {p.relative_to(run.model_dir) for p in run.model_dir.rglob("*") if p.is_file()}
        assert files == {Path("model.json"), Path("inner/model.onnx")}
        assert (run.model_dir / "inner" / "model.onnx").read_bytes() == b"weights"
        with closing(SegmentStore(there.place, run.store)) as store:
            assert list(store.scan()) == [RECORD]
        assert run_uuid(there, manifest) == run_uuid(begun, WANTED)

    def test_another_model_or_target_is_refused_by_the_name_of_the_run(
        self, begun: RunPlace, there: RunPlace
    ) -> None:
        for other in (replace(WANTED, model_hash="b" * 64), replace(WANTED, target="{}")):
            with pytest.raises(
                TunerError, match=f"{begun.url} is a run (of|for) another"
            ) as caught:
                begin(there, other)
            assert "\n" not in str(caught.value)

    def test_a_working_folder_that_was_deleted_is_made_again(self, begun: RunPlace) -> None:
        import shutil

        shutil.rmtree(begun.work)
        with closing(SqliteStore(fetch(begun) / "records.sqlite", read_only=True)) as store:
            assert list(store.scan()) == [RECORD]

    def test_a_new_run_at_an_old_url_gets_nothing_of_the_old_one(
        self, begun: RunPlace, shared: Path
    ) -> None:
        import shutil

        shutil.rmtree(shared)
        begin(begun, replace(WANTED, created_s=99.0, model_hash="b" * 64))
        assert read_run(begun.run.root)[1].created_s == 99.0
        assert not begun.run.model_dir.exists()
        with closing(SegmentStore(begun.place, begun.run.store)) as store:
            assert list(store.scan()) == []

    def test_the_first_copy_of_a_model_stays(self, begun: RunPlace, shared: Path) -> None:
        before = sorted(shared.rglob("*"))
        (begun.run.model_dir / "model.json").write_text("[]")
        put_model(begun)
        assert sorted(shared.rglob("*")) == before


class TestLooking:
    def test_gives_a_run_folder(self, begun: RunPlace, there: RunPlace) -> None:
        root = fetch(there)
        assert read_run(root)[1] == WANTED
        assert not there.run.model_dir.exists()
        fetch(there, model=True)
        assert there.run.model_dir.exists()
        with closing(SqliteStore(there.run.store, read_only=True)) as store:
            assert list(store.scan()) == [RECORD]

    def test_follows_a_writer(self, begun: RunPlace, there: RunPlace) -> None:
        fetch(there)
        other = replace(RECORD, trial=replace(RECORD.trial, rung=1))
        with closing(SegmentStore(begun.place, begun.run.store)) as store:
            store.append(other)
            store.flush()
            for place in (there, begun):
                with closing(SqliteStore(fetch(place) / "records.sqlite", read_only=True)) as seen:
                    assert list(seen.scan()) == [RECORD, other]

    def test_where_there_is_no_run_says_so_and_leaves_nothing(
        self, there: RunPlace, tmp_path: Path
    ) -> None:
        with pytest.raises(TunerError, match=f"there is no run at {there.url}"):
            fetch(there)
        assert list(tmp_path.iterdir()) == []

    def test_a_path_is_left_alone(self, tmp_path: Path) -> None:
        assert local(tmp_path / "none") == tmp_path / "none"

    def test_a_damaged_model_is_refused_and_none_is_left(
        self, begun: RunPlace, there: RunPlace, shared: Path
    ) -> None:
        victim = next((shared / "model").iterdir())
        victim.write_bytes(b"other")
        with pytest.raises(TunerError, match=f"{victim.name} is missing or damaged"):
            fetch(there, model=True)
        assert not there.run.model_dir.exists()

    @pytest.mark.parametrize("name", ["../../evil", "/evil", "a/../../evil"])
    def test_a_file_that_leads_out_of_the_model_is_refused(
        self, begun: RunPlace, there: RunPlace, shared: Path, name: str
    ) -> None:
        checksum = next((shared / "model").iterdir()).name
        (shared / "model.json").write_text(f'{{"files": {{"{name}": "{checksum}"}}}}')
        with pytest.raises(TunerError, match=r"model\.json is damaged"):
            fetch(there, model=True)

    @pytest.mark.parametrize("text", ["", "{", '{"schema": 1}', '{"schema": 9}'])
    def test_a_damaged_manifest_is_one_line(self, there: RunPlace, shared: Path, text: str) -> None:
        shared.mkdir(parents=True)
        (shared / "run.json").write_text(text)
        with pytest.raises(TunerError, match=r"run1/run\.json ") as caught:
            fetch(there)
        assert "\n" not in str(caught.value)


class TestTwoTruths:
    def test_a_local_run_is_not_continued_by_its_url(self, shared: Path, here: RunPlace) -> None:
        open_run(shared, WANTED)
        with closing(SqliteStore(shared / "records.sqlite")):
            pass
        with pytest.raises(TunerError, match="run folder of a local disk: name it by its path"):
            begin(here, WANTED)

    def test_a_run_of_segments_is_not_continued_by_its_path(
        self, begun: RunPlace, shared: Path
    ) -> None:
        for look in (lambda: open_run(shared, WANTED), lambda: read_run(shared)):
            with pytest.raises(TunerError, match=f"are segments: name it {begun.url}"):
                look()
