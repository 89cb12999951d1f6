"""A cluster with Ray's own autoscaler, whose machines are processes of this one.

The provider of machines is Ray's fake one; everything else, the autoscaler included, is what runs
on a cloud. It is started and stopped by process id, so that it leaves other clusters alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fleet.guard import MARK, end_marked, start_guard
from benchmarks.fleet.local import ALONE
from tuner.errors import TunerError

_START_S = 90.0
_HEAD_KIND = "ray.head.default"
_PROVIDER = "benchmarks.fleet.provider.MachinesApart"
_ROOT = Path(__file__).resolve().parents[2]
_LEFT_EMPTY = (
    *("cluster_synced_files", "rsync_exclude", "rsync_filter"),
    *("initialization_commands", "setup_commands", "head_setup_commands"),
    *("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"),
)


@dataclass(frozen=True, slots=True)
class MachineKind:
    """Machines that the autoscaler starts.

    Attributes:
        resources: of each of them, by Ray's names.
        least: those there always are; `most` there may be.
    """

    resources: Mapping[str, float]
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """What a head starts machines by.

    Attributes:
        kinds: by a name of their own, which their processes have as `RAY_NODE_TYPE_NAME`.
        idle_s: after which a machine without work goes.
    """

    kinds: Mapping[str, MachineKind]
    idle_s: float

    def start_words(self, folder: Path, head: Mapping[str, float], address: str) -> list[str]:
        """Arguments with which `ray start` has it.

        Args:
            folder: for its file.
            head: resources of the head, by Ray's names.
            address: of the head.
        """
        config = folder / "autoscaler.json"
        config.write_text(json.dumps(self._config(head, address)))
        return [f"--autoscaling-config={config}"]

    @staticmethod
    def environment() -> dict[str, str]:
        """Variables that the head needs."""
        from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

        return {
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "PYTHONPATH": str(_ROOT),  # the autoscaler imports the provider
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
        }

    def _config(self, head: Mapping[str, float], address: str) -> dict[str, Any]:
        return {
            "cluster_name": "fleet",
            "max_workers": sum(kind.most for kind in self.kinds.values()),
            "upscaling_speed": 1.0,
            "idle_timeout_minutes": self.idle_s / 60,
            "provider": {
                "type": "external",
                "module": _PROVIDER,
                "use_node_id_as_ip": True,
                "disable_node_updaters": True,
                "disable_launch_config_check": True,
                "launch_multiple": True,
                "head_node_id": self.environment()["RAY_CLOUD_INSTANCE_ID"],
                "gcs_address": address,
            },
            "head_node_type": _HEAD_KIND,
            "available_node_types": {
                _HEAD_KIND: {"resources": dict(head), "node_config": {}, "max_workers": 0},
                **{name: _node_type(kind) for name, kind in self.kinds.items()},
            },
            "auth": {},
            "docker": {},
            "file_mounts": {},
            "file_mounts_sync_continuously": False,
            **{name: [] for name in _LEFT_EMPTY},
        }


def _node_type(kind: MachineKind) -> dict[str, Any]:
    return {
        "resources": {**kind.resources, "object_store_memory": 1 << 27},
        "node_config": {},
        "min_workers": kind.least,
        "max_workers": kind.most,
    }


@contextlib.contextmanager
def autoscaled(head: Mapping[str, float], autoscaling: Autoscaling) -> Iterator[str]:
    """A cluster for the length of a block; its address.

    Args:
        head: resources of the head, by Ray's names.
    """
    mark = uuid.uuid4().hex
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        environment = {**os.environ, **ALONE, MARK: mark, **autoscaling.environment()}
        environment.pop("RAY_ADDRESS", None)
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}"),
            *autoscaling.start_words(Path(folder), head, address),
            *(f"--temp-dir={folder}", "--include-dashboard=False"),
            f"--num-cpus={int(head.get('CPU', 0))}",
        ]
        with start_guard(mark):  # it leaves this process: nothing else would end with it
            try:
                _start(command, environment)
                yield address
            finally:
                end_marked(mark)


def _start(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=_START_S
    )
    if done.returncode:
        raise TunerError(f"no cluster with an autoscaler: {(done.stdout + done.stderr)[-300:]}")
