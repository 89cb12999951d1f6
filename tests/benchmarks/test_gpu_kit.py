"""What travels to a machine without network arrives as it was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.kit import pack


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Packages: small files, a program, and one large file."""
    made = tmp_path / "site"
    (made / "small").mkdir(parents=True)
    (made / "small" / "__init__.py").write_text("NUMBER = 7\n")
    (made / "small" / "tool").write_text("#!/bin/sh\n")
    (made / "small" / "tool").chmod(0o755)
    (made / "large.so").write_bytes(random.Random(0).randbytes(3 << 20))
    return made


def test_packages_arrive_in_volumes_of_the_size_that_may_travel(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "BLOCK_BYTES", 1 << 20)
    out, there = tmp_path / ".gpu", tmp_path / "there"
    (out / "blocks" / "tvm").mkdir(parents=True)
    pack.write_blocks(site, out / "blocks" / "tvm", 1)
    blocks = json.loads((out / "blocks" / "tvm" / "blocks.json").read_text())
    assert len(blocks) == 4, "the small files, and three pieces of the large one"
    most = max(path.stat().st_size for path in (out / "blocks" / "tvm").glob("*.xz"))
    volumes = pack.deal(out, ["tvm"], most + pack.UNPACK.stat().st_size + (66 << 10))
    assert volumes is not None
    assert len(volumes) > 1
    for volume in reversed(volumes):
        command = [sys.executable, str(volume / "unpack.py"), str(there)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    for path in site.rglob("*"):
        if path.is_file():
            arrived = there / "site" / path.relative_to(site)
            assert arrived.read_bytes() == path.read_bytes()
            assert arrived.stat().st_mode & 0o111 == path.stat().st_mode & 0o111
    assert str(there / "site") in (there / "env.sh").read_text()


def test_a_block_that_is_too_large_to_travel_is_said(site: Path, tmp_path: Path) -> None:
    out = tmp_path / ".gpu"
    (out / "blocks" / "tvm").mkdir(parents=True)
    pack.write_blocks(site, out / "blocks" / "tvm", 1)
    assert pack.deal(out, ["tvm"], 70 << 10) is None


def test_packages_are_those_that_the_project_asks_for() -> None:
    root = Path(__file__).parents[2]
    assert "apache-tvm==0.27.0.post1" in pack.requirements("tvm", root)
    assert any(r.startswith("ray==") for r in pack.requirements("ray", root))
