"""Tests in several processes: what must stay together does."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
def test_a_file_stays_in_one_process(request: pytest.FixtureRequest) -> None:
    """Else each process makes what a file's tests share, a cluster of Ray for one."""
    assert request.node.nodeid.endswith("@test_groups.py")
