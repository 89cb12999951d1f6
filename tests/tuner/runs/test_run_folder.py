"""Whose run a folder is, and who works on it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.runs.folder import Manifest, RunFolder, open_run, read_run
from tuner.runs.lock import RunLock, read_holder

WANTED = Manifest(
    model="model.onnx",
    model_hash="a" * 64,
    target='{"kind":"llvm"}',
    options={"seed": 3, "effort": "quick", "trials": None, "time_budget_s": 1.5},
    created_s=12.5,
    tuner_version="0.1.0",
)


def refusal(folder: Path, wanted: Manifest = WANTED) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(TunerError) as caught:
        open_run(folder, wanted)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestFolder:
    def test_every_path_is_in_the_folder_and_they_differ(self, tmp_path: Path) -> None:
        run = RunFolder(tmp_path)
        names = [name for name, kind in vars(RunFolder).items() if isinstance(kind, property)]
        paths = [getattr(run, name) for name in names]
        assert len(set(paths)) == len(paths) > 0
        assert all(tmp_path in path.parents for path in paths)
        assert list(tmp_path.iterdir()) == []

    def test_every_file_at_the_top_is_in_the_documented_layout(self, tmp_path: Path) -> None:
        from tuner.runs import folder

        run = RunFolder(tmp_path)
        for name, kind in vars(RunFolder).items():
            if isinstance(kind, property):
                top = getattr(run, name).relative_to(tmp_path).parts[0]
                assert f"\n      {top}" in (folder.__doc__ or "")

    def test_a_new_folder_is_made_with_its_parents(self, tmp_path: Path) -> None:
        run, manifest = open_run(tmp_path / "runs" / "demo", WANTED)
        assert manifest == WANTED
        assert os.listdir(run.root) == ["run.json"]
        assert read_run(run.root) == (run, WANTED)

    def test_an_old_run_keeps_the_manifest_it_began_with(self, tmp_path: Path) -> None:
        open_run(tmp_path, WANTED)
        later = replace(WANTED, model="./model.onnx", options={"seed": 4}, created_s=99.0)
        assert open_run(tmp_path, later)[1] == WANTED

    def test_what_a_start_that_was_killed_left_does_not_matter(self, tmp_path: Path) -> None:
        for name in ("run.lock", ".run.json.7.8.tmp", "tuner.log"):
            (tmp_path / name).write_text("{")
        assert open_run(tmp_path, WANTED)[1] == WANTED

    def test_another_model_is_refused(self, tmp_path: Path) -> None:
        open_run(tmp_path, WANTED)
        line = refusal(tmp_path, replace(WANTED, model_hash="b" * 64))
        assert "another model (model.onnx, aaaaaaaaaaaa instead of bbbbbbbbbbbb)" in line
        assert "name another run folder" in line

    def test_another_target_is_refused(self, tmp_path: Path) -> None:
        open_run(tmp_path, WANTED)
        line = refusal(tmp_path, replace(WANTED, target='{"kind":"cuda"}'))
        assert 'another target ({"kind":"llvm"} instead of {"kind":"cuda"})' in line

    def test_another_schema_version_is_refused(self, tmp_path: Path) -> None:
        run, _ = open_run(tmp_path, WANTED)
        run.manifest.write_text(json.dumps({"schema": 9, "whatever": 1}))
        assert "schema version 9, this tuner reads version 1" in refusal(tmp_path)
        run.manifest.write_text(json.dumps({"schema": 9, "tuner_version": "7.1"}))
        assert "use the tuner that wrote it (7.1), or a new run folder" in refusal(tmp_path)

    def test_what_only_a_newer_version_says_is_no_damage(self, tmp_path: Path) -> None:
        run, _ = open_run(tmp_path, WANTED)
        told = json.loads(run.manifest.read_text()) | {"colour": "red", "tuner_version": "7.1"}
        run.manifest.write_text(json.dumps(told))
        assert refusal(tmp_path).endswith(
            "says colour, which this tuner does not know: use the one that wrote it (7.1), "
            "or a new run folder"
        )

    @pytest.mark.parametrize(
        "text",
        [
            *["", "{", "[]", "{}", '{"schema": 1}', "\xff"],
            '{"schema": 1, "model": 3, "model_hash": 4, "target": 5}',
            '{"schema": 1, "model": "m", "model_hash": "h", "target": "t", "options": []}',
        ],
    )
    def test_a_damaged_manifest_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "run.json").write_text(text, encoding="latin-1")
        line = refusal(tmp_path)
        assert "damaged" in line or "cannot read" in line

    def test_a_folder_of_other_things_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").touch()
        assert "holds thesis.tex" in refusal(tmp_path)
        assert os.listdir(tmp_path) == ["thesis.tex"]

    def test_a_place_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert "cannot write" in refusal(tmp_path / "file")
        assert "cannot write" in refusal(tmp_path / "file" / "run")
        assert "free space" not in refusal(tmp_path / "file")

    def test_a_full_disk_asks_for_space(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        assert "No space left on device; free space or name another" in refusal(tmp_path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_an_old_run_that_became_read_only_is_refused(self, tmp_path: Path) -> None:
        open_run(tmp_path, WANTED)
        tmp_path.chmod(0o555)
        assert "cannot write" in refusal(tmp_path)
        assert read_run(tmp_path)[1] == WANTED

    def test_reading_needs_a_run(self, tmp_path: Path) -> None:
        with pytest.raises(TunerError, match="there is no run folder"):
            read_run(tmp_path / "no")
        with pytest.raises(TunerError, match=r"no run folder: it has no run\.json"):
            read_run(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_of_runs_names_one_of_them(self, tmp_path: Path) -> None:
        for name in ("b", "a"):
            open_run(tmp_path / name, WANTED)
        with pytest.raises(TunerError, match=f"is a folder of runs: name one, as {tmp_path}/a$"):
            read_run(tmp_path)

    def test_of_two_that_start_at_once_one_makes_the_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The other process is quicker, between our look and our writing.
        real, other = os.link, replace(WANTED, model_hash="b" * 64)

        def late(source: Path, target: Path) -> None:
            monkeypatch.setattr(os, "link", real)
            open_run(tmp_path, other)
            real(source, target)

        monkeypatch.setattr(os, "link", late)
        assert "another model" in refusal(tmp_path)
        assert read_run(tmp_path)[1] == other
        assert os.listdir(tmp_path) == ["run.json"]

    def test_the_manifest_is_replaced_as_a_whole(self, tmp_path: Path) -> None:
        run, manifest = open_run(tmp_path, WANTED)
        named = replace(manifest, mlflow={"run_id": "r1"})
        run.write_manifest(named)
        assert run.read_manifest() == named
        assert os.listdir(tmp_path) == ["run.json"]


HOLD = """
import sys, time
from pathlib import Path
from tuner.runs.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


