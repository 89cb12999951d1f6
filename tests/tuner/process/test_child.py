"""A child process: whatever it does, its parent gets a value and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tuner.process.ask_once import ask_once
from tuner.process.child import Child
from tuner.process.outcome import DeadlinePassed, Died, MemoryExceeded, Outcome, Raised, Returned

WAIT_S = 60.0

WORK = '''
import os, signal, sys, threading, time

class Work:
    def __init__(self, greeting="hello"):
        self.greeting, self.calls = greeting, 0
    def greet(self, name):
        self.calls += 1
        print("noise on standard output")
        return f"{self.greeting} {name}"
    def count(self): return self.calls
    def environment(self, name): return os.environ.get(name)
    def echo(self, data): return data
    def hang(self):
        while True: time.sleep(1)
    def sleep(self, seconds):
        time.sleep(seconds); return "slept"
    def abort(self): os.abort()
    def segfault(self): os.kill(os.getpid(), signal.SIGSEGV)
    def leave(self, code): os._exit(code)
    def exit(self, code): sys.exit(code)
    def fail(self): raise ValueError("first line\\nsecond line")
    def lock(self): return threading.Lock()
    def grow(self):
        kept = []
        while True: kept.append(bytearray(os.urandom(1) * (8 << 20)))
    def grow_elsewhere(self):
        import subprocess
        work = "kept = bytearray(os.urandom(1) * (400 << 20)); time.sleep(1000)"
        subprocess.run([sys.executable, "-c", "import os, time; " + work])
    def start_grandchild(self):
        import subprocess
        return subprocess.Popen(["sleep", "1000"]).pid

class Broken:
    def __init__(self): raise RuntimeError("no such device")

class Slow:
    def __init__(self): time.sleep(1000)

class Rebuilt:
    """Can be pickled, cannot be rebuilt."""
    def __reduce__(self): return (int, ("not a number",))

class Strange:
    def give(self): return Rebuilt()
'''


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "child_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def child() -> Iterator[Child]:
    with Child("child_work:Work", ("hello",)) as made:
        assert made.ready(WAIT_S) == Returned(None)
        yield made


def call(child: Child, method: str, *args: Any) -> Outcome:
    return child.call(method, *args, deadline_s=WAIT_S)


def gone(pid: int) -> bool:
    """Whether a process is dead (a zombie that nobody reaps counts)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_gone(pid: int) -> None:
    until = time.monotonic() + WAIT_S
    while not gone(pid):
        assert time.monotonic() < until, f"{pid} still runs"
        time.sleep(0.02)


def test_arguments_that_cannot_be_sent_leave_no_child_behind() -> None:
    before, open_before = psutil.Process().children(), set(os.listdir("/proc/self/fd"))
    with pytest.raises(Exception, match="pickle"):
        Child("os:getcwd", (lambda: None,))
    assert psutil.Process().children() == before
    assert set(os.listdir("/proc/self/fd")) == open_before


def test_it_answers_calls_on_one_object(child: Child) -> None:
    assert call(child, "greet", "you") == Returned("hello you")
    assert call(child, "greet", "me") == Returned("hello me")
    assert call(child, "count") == Returned(2)


def test_one_question_to_a_process_of_its_own() -> None:
    def ask(factory: str, method: str, deadline_s: float = WAIT_S) -> Outcome:
        return ask_once(factory, (), method, ready_s=WAIT_S, deadline_s=deadline_s)

    assert ask("child_work:Work", "count") == Returned(0)
    assert ask("child_work:Work", "hang", 0.3) == DeadlinePassed(0.3)
    refused = ask("child_work:Broken", "count")
    assert isinstance(refused, Raised)
    assert str(refused) == "RuntimeError: no such device"


CROWDED = """
import os, resource
from tuner.process.child import Child
from tuner.process.outcome import Returned
from tuner.tracking.tracker_process import ParentWatch

most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
while os.dup(0) < 1100:
    pass
with Child("child_work:Work") as child:
    assert child.ready(60.0) == Returned(None)
    large = b"x" * (1 << 20)
    assert child.call("echo", large, deadline_s=60.0) == Returned(large)
stdin, parent = os.pipe()
watch = ParentWatch(os.getppid(), stdin)
watch.wait(0.0)
assert not watch.winding_up
os.write(parent, b"!")
watch.wait(60.0)
assert watch.winding_up
print(stdin)
"""


