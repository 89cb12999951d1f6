"""Property tests draw the same examples each time, so that a passing revision goes on passing.

`make fuzz` draws others. None has a deadline: a busy machine is no defect. However a process of
tests ends, what it started ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from benchmarks.fleet.guard import start_guard
from spaces.ir.lean_tvm import import_tvm_lean
from tests.combinations import leave_combinations
from tests.needed import needed_nvcc, with_cuda_programs
from tests.quick_code import choose_code

os.environ["PATH"] = with_cuda_programs(os.environ["PATH"])
import_tvm_lean()  # as our own processes do
os.environ["TUNER_STRICT"] = "1"  # a mistake of ours in a template is none that tests pass over
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("fuzz", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("steady")
# It draws constants of whatever modules of ours are imported too, which depends on what else ran.
providers._get_local_constants = lambda: providers._local_constants

# Processes of pytest-xdist run its code as no module's: `inspect`, which TVM's parser asks for each
# frame of each function, would look through all modules every time.
if find_spec("xdist") and (code := find_spec("xdist.remote")) and code.origin:
    inspect.modulesbyfile[code.origin] = "xdist.remote"

# What a shell starts in the background ignores Ctrl-C, and so does all that it starts: the commands
# that tests interrupt as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HERE = Path(__file__).parent
_MARK = "TUNER_TESTS_MARK"
_GUARD_S = 60.0
"""What it gets to end what is left; longer only where somebody else holds its line."""
_SLOW = 20
"""Other tests that take as long as a slow one."""
_GUARD = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    """Ray heads and drivers of tests would outlive one that is killed."""
    mark = uuid.uuid4().hex
    config.stash[_GUARD] = start_guard(mark, name=_MARK)
    os.environ[_MARK] = mark


def pytest_unconfigure(config: pytest.Config) -> None:
    """Its own end is the guard's, too."""
    guard = config.stash[_GUARD]
    assert guard.stdin is not None
    guard.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        guard.wait(_GUARD_S)
    guard.kill()
    guard.wait()


def pytest_collection_finish() -> None:
    """What was imported stays: collecting among it takes a twentieth of all time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before its fixtures, which compile too
def pytest_runtest_setup(item: pytest.Item) -> None:
    choose_code(optimised=_is("optimised", item))


@pytest.fixture(autouse=True)
def same_cores() -> Iterator[None]:
    """All tests have all cores. TVM may bind the thread that runs its first parallel kernel to one,
    where it was told to use more threads than there are; nodes that a later test starts inherit
    that, and look like machines of one core."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    mine = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, mine)


@pytest.fixture
def bench_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at no time: no cool-down, no warm-up, short samples."""
    for name, time_s in (("_COOL_DOWN_S", 0.0), ("_WARM_UP_S", 0.0), ("_SAMPLE_S", 1e-4)):
        monkeypatch.setattr(f"spaces.deploy.bench.{name}", time_s)


@pytest.fixture
def nvcc() -> str:
    """The path of CUDA's compiler (`tests.needed.needs_nvcc`)."""
    return needed_nvcc()


@pytest.hookimpl(tryfirst=True)  # before xdist looks who stays together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say what stays together where tests run in several processes: a file, and all files of the
    cluster with a test that needs Ray, of which there is one cluster for all tests. What takes
    longest comes first, so that the processes end together.
    """
    leave_combinations(items)
    of_ray = {
        item.path
        for item in items
        if _is("ray", item) and (_is("debian", item) or not _is("long", item))
    }
    groups, work = dict[pytest.Item, str](), Counter[str]()
    for item in items:
        path = item.path.relative_to(_HERE)
        together = path.parts[0] == "cluster" and item.path in of_ray
        groups[item] = "cluster" if together else str(path)
        item.add_marker(pytest.mark.xdist_group(groups[item]))
        work[groups[item]] += _SLOW if _is("slow", item) else 1
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -work[groups[item]])


def _is(mark: str, item: pytest.Item) -> bool:
    return item.get_closest_marker(mark) is not None
