"""What the doctor tries in a process of its own, since it may crash or hang there."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

from tuner.process.ask_once import ask_once
from tuner.process.outcome import Outcome

_READY_S = 60.0

Ask = Callable[[str, float], Outcome]
"""Calls a method of `Probes`, by its name, with a deadline in seconds."""


class Probes:
    """Trials of what is installed, by its own means; answers are plain data."""

    def pickle_module(self) -> str:
        """Pickle a module of TVM and read it again; return TVM's version."""
        import tvm
        from tvm import te

        a = te.placeholder((8,), name="a")
        b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
        module = tvm.IRModule({"main": te.create_prim_func([a, b])})
        tvm.ir.assert_structural_equal(module, pickle.loads(pickle.dumps(module)))
        return str(tvm.__version__)

    def describe_target(self) -> dict[str, Any]:
        """The target of this machine, its CPU by our and by LLVM's word, and why TVM has no GPU."""
        from spaces.targets import cuda
        from spaces.targets.cpu_features import of_kernels
        from spaces.targets.host import this_host
        from spaces.targets.target import resolve_target

        host, why_absent = this_host(), cuda.why_absent()
        return {
            "target": json.loads(resolve_target("llvm")),
            "host": host.processor().mcpu,
            "guess": host.named,
            "features": list(of_kernels(host.reported)),
            "why_absent": why_absent,
            "mend": cuda.mend(why_absent),
        }

    def import_ray(self) -> str:
        """Ray's version."""
        import ray

        return str(ray.__version__)

    def start_ray(self) -> str:
        """Start a cluster on loopback and ask it something; return Ray's version."""
        from cluster.ray_workers.ray_cluster import ray_cluster

        with ray_cluster("local"):
            import ray

            assert ray.get(ray.remote(lambda: 41 + 1).remote(), timeout=60) == 42
        return f"{ray.__version__}, a cluster on loopback answered"


def ask_probe(method: str, deadline_s: float) -> Outcome:
    """Call a method of `Probes` in a process that is started for it and ended, with all that it
    started, at the deadline."""
    factory = f"{__name__}:{Probes.__name__}"
    return ask_once(factory, (), method, ready_s=_READY_S, deadline_s=deadline_s)