def test_it_serves_a_process_with_thousands_of_open_files(tmp_path: Path) -> None:
    """As the search of a large fleet is: each connection is a descriptor."""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    crowded = subprocess.run(
        [sys.executable, "-c", CROWDED],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert crowded.stderr == ""
    assert int(crowded.stdout) > 1024


def test_its_environment_is_set_at_its_start() -> None:
    with Child("child_work:Work", env={"CHILD_FLAVOUR": "mint"}) as child:
        assert child.ready(WAIT_S) == Returned(None)
        assert call(child, "environment", "CHILD_FLAVOUR") == Returned("mint")


def test_its_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "child.log"
    with Child("child_work:Work", log=log) as child:
        assert child.ready(WAIT_S) == Returned(None)
        call(child, "greet", "you")
    with Child("child_work:Broken", log=log) as child:
        assert isinstance(child.ready(WAIT_S), Raised)
    assert log.exists()


def test_an_exception_is_a_value_and_the_child_goes_on(child: Child) -> None:
    outcome = call(child, "fail")
    assert isinstance(outcome, Raised)
    assert (outcome.kind, str(outcome)) == ("ValueError", "ValueError: first line")
    assert "in fail" in outcome.traceback
    assert call(child, "greet", "you") == Returned("hello you")


def test_an_unknown_method_is_raised(child: Child) -> None:
    outcome = call(child, "nothing")
    assert isinstance(outcome, Raised)
    assert outcome.kind == "AttributeError"


@pytest.mark.parametrize(
    ("method", "args", "died"),
    [
        ("abort", (), Died(signal.SIGABRT, None)),
        ("segfault", (), Died(signal.SIGSEGV, None)),
        ("leave", (3,), Died(None, 3)),
        ("exit", (4,), Died(None, 4)),
    ],
)
def test_a_crash_is_told_by_its_signal_or_code(
    child: Child, method: str, args: tuple[int, ...], died: Died
) -> None:
    assert call(child, method, *args) == died
    assert not child.alive
    assert call(child, "greet", "you") == died, "a dead child says again how it died"


def test_a_crash_names_its_signal() -> None:
    assert str(Died(signal.SIGSEGV, None)) == "killed by SIGSEGV"
    assert str(Died(None, 3)) == "exited with code 3"


def test_a_hang_ends_at_the_deadline_and_the_child_is_dead(child: Child) -> None:
    assert child.call("hang", deadline_s=0.2) == DeadlinePassed(0.2)
    assert gone(child.pid)


def test_a_kill_takes_what_the_child_had_started(child: Child) -> None:
    outcome = call(child, "start_grandchild")
    assert isinstance(outcome, Returned)
    child.kill()
    wait_gone(outcome.value)


def test_a_crash_takes_what_the_child_had_started(child: Child) -> None:
    outcome = call(child, "start_grandchild")
    assert isinstance(outcome, Returned)
    assert call(child, "abort") == Died(signal.SIGABRT, None)
    wait_gone(outcome.value)


def test_a_result_that_cannot_be_pickled_is_raised(child: Child) -> None:
    outcome = call(child, "lock")
    assert isinstance(outcome, Raised)
    assert "pickle" in outcome.text
    assert call(child, "greet", "you") == Returned("hello you")


def test_a_result_that_cannot_be_rebuilt_is_raised() -> None:
    with Child("child_work:Strange") as child:
        assert child.ready(WAIT_S) == Returned(None)
        outcome = call(child, "give")
        assert isinstance(outcome, Raised)
        assert outcome.kind == "ValueError"


def test_memory_without_end_is_cut_off() -> None:
    with Child("child_work:Work", memory_limit_bytes=300 << 20) as child:
        assert child.ready(WAIT_S) == Returned(None)
        outcome = call(child, "grow")
        assert isinstance(outcome, MemoryExceeded)
        assert outcome.rss_bytes > outcome.limit_bytes
        assert gone(child.pid)


def test_memory_of_what_it_started_counts_as_its_own() -> None:
    with Child("child_work:Work", memory_limit_bytes=300 << 20) as child:
        assert child.ready(WAIT_S) == Returned(None)
        outcome = call(child, "grow_elsewhere")
        assert isinstance(outcome, MemoryExceeded)
        assert gone(child.pid)


def test_payloads_of_any_size_pass_both_ways(child: Child) -> None:
    data = os.urandom(10 << 20)
    assert call(child, "echo", data) == Returned(data)
    assert call(child, "echo", b"") == Returned(b"")


def test_a_large_request_is_not_held_any_more_once_it_was_answered(child: Child) -> None:
    tracemalloc.start()
    try:
        outcome = child.call("environment", "x" * (32 << 20), deadline_s=WAIT_S)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome == Returned(None)
    assert held < 8 << 20


def test_a_large_request_to_a_stopped_child_keeps_its_deadline(child: Child) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    assert child.call("echo", b"x" * (10 << 20), deadline_s=0.2) == DeadlinePassed(0.2)
    assert gone(child.pid)


def test_polling_leaves_the_call_in_progress(child: Child) -> None:
    child.start_call("sleep", 0.2)
    outcome = child.poll(0.0)
    assert outcome is None
    assert child.poll(WAIT_S) == Returned("slept")


def test_a_factory_that_raises_says_so() -> None:
    with Child("child_work:Broken") as child:
        outcome = child.ready(WAIT_S)
        assert str(outcome) == "RuntimeError: no such device"
        assert call(child, "greet", "you") == outcome
        assert not child.alive


def test_a_factory_that_does_not_exist_says_so() -> None:
    with Child("child_work:Missing") as child:
        assert isinstance(child.ready(WAIT_S), Raised)


def test_a_slow_factory_is_left_alone_until_someone_gives_up() -> None:
    with Child("child_work:Slow") as child:
        assert child.ready(0.1) == DeadlinePassed(0.1)
        assert child.alive
    assert gone(child.pid)


def test_frozen_time_does_not_count(child: Child) -> None:
    """The clock of frozen time runs as fast as the wall: the deadline never comes nearer."""
    start_s = time.monotonic()

    def frozen_s() -> float:
        return time.monotonic() - start_s

    outcome = child.call("sleep", 0.8, deadline_s=0.3, frozen_s=frozen_s)
    assert outcome == Returned("slept")
    assert child.call("sleep", 1000, deadline_s=0.3, frozen_s=lambda: 5.0) == DeadlinePassed(0.3)


def test_time_frozen_before_the_call_buys_nothing(child: Child) -> None:
    assert child.call("hang", deadline_s=0.2, frozen_s=lambda: 1e6) == DeadlinePassed(0.2)


PARENT = """
import os, sys, time
from tuner.process.child import Child
child = Child("child_work:Work")
child.ready(60)
child.start_call({method!r})
child.poll(0.1)
print(child.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("method", ["count", "hang"])
def test_a_killed_parent_takes_its_child_along(method: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(method=method)], stdout=subprocess.PIPE, env=env
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_gone(pid)


def test_closing_twice_is_harmless(child: Child) -> None:
    child.close()
    child.close()
    assert gone(child.pid)
