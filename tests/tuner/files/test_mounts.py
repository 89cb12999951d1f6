"""Which paths are on a file system that several machines see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.files.mounts import Mount, file_system, is_shared, mounts
from tuner.runs.remote import refuse_network_disk

MOUNTED = [
    Mount(Path("/proc"), "proc"),
    Mount(Path("/"), "ext4"),
    Mount(Path("/mnt"), "nfs4"),
    Mount(Path("/mnt/fast"), "xfs"),
    Mount(Path("/my runs"), "lustre"),
    Mount(Path("/runs"), "tmpfs"),
    Mount(Path("/runs"), "fuse.s3fs"),
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/runs/1", "ext4"),
        ("/mnt/runs/1", "nfs4"),
        ("/mntx", "ext4"),
        ("/mnt/fast/runs/1", "xfs"),
        ("/my runs/1", "lustre"),
        ("/runs/1", "fuse.s3fs"),
    ],
)
def test_a_path_is_on_what_is_mounted_deepest_and_last(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTED) == kind


def test_this_machine_tells_what_it_has_mounted() -> None:
    assert Mount(Path("/proc"), "proc") in mounts()
    assert file_system(Path("/proc/self")) == "proc"


def test_where_nobody_tells_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: bool) -> None:
        raise FileNotFoundError("/proc/filesystems")

    monkeypatch.setattr("psutil.disk_partitions", refuse)
    assert file_system(Path("/mnt")) == ""
    assert not is_shared("")


@pytest.mark.parametrize("kind", ["nfs", "cifs", "smb3", "ceph", "beegfs", "9p", "fuse.glusterfs"])
def test_several_machines_see_these(kind: str) -> None:
    assert is_shared(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "fuse.fuse-overlayfs"]
)
def test_one_machine_alone_has_these(kind: str) -> None:
    assert not is_shared(kind)


def test_a_run_is_not_kept_in_sqlite_where_that_loses_data() -> None:
    refuse_network_disk(Path("/home/me/run1"), MOUNTED)
    refuse_network_disk(Path("/mnt/fast/run1"), MOUNTED)
    with pytest.raises(
        TunerError, match=r"/mnt/run1 is on nfs4.*--run file:///mnt/run1"
    ) as refused:
        refuse_network_disk(Path("/mnt/run1"), MOUNTED)
    assert len(str(refused.value).splitlines()) == 1
