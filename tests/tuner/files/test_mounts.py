"""Which paths are on a file system that several machines see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.files.mounts import file_system, is_shared
from tuner.runs.remote import refuse_network_disk

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
41 27 0:40 / /mnt rw,relatime - nfs4 server:/export rw,vers=4.2
42 41 0:41 / /mnt/fast rw,relatime - xfs /dev/vdb rw
43 27 0:42 / /my\\040runs rw,relatime master:2 shared:9 - lustre mds:/fs rw
44 27 0:43 / /runs rw - tmpfs tmpfs rw
45 27 0:44 / /runs rw - fuse.s3fs s3fs rw
"""


@pytest.fixture
def mountinfo(tmp_path: Path) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS)
    return file


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
def test_a_path_is_on_what_is_mounted_deepest_and_last(
    mountinfo: Path, path: str, kind: str
) -> None:
    assert file_system(Path(path), mountinfo) == kind


def test_where_nobody_tells_nothing_is_known(tmp_path: Path) -> None:
    assert file_system(Path("/mnt"), tmp_path / "none") == ""
    assert not is_shared("")


@pytest.mark.parametrize("kind", ["nfs", "cifs", "smb3", "ceph", "beegfs", "9p", "fuse.glusterfs"])
def test_several_machines_see_these(kind: str) -> None:
    assert is_shared(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "fuse.fuse-overlayfs"]
)
def test_one_machine_alone_has_these(kind: str) -> None:
    assert not is_shared(kind)


def test_a_run_is_not_kept_in_sqlite_where_that_loses_data(mountinfo: Path) -> None:
    refuse_network_disk(Path("/home/me/run1"), mountinfo)
    refuse_network_disk(Path("/mnt/fast/run1"), mountinfo)
    with pytest.raises(
        TunerError, match=r"/mnt/run1 is on nfs4.*--run file:///mnt/run1"
    ) as refused:
        refuse_network_disk(Path("/mnt/run1"), mountinfo)
    assert len(str(refused.value).splitlines()) == 1
