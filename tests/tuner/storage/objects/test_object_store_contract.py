"""What every object store does, and what the named ones refuse."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import resource
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.storage.objects.memory_objects import MemoryObjectStore
from tuner.errors import TunerError, UsageError
from tuner.run_location import is_url
from tuner.storage.objects.base import ObjectStore
from tuner.storage.objects.url import open_object_store


def on_fsspec(folder: Path) -> ObjectStore:
    return open_object_store(f"memory://{secrets.token_hex(4)}/run")


@functools.cache
def simulated_s3() -> str:
    """A bucket on a server that plays S3 on loopback until this process ends."""
    import boto3
    from moto import server as moto

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
    os.environ.update(AWS_ACCESS_KEY_ID="who", AWS_SECRET_ACCESS_KEY="ever")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    boto3.client("s3").create_bucket(Bucket="bucket")
    return "s3://bucket"


def on_s3(folder: Path) -> ObjectStore:
    return open_object_store(f"{simulated_s3()}/{secrets.token_hex(4)}/run")


PLACES: dict[str, Callable[[Path], ObjectStore]] = {
    "memory": lambda folder: MemoryObjectStore(),
    "folder": lambda folder: open_object_store((folder / "a run #%20").as_uri()),
    "folder without hard links": lambda folder: open_object_store((folder / "run").as_uri()),
    "fsspec": on_fsspec,
    "s3": on_s3,
}


@pytest.fixture
def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FAT, or on many SMB servers."""

    def refused(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)


