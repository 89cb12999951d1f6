"""How long the reference of a large task takes: all outputs, or some elements of them.

    python -m benchmarks.references [--only NAME] [--json]

Seconds of wall time for both draws, in one process, without a cache.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.machine import about


def _product(n: int, dtype: str = "float32") -> Any:
    """A square product of matrices, accumulated in float32."""
    from tvm import te

    a, b = (te.placeholder((n, n), dtype, name=name) for name in "ab")
    k = te.reduce_axis((0, n), "k")

    def term(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), k)

    return [a, b, te.compute((n, n), term, name="product")]


def _convolution() -> Any:
    """Of 8 images of 56 by 56, from 256 channels to 256 by 3 by 3, and a ReLU."""
    from tvm import te, topi

    a = te.placeholder((8, 256, 56, 56), name="a")
    w = te.placeholder((256, 256, 3, 3), name="w")
    return [a, w, topi.nn.relu(topi.nn.conv2d_nchw(a, w, 1, 1, 1))]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "product 1024^3": lambda: _product(1024),
    "product 2048^3": lambda: _product(2048),
    "product 4096^3": lambda: _product(4096),
    "product 4096^3 float16": lambda: _product(4096, "float16"),
    "convolution 8x256x56x56 3x3": _convolution,
}


def measure(name: str) -> dict[str, Any]:
    """Seconds of both ways, and how many steps the program has."""
    import tvm
    from tvm import te

    from spaces.check.choice import QUICK_STEPS, reference_of, steps_of
    from spaces.check.sampled_case import SampledCase

    module = tvm.IRModule({"main": te.create_prim_func(PROGRAMS[name]())})
    start_s = time.perf_counter()
    sampled = reference_of(module, name, quick_steps=0)
    some_s = time.perf_counter() - start_s
    assert all(isinstance(case, SampledCase) for case in sampled.cases)
    start_s = time.perf_counter()
    reference_of(module, name, quick_steps=float("inf"))
    steps = steps_of(module["main"])
    return {
        "program": name,
        "steps": steps,
        "some_s": some_s,
        "whole_s": time.perf_counter() - start_s,
        "now": "some" if steps > QUICK_STEPS else "whole",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=[*PROGRAMS])
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    rows = [measure(name) for name in ([args.only] if args.only else PROGRAMS)]
    if args.json:
        print(json.dumps({"rows": rows, "machine": about()}))
        return
    for row in rows:
        print(
            f"{row['program']:30} some elements {row['some_s']:6.1f} s, "
            f"all {row['whole_s']:6.1f} s; now {row['now']}"
        )


if __name__ == "__main__":
    main()
