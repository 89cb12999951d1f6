"""Ray's fake provider of machines, each of which unpacks a job's folder for itself.

Machines of Ray's own provider share the folder that jobs' folders are unpacked into, and each that
joins removes there what it is about to unpack: a job that was just reading its model found none.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

from ray._private.parameter import RayParams
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class MachinesApart(FakeMultiNodeProvider):  # type: ignore[misc]
    """Started by the autoscaler, which finds it by its name."""

    def _create_node_with_resources_and_labels(self, *args: Any) -> None:
        folder = f"runtime_resources_{self._next_node_id + 1}"
        apart = partial(RayParams, runtime_env_dir_name=folder)
        with patch("ray._private.parameter.RayParams", apart):
            super()._create_node_with_resources_and_labels(*args)