@pytest.fixture(params=PLACES)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param.endswith("without hard links"):
        request.getfixturevalue("without_links")
    return PLACES[request.param](tmp_path)


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """A disk on which a file can grow so far, and a write beyond fails in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestContract:
    def test_an_object_is_made_once(self, objects: ObjectStore) -> None:
        assert objects.create("a/1", b"first")
        assert not objects.create("a/1", b"second")
        assert objects.read(["a/1"]) == {"a/1": b"first"}

    def test_an_object_may_be_replaced(self, objects: ObjectStore) -> None:
        objects.replace("a/1", b"first")
        objects.replace("a/1", b"")
        assert objects.read(["a/1"]) == {"a/1": b""}
        assert not objects.create("a/1", b"second")

    def test_what_is_not_there_is_left_out(self, objects: ObjectStore) -> None:
        assert objects.read([]) == objects.read(["a/1"]) == {}
        assert objects.list("a/") == []
        objects.create("a/1", b"x")
        assert objects.read(["a/2", "a/1", "b"]) == {"a/1": b"x"}

    def test_names_are_listed_in_order_by_prefix(self, objects: ObjectStore) -> None:
        for name in ("b/1", "a/2", "a/10", "a/c/1", "ab/1"):
            objects.create(name, b"")
        assert objects.list("a/") == ["a/10", "a/2", "a/c/1"]

    def test_a_removed_object_can_be_made_again(self, objects: ObjectStore) -> None:
        objects.create("a/1", b"first")
        assert objects.remove("a/1", b"first")
        assert not objects.remove("a/1", b"first")
        assert objects.list("a/") == []
        assert objects.create("a/1", b"second")

    def test_only_the_object_that_was_seen_is_removed(self, objects: ObjectStore) -> None:
        objects.create("a/1", b"another one's")
        assert not objects.remove("a/1", b"torn")
        assert objects.read(["a/1"]) == {"a/1": b"another one's"}

    def test_of_many_who_make_an_object_one_does(self, objects: ObjectStore) -> None:
        start, made = threading.Barrier(8), []

        def make(n: int) -> None:
            start.wait(10.0)
            made.append(objects.create("a/1", bytes([n])) and n)

        threads = [threading.Thread(target=make, args=(n,)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10.0)
        (winner,) = [n for n in made if n]
        assert objects.read(["a/1"]) == {"a/1": bytes([winner])}


class TestFolder:
    def test_leaves_nothing_but_its_objects(self, tmp_path: Path) -> None:
        objects = open_object_store(tmp_path.as_uri())
        objects.create("a/1", b"x")
        objects.create("a/1", b"x")
        objects.replace("a/1", b"x")
        assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["a", "a/1"]

    def test_another_ones_unfinished_write_is_no_object(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / ".1.77.tmp").write_bytes(b"torn")
        assert open_object_store(tmp_path.as_uri()).list("a/") == []

    @pytest.mark.usefixtures("without_links")
    def test_makes_objects_once_without_hard_links(self, tmp_path: Path) -> None:
        objects = open_object_store(tmp_path.as_uri())
        assert objects.create("1", b"first")
        assert not objects.create("1", b"second")
        assert objects.read(["1"]) == {"1": b"first"}
        assert os.listdir(tmp_path) == ["1"]

    @pytest.mark.usefixtures("without_links")
    @pytest.mark.parametrize("step", ["the temporary file", "the object"])
    def test_a_disk_that_fills_up_leaves_nothing_torn_and_the_next_try_succeeds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        objects, data = open_object_store(tmp_path.as_uri()), bytes(100_000)
        with monkeypatch.context() as patch:
            if step == "the object":  # whatever is written after the temporary file
                patch.setattr(os, "fsync", lambda _: stack.enter_context(files_of_at_most(50_000)))
            with ExitStack() as stack:
                if step == "the temporary file":
                    stack.enter_context(files_of_at_most(50_000))
                with suppress(TunerError):
                    objects.create("1", data)
        assert os.listdir(tmp_path) in ([], ["1"])
        assert objects.read(["1"]) in ({}, {"1": data})
        objects.create("1", data)
        assert objects.read(["1"]) == {"1": data}

    @pytest.mark.usefixtures("without_links")
    def test_where_nothing_decides_who_is_first_it_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
        with pytest.raises(TunerError, match="neither hard links nor") as caught:
            open_object_store(tmp_path.as_uri()).create("1", b"x")
        assert "\n" not in str(caught.value)
        assert os.listdir(tmp_path) == []

    def test_what_is_put_there_while_one_removes_is_given_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        objects, rename = open_object_store(tmp_path.as_uri()), Path.rename
        objects.create("1", b"torn")

        def late(path: Path, target: Path) -> Path:
            path.write_bytes(b"whole")
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", late)
        assert not objects.remove("1", b"torn")
        assert objects.read(["1"]) == {"1": b"whole"}
        assert os.listdir(tmp_path) == ["1"]

    def test_that_cannot_be_written_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(TunerError, match="see that it is there") as caught:
            open_object_store((tmp_path / "file" / "run").as_uri()).create("1", b"")
        assert "\n" not in str(caught.value)

    def test_a_full_disk_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(TunerError, match="no space left"):
            open_object_store(tmp_path.as_uri()).create("1", b"x")
        assert os.listdir(tmp_path) == []


class TestNames:
    @pytest.mark.parametrize("text", ["s3://b/r", "file:///a", "memory://x"])
    def test_a_scheme_makes_a_url(self, text: str) -> None:
        assert is_url(text)

    @pytest.mark.parametrize("text", ["runs/a", "/mnt/a", "a:b", "://a", "runs/x://y", ""])
    def test_anything_else_is_a_path(self, text: str) -> None:
        assert not is_url(text)
        with pytest.raises(UsageError, match="no URL"):
            open_object_store(text)

    @pytest.mark.parametrize("url", ["file://", "file:///", "file://run", "s3://", "memory:///"])
    def test_a_url_names_a_folder(self, url: str) -> None:
        with pytest.raises(UsageError, match="names no folder"):
            open_object_store(url)

    @pytest.mark.parametrize("url", ["sftp://host/run", "http://host/run", "nonsense://run"])
    def test_a_place_that_cannot_decide_a_race_is_refused(self, url: str) -> None:
        with pytest.raises(UsageError, match=r"cannot live on \w+://.*mount it instead"):
            open_object_store(url)

    def test_a_missing_driver_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        with pytest.raises(TunerError, match="pip install fsspec s3fs") as caught:
            open_object_store("s3://bucket/run")
        assert "\n" not in str(caught.value)

    def test_what_a_driver_raises_is_one_line(self) -> None:
        objects: Any = open_object_store("memory://x/run")

        class Broken:
            def cat(self, *_: Any, **__: Any) -> None:
                raise RuntimeError("no credentials\nand more")

        objects._files = Broken()
        with pytest.raises(TunerError, match="memory://x/run: RuntimeError: no credentials;"):
            objects.read(["a"])
