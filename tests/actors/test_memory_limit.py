"""How much memory a process may use, as the files of a machine or a container tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.memory_limit import memory_bytes

GB = 1 << 30
UNLIMITED_V1 = "9223372036854771712"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 64 GB."""
    put(tmp_path, "proc/meminfo", f"MemTotal:       {64 << 20} kB\nMemFree:        1 kB\n")
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_without_control_groups_it_is_the_machines(root: Path) -> None:
    assert memory_bytes(root) == 64 * GB


def test_a_limit_of_version_two_counts(root: Path) -> None:
    put(root, "proc/self/cgroup", "0::/jobs/ours\n")
    put(root, "sys/fs/cgroup/jobs/ours/memory.max", f"{8 * GB}\n")
    assert memory_bytes(root) == 8 * GB


def test_a_limit_on_a_group_around_counts_too(root: Path) -> None:
    put(root, "proc/self/cgroup", "0::/jobs/ours\n")
    put(root, "sys/fs/cgroup/jobs/ours/memory.max", "max\n")
    put(root, "sys/fs/cgroup/jobs/memory.max", f"{16 * GB}\n")
    assert memory_bytes(root) == 16 * GB


def test_a_limit_of_version_one_counts(root: Path) -> None:
    put(root, "proc/self/cgroup", "9:cpu,cpuacct:/ours\n4:memory:/ours\n0::/\n")
    put(root, "sys/fs/cgroup/memory/ours/memory.limit_in_bytes", f"{4 * GB}\n")
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{UNLIMITED_V1}\n")
    assert memory_bytes(root) == 4 * GB


@pytest.mark.parametrize(
    ("group", "limit"),
    [
        ("0::/../kubelet/pod1", "sys/fs/cgroup/memory.max"),
        ("4:memory:/docker/abc", "sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ],
)
def test_in_a_container_the_limit_is_at_the_top(root: Path, group: str, limit: str) -> None:
    put(root, "proc/self/cgroup", f"{group}\n")
    put(root, limit, f"{2 * GB}\n")
    assert memory_bytes(root) == 2 * GB


def test_no_group_has_more_than_the_machine(root: Path) -> None:
    put(root, "proc/self/cgroup", "4:memory:/\n")
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{UNLIMITED_V1}\n")
    assert memory_bytes(root) == 64 * GB


def test_this_machine_has_some() -> None:
    assert memory_bytes() > 1 << 20
