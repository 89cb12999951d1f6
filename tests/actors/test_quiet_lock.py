"""The quiet lock, with real processes: frozen while a kernel is timed, resumed whatever happens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.quiet_lock import NotQuiet, Quiet
from tuner.errors import TunerError

WAIT_S = 60.0
BUSY = "import sys\nn = 0\nwhile True:\n    n += 1\n    print(n, flush=True)"
HOLDER = """
import sys, time
from pathlib import Path
from actors.quiet_lock import Quiet
with Quiet(Path(sys.argv[1]), limit_s=float(sys.argv[2])).section(60):
    print("held", flush=True)
    time.sleep(1000)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)


def stat(pid: int) -> list[str]:
    """What the kernel says of a process: its state, its parent, its group and more."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def state(pid: int) -> str:
    return stat(pid)[0]


def states_in(group: int) -> list[str]:
    """The states of the processes of a group that live."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            said = stat(int(entry.name))
            found += [said[0]] if said[0] not in "ZX" and int(said[2]) == group else []
    return found


class Busy:
    """A process that counts as fast as it can into a file, in a group of its own."""

    def __init__(self, out: Path, code: str = BUSY) -> None:
        self.out = out
        with out.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stdout=stream, process_group=0
            )
        self.pid = self.process.pid
        until(self.moves)

    def size(self) -> int:
        return self.out.stat().st_size

    def moves(self) -> bool:
        before = self.size()
        time.sleep(0.02)
        return self.size() > before

    def stands_still(self) -> bool:
        """Whether it is stopped, with all that it started."""
        return set(states_in(self.pid)) == {"T"}

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def quiet(tmp_path: Path) -> Quiet:
    return Quiet(tmp_path / "quiet", limit_s=60.0)


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    made = Busy(tmp_path / "busy.out")
    yield made
    made.stop()


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Orphans become this process's. Of others the kernel itself lets a stopped group go on."""
    prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
    assert prctl(set_child_subreaper, 1, 0, 0, 0) == 0
    yield
    prctl(set_child_subreaper, 0, 0, 0, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@contextlib.contextmanager
def holder(directory: Path, limit_s: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
    """Another process inside a section."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), str(limit_s)],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_registered_process_stands_still_for_the_section(quiet: Quiet, busy: Busy) -> None:
    quiet.register(busy.pid)
    with quiet.section(WAIT_S):
        until(busy.stands_still)
    until(busy.moves)


def test_what_a_process_started_stands_still_with_it(quiet: Quiet, tmp_path: Path) -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
    parent = Busy(tmp_path / "grandchild.out", code)
    try:
        quiet.register(parent.pid)
        with quiet.section(WAIT_S):
            until(parent.stands_still)
        until(parent.moves)
    finally:
        parent.stop()


def test_what_a_killed_process_had_started_goes_on(
    quiet: Quiet, tmp_path: Path, subreaper: None
) -> None:
    """A linker, say, of a builder's child that is killed for its memory."""
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
    parent = Busy(tmp_path / "grandchild.out", code)
    quiet.register(parent.pid)
    try:
        with quiet.section(WAIT_S):
            os.kill(parent.pid, signal.SIGKILL)
            parent.process.wait()
            until(parent.stands_still)
        until(parent.moves)
        with holder(tmp_path / "quiet"):
            until(parent.moves)  # it is of no process that is registered
    finally:
        parent.stop()


def test_what_a_killed_process_had_started_goes_on_without_the_holder(
    quiet: Quiet, tmp_path: Path, subreaper: None
) -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
    parent = Busy(tmp_path / "grandchild.out", code)
    quiet.register(parent.pid)
    try:
        with holder(tmp_path / "quiet") as process:
            os.kill(parent.pid, signal.SIGKILL)
            parent.process.wait()
            process.kill()
            process.wait()
        until(parent.stands_still)
        quiet.resume_if_abandoned()
        until(parent.moves)
    finally:
        parent.stop()


def test_a_section_thaws_when_it_raises(quiet: Quiet, busy: Busy) -> None:
    quiet.register(busy.pid)
    with pytest.raises(RuntimeError, match="kernel"), quiet.section(WAIT_S):
        raise RuntimeError("kernel")
    until(busy.moves)


def test_the_spared_and_the_forgotten_go_on(quiet: Quiet, busy: Busy) -> None:
    quiet.register(busy.pid)
    with quiet.section(WAIT_S, spare=(busy.pid,)):
        until(busy.moves)
    quiet.unregister(busy.pid)
    quiet.unregister(busy.pid)
    with quiet.section(WAIT_S):
        until(busy.moves)


def test_a_pid_that_is_another_process_now_is_not_stopped(
    quiet: Quiet, busy: Busy, tmp_path: Path
) -> None:
    quiet.register(busy.pid)
    entry = tmp_path / "quiet" / str(busy.pid)
    entry.write_text("1")
    with quiet.section(WAIT_S):
        until(busy.moves)
    assert not entry.exists()


def test_the_dead_are_no_trouble(quiet: Quiet, tmp_path: Path) -> None:
    short = subprocess.Popen(["sleep", "1000"], process_group=0)
    quiet.register(short.pid)
    short.kill()
    short.wait()
    with quiet.section(WAIT_S):
        pass
    quiet.register(short.pid)
    assert not (tmp_path / "quiet" / str(short.pid)).exists()


def test_a_process_that_registers_during_a_section_waits_for_its_end(
    quiet: Quiet, busy: Busy
) -> None:
    with quiet.section(WAIT_S):
        quiet.register(busy.pid)
        until(lambda: state(busy.pid) == "T")
    until(busy.moves)


def test_one_section_at_a_time(quiet: Quiet, tmp_path: Path) -> None:
    inside = threading.Event()
    leave = threading.Event()

    def hold() -> None:
        with quiet.section(WAIT_S):
            inside.set()
            leave.wait(WAIT_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(WAIT_S)
    with pytest.raises(NotQuiet, match="no quiet section"), quiet.section(0.05):
        pytest.fail("two sections at once")
    leave.set()
    thread.join()
    with quiet.section(WAIT_S):
        pass


def test_frozen_time_counts_up_and_only_in_sections(quiet: Quiet) -> None:
    assert quiet.frozen_s() == 0
    with quiet.section(WAIT_S):
        time.sleep(0.05)
        inside = quiet.frozen_s()
        assert inside >= 0.05
    after = quiet.frozen_s()
    assert after >= inside
    time.sleep(0.02)
    assert quiet.frozen_s() == after


def test_frozen_time_is_the_same_for_every_process_of_the_node(
    quiet: Quiet, tmp_path: Path
) -> None:
    with quiet.section(WAIT_S):
        time.sleep(0.02)
    assert Quiet(tmp_path / "quiet").frozen_s() == quiet.frozen_s()


def test_a_watched_process_stays_frozen_while_the_holder_lives(
    quiet: Quiet, busy: Busy, tmp_path: Path
) -> None:
    quiet.register(busy.pid)
    watch = quiet.watch(busy.pid)
    with holder(tmp_path / "quiet"):
        first = watch()
        until(busy.stands_still)
        until(lambda: watch() > first)
        assert state(busy.pid) == "T"


def test_a_killed_holder_leaves_nothing_frozen(quiet: Quiet, busy: Busy, tmp_path: Path) -> None:
    quiet.register(busy.pid)
    watch = quiet.watch(busy.pid)
    with holder(tmp_path / "quiet") as process:
        until(busy.stands_still)
        process.kill()
        process.wait()
        assert state(busy.pid) == "T", "nobody resumed it yet"
        until(lambda: watch() >= 0 and state(busy.pid) != "T")
    until(busy.moves)
    settled = watch()
    time.sleep(0.02)
    assert watch() == settled, "the clock of a dead section stands"


@pytest.mark.parametrize("by_number", [True, False])
def test_who_notices_that_the_holder_was_killed_thaws_all(
    quiet: Quiet, busy: Busy, tmp_path: Path, by_number: bool
) -> None:
    """Others have nobody who watches: a tracker whose session was killed as well."""
    forsaken = Busy(tmp_path / "forsaken.out")
    try:
        Quiet(tmp_path / "quiet").register(forsaken.pid)
        quiet.register(busy.pid)
        watch = quiet.watch(busy.pid if by_number else None)
        with holder(tmp_path / "quiet") as process:
            until(forsaken.stands_still)
            process.kill()
            process.wait()
            until(lambda: watch() >= 0 and busy.moves())
            until(forsaken.moves)
    finally:
        forsaken.stop()


def test_a_holder_that_is_stuck_is_overruled(busy: Busy, tmp_path: Path) -> None:
    quiet = Quiet(tmp_path / "quiet")
    quiet.register(busy.pid)
    watch = quiet.watch(busy.pid)
    with holder(tmp_path / "quiet", limit_s=0.2) as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: watch() >= 0.2 and busy.moves())
        assert watch() == pytest.approx(0.2)


class TestPlanted:
    """Files that are not of a worker of this user: nothing is stopped for them, or written to."""

    def plant(self, folder: Path, pid: int) -> Path:
        """What a process writes that knows how."""
        born = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        file = folder / "quiet" / str(pid)
        file.write_text(f"{born} {os.getpid()}")
        return file

    def test_a_file_as_ours_stops_it(self, quiet: Quiet, busy: Busy, tmp_path: Path) -> None:
        self.plant(tmp_path, busy.pid)
        with quiet.section(WAIT_S):
            until(busy.stands_still)

    @pytest.mark.parametrize("by", ["", "1", f"{2**22}"])
    def test_a_process_that_is_no_child_of_who_registered_it_goes_on(
        self, quiet: Quiet, busy: Busy, tmp_path: Path, by: str
    ) -> None:
        file = self.plant(tmp_path, busy.pid)
        file.write_text(f"{file.read_text().split()[0]} {by}")
        with quiet.section(WAIT_S):
            until(busy.moves)

    def test_a_file_that_is_a_link_stops_nobody(
        self, quiet: Quiet, busy: Busy, tmp_path: Path
    ) -> None:
        file = self.plant(tmp_path, busy.pid)
        file.symlink_to(file.rename(tmp_path / "elsewhere"))
        with quiet.section(WAIT_S):
            until(busy.moves)
        assert (tmp_path / "elsewhere").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can plant what is another's")
    def test_nor_does_another_users(self, quiet: Quiet, busy: Busy, tmp_path: Path) -> None:
        os.chown(self.plant(tmp_path, busy.pid), 12345, 12345)
        with quiet.section(WAIT_S):
            until(busy.moves)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another's")
    def test_another_users_process_goes_on(self, quiet: Quiet, tmp_path: Path) -> None:
        process = subprocess.Popen(["sleep", "100"], user=12345, process_group=0)
        try:
            self.plant(tmp_path, process.pid)
            with quiet.section(WAIT_S):
                assert state(process.pid) != "T"
        finally:
            process.kill()
            process.wait()

    @pytest.mark.parametrize("name", ["clock", "lock"])
    def test_a_link_is_not_written_through(self, quiet: Quiet, tmp_path: Path, name: str) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious")
        (tmp_path / "quiet" / name).symlink_to(victim)
        with pytest.raises(TunerError, match=f"{name} is a link") as caught:
            quiet.section(WAIT_S).__enter__()
        assert "\n" not in str(caught.value)
        assert victim.read_text() == "precious"

    def test_a_directory_that_is_one_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "quiet").symlink_to(tmp_path)
        with pytest.raises(TunerError, match="is a link"):
            Quiet(tmp_path / "quiet")
