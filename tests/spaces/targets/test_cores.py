"""How many cores there are for this process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spaces.targets.cores import count_allowed_cores, usable_cores


@pytest.mark.parametrize(
    ("file", "text", "cores"),
    [
        ("cpu.max", "150000 100000", 1),
        ("cpu.max", "50000 100000", 1),
        ("cpu.max", "max 100000", None),
        ("cpu.max", "nonsense", None),
        ("nosuch", "", None),
    ],
)
def test_cores_under_a_quota(file: str, text: str, cores: int | None, tmp_path: Path) -> None:
    unlimited = count_allowed_cores(tmp_path)
    (tmp_path / file).write_text(text)
    assert count_allowed_cores(tmp_path) == (unlimited if cores is None else cores)


def test_cores_under_an_old_quota(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert count_allowed_cores(tmp_path) == 1


def test_a_quota_leaves_so_many_physical_cores_at_most(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("max 100000")
    free = usable_cores(tmp_path)
    assert 1 <= free <= (os.cpu_count() or 1)
    (tmp_path / "cpu.max").write_text("100000 100000")
    assert usable_cores(tmp_path) == 1
