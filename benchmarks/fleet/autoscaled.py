"""A cluster with Ray's own autoscaler, whose machines are processes of this one.

The provider of machines is Ray's fake one; everything else, the autoscaler included, is what runs
on a cloud. It is started and stopped by process id, so that it leaves other clusters alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fleet.guard import MARK, end_marked, start_guard
from benchmarks.fleet.local import ALONE
from tuner.errors import TunerError

_START_S = 90.0
_PORT = 6379  # the fake provider knows no other


@contextlib.contextmanager
def autoscaled(
    head: Mapping[str, float], worker: Mapping[str, float], *, least: int, most: int, idle_s: float
) -> Iterator[str]:
    """A cluster for the length of a block; its address.

    Args:
        head: resources of the head, by Ray's names; `worker` of each other machine.
        least: machines besides the head there always are; `most` there may be.
        idle_s: after which a machine without work goes.
    """
    from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        config = Path(folder) / "autoscaler.json"
        config.write_text(json.dumps(_config(head, worker, least, most, idle_s, FAKE_HEAD_NODE_ID)))
        environment = {
            **os.environ,
            **ALONE,
            MARK: mark,
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
        }
        environment.pop("RAY_ADDRESS", None)
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={_PORT}"),
            *(
                f"--temp-dir={folder}",
                f"--autoscaling-config={config}",
                "--include-dashboard=False",
            ),
            f"--num-cpus={int(head.get('CPU', 0))}",
        ]
        with start_guard(mark):  # it leaves this process: nothing else would end with it
            try:
                _start(command, environment)
                yield f"127.0.0.1:{_PORT}"
            finally:
                end_marked(mark)


def _start(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=_START_S
    )
    if done.returncode:
        raise TunerError(f"no cluster with an autoscaler: {(done.stdout + done.stderr)[-300:]}")


def _config(
    head: Mapping[str, float],
    worker: Mapping[str, float],
    least: int,
    most: int,
    idle_s: float,
    head_id: str,
) -> dict[str, Any]:
    provider = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
    lists = "cluster_synced_files rsync_exclude rsync_filter initialization_commands setup_commands"
    commands = "head_setup_commands worker_setup_commands head_start_ray_commands"
    return {
        "cluster_name": "fleet",
        "max_workers": most,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": idle_s / 60,
        "provider": {
            "type": "external",
            "module": provider,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": head_id,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": dict(head), "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {**worker, "object_store_memory": 1 << 27},
                "node_config": {},
                "min_workers": least,
                "max_workers": most,
            },
        },
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in (*lists.split(), *commands.split(), "worker_start_ray_commands")},
    }
