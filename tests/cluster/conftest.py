"""One embedded Ray cluster for all tests that need one; it listens on loopback only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def embedded_ray() -> Iterator[None]:
    """A local cluster, for the whole session of tests."""
    from cluster.ray_workers.ray_cluster import ray_cluster

    with ray_cluster("local", measure_slots=1):
        yield


@pytest.fixture
def bench_without_pauses(bench_without_pauses: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in commands, whose kernels run in this process then."""
    from cluster.app.driver import export

    monkeypatch.setattr(export, "bench", export.bench_here)
