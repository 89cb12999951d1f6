"""A Ray cluster of several nodes on this machine, whose nodes can be lost as machines are.

Every listener is on loopback. A node is lost with all of its processes at once, without a word to
anyone, which is what a machine that is switched off looks like.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fleet.guard import kill
from cluster.ray_workers.loopback import LOOPBACK, on_loopback
from cluster.ray_workers.ray_cluster import ENVIRONMENT

_OBJECT_STORE_BYTES = 128 << 20
ALONE = {
    **ENVIRONMENT,
    **LOOPBACK,
    "RAY_AUTH_MODE": "disabled",  # nobody but this user reaches it
}
"""What processes of a cluster on this machine need in their environment."""


class LocalFleet:
    """A head and nodes that come and go.

    Args:
        head: resources of the head node, by Ray's names; `CPU` is one of them.
    """

    def __init__(self, head: Mapping[str, float]) -> None:
        os.environ.update(ALONE)
        os.environ.pop("RAY_ADDRESS", None)
        self._alone = contextlib.ExitStack()
        self._alone.enter_context(on_loopback())
        from ray.cluster_utils import Cluster

        self._temporary = tempfile.TemporaryDirectory(prefix="fleet-", ignore_cleanup_errors=True)
        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={
                **_settings(head),
                "include_dashboard": False,
                "temp_dir": self._temporary.name,
            },
        )

    @property
    def address(self) -> str:
        """`HOST:PORT` for drivers."""
        return str(self._cluster.address)

    @property
    def nodes(self) -> Sequence[Any]:
        """All nodes but the head."""
        return sorted(self._cluster.worker_nodes, key=lambda node: str(node.node_id))

    def add(self, resources: Mapping[str, float], *, cores: int | None = None) -> Any:
        """Add a node; it is there when this returns.

        Args:
            cores: of this machine's that its processes may use, at most; None is all.
        """
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(mine)[:cores])  # its processes inherit it
        try:
            return self._cluster.add_node(**_settings(resources))
        finally:
            os.sched_setaffinity(0, mine)

    def lose(self, node: Any) -> None:
        """Switch a node off."""
        kill(self.cut_off(node))
        self._cluster.worker_nodes.discard(node)

    def cut_off(self, node: Any) -> list[psutil.Process]:
        """Stop all processes of a node, as if no word came through; to be resumed.

        Parents first: they must neither start another child nor tell of one that ends.
        """
        for parent in self._parents(node):
            with contextlib.suppress(psutil.Error):
                parent.suspend()
        stopped = self.processes_of(node)
        for process in stopped:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        return stopped

    def lives(self, node: Any) -> bool:
        """Whether a node's Ray runs."""
        return any(process.name() == "raylet" for process in self.processes_of(node))

    def processes(self) -> list[psutil.Process]:
        """All processes of the cluster, those of the head's node included."""
        nodes = [self._cluster.head_node, *self.nodes]
        return [process for node in nodes for process in self.processes_of(node)]

    def processes_of(self, node: Any) -> list[psutil.Process]:
        """All processes of a node that run, a parent before its children."""
        found = []
        for parent in self._parents(node):
            with contextlib.suppress(psutil.Error):
                found += [parent, *parent.children(recursive=True)]
        return found

    def _parents(self, node: Any) -> list[psutil.Process]:
        """What Ray started for a node and still runs."""
        found = []
        for info in (info for infos in node.all_processes.values() for info in infos):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(info.process.pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        """Stop everything, whatever it does."""
        doomed = self.processes()
        with contextlib.suppress(Exception):  # Ray's own end, as far as it goes
            self._cluster.shutdown()
        kill(doomed)
        self._temporary.cleanup()
        self._alone.close()


@contextlib.contextmanager
def local_fleet(head: Mapping[str, float]) -> Iterator[LocalFleet]:
    """A fleet for the length of a block."""
    fleet = LocalFleet(head)
    try:
        yield fleet
    finally:
        fleet.close()


def tune_gemm(size: int, run: Path | str, *, trials: int, time_budget: str = "1h") -> list[str]:
    """Arguments of `tuner` that tune a square product on CPUs."""
    model = ["tune", "examples/gemm.py:gemm", *(f"--arg={name}={size}" for name in "mnk")]
    budget = ["--trials", str(trials), "--time-budget", time_budget, "--until=0"]
    return [*model, *budget, "--target", "llvm", "--run", str(run)]


def driver(address: str, arguments: Sequence[str], *, out: Path) -> psutil.Popen:
    """Start `tuner` with some arguments on a cluster, as a user would."""
    command = [sys.executable, "-m", "tuner", *arguments, "--address", address]
    with out.open("ab") as file:
        return psutil.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ
        )


def _settings(resources: Mapping[str, float]) -> dict[str, Any]:
    own = {name: value for name, value in resources.items() if name not in ("CPU", "GPU")}
    return {
        "num_cpus": resources.get("CPU", 0),
        "num_gpus": resources.get("GPU", 0),
        "resources": own,
        "object_store_memory": _OBJECT_STORE_BYTES,
    }