# The child ends when the test closes its end of the pipe.
HOLD_WITH_CHILD = HOLD.replace(
    'print("held"',
    """import subprocess
    child = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    subprocess.Popen(child, stdout=subprocess.DEVNULL, close_fds=False)
    print("held\"""",
)


@contextmanager
def holding_process(lock: Path, program: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def no_sleep(seconds: float) -> None:
    raise AssertionError("nothing to wait for")


class TestLock:
    def test_it_names_its_holder_while_it_is_held(self, tmp_path: Path) -> None:
        path = tmp_path / "run.lock"
        with RunLock(path, clock=lambda: 12.5):
            holder = read_holder(path)
            assert holder is not None
            assert (holder.pid, holder.started_s) == (os.getpid(), 12.5)
        assert read_holder(path) is None

    def test_one_whose_master_lives_is_refused_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "run.lock"
        lock = RunLock(path, serves=os.getpid())
        with lock, pytest.raises(TunerError, match="in use by process"):
            RunLock(path, sleep=no_sleep).acquire()

    def test_it_can_be_taken_again(self, tmp_path: Path) -> None:
        lock = RunLock(tmp_path / "run.lock", sleep=no_sleep)
        for _ in range(2):
            with lock:
                pass
        lock.release()

    def test_one_held_here_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "run.lock"
        with RunLock(path), pytest.raises(TunerError, match=f"process {os.getpid()} "):
            RunLock(path, sleep=no_sleep).acquire()

    def test_one_held_by_a_living_process_is_refused_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "run.lock"
        with holding_process(path) as process:
            with pytest.raises(TunerError, match=f"in use by process {process.pid} on ") as caught:
                RunLock(path, sleep=no_sleep).acquire()
            assert "\n" not in str(caught.value)

    def test_one_of_a_process_that_was_killed_is_free(self, tmp_path: Path) -> None:
        path = tmp_path / "run.lock"
        with holding_process(path) as process:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
            holder = read_holder(path)
            assert holder is not None
            assert holder.pid == process.pid
            with RunLock(path, sleep=no_sleep):
                pass

    @pytest.mark.parametrize("who", ["pid", "serves"])
    def test_what_the_dead_left_behind_is_waited_for(self, tmp_path: Path, who: str) -> None:
        path = tmp_path / "run.lock"
        with holding_process(path) as heir:
            # The lock is held, by the forked child or by the servant of a process that is gone.
            self.name_a_dead_process(path, who)
            waited: list[float] = []

            def sleep(seconds: float) -> None:
                waited.append(seconds)
                heir.kill()
                heir.wait(timeout=10)

            with RunLock(path, sleep=sleep):
                assert len(waited) == 1

    def test_the_wait_has_an_end(self, tmp_path: Path) -> None:
        path = tmp_path / "run.lock"
        now = 0.0

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

        with holding_process(path):
            pid = self.name_a_dead_process(path, "pid")
            with pytest.raises(TunerError, match=f"a child of process {pid}"):
                RunLock(path, wait_s=30.0, monotonic=lambda: now, sleep=sleep).acquire()
            assert 30.0 <= now < 31.0
            path.write_text("")
            with pytest.raises(TunerError, match="in use by a process"):
                RunLock(path, wait_s=0.0, monotonic=lambda: now, sleep=sleep).acquire()

    def test_programs_that_a_killed_holder_started_do_not_keep_it(self, tmp_path: Path) -> None:
        path = tmp_path / "run.lock"
        with holding_process(path, HOLD_WITH_CHILD) as process:
            process.send_signal(signal.SIGKILL)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with RunLock(path, sleep=no_sleep):
                pass

    def test_a_place_that_cannot_be_locked_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(TunerError, match="cannot lock"):
            RunLock(tmp_path / "no" / "run.lock").acquire()

    @staticmethod
    def name_a_dead_process(path: Path, role: str) -> int:
        """Name a process that has ended as the holder or as its master; gives its pid."""
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait(timeout=30)
        text = json.loads(path.read_text()) | {role: dead.pid}
        path.write_text(json.dumps(text))
        return dead.pid
