"""Networks of two layers in halves or 4 bits, tuned for a GPU and run on the emulated one.

    python -m benchmarks.gpu.networks --out networks.json
    python -m benchmarks.gpu.networks --network 'qwen3 f16' --arch sm_80

A Llama and a Qwen3 with a cache, lengths and past open, also with weights of 4 bits; a layer of
BERT, batch and length open; a ResNet-18. Each is exported by PyTorch and tuned as a whole with a
few trials. Then it runs on the emulated device, which needs no GPU, and is compared with PyTorch in
float32: `error` is the largest difference over the largest value of an output, and a network is
right where that is at most three times what PyTorch's own halves lose. Times are of this machine's
CPUs, and say nothing of a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu.networks.comparison import compare
from benchmarks.gpu.networks.networks import NETWORKS
from benchmarks.machine import about
from tuner.files.atomic import write_bytes

_ARCHES = ("sm_80", "sm_90a")


def main() -> int:
    """Run the command line; 1 where a network is wrong."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu.networks")
    flags.add_argument("--network", action="append", choices=[*NETWORKS])
    flags.add_argument("--arch", action="append", choices=_ARCHES)
    flags.add_argument("--trials", type=int, default=40, help="of each network")
    flags.add_argument("--out", type=Path)
    options = flags.parse_args()
    said: dict[str, Any] = {"machine": about(), "trials": options.trials, "networks": []}
    with tempfile.TemporaryDirectory(prefix="networks-") as folder:
        for name in options.network or NETWORKS:
            for arch in options.arch or _ARCHES:
                run = Path(folder) / f"{name}-{arch}".replace(" ", "-")
                row = compare(name, arch, run, trials=options.trials)
                said["networks"].append(row)
                print(describe_row(row), flush=True)
                if options.out is not None:
                    write_bytes(options.out, (json.dumps(said, indent=1) + "\n").encode())
    return 0 if all(row["right"] for row in said["networks"]) else 1


def describe_row(row: dict[str, Any]) -> str:
    """A network's line: its worst errors, and at which sizes it is wrong."""
    worst, theirs = (max(s[key] for s in row["sizes"]) for key in ("error", "error_of_torch"))
    wrong = [str(s["sizes"]) for s in row["sizes"] if not s["right"]]
    verdict = f"wrong at {', '.join(wrong)}" if wrong else f"right at all {len(row['sizes'])} sizes"
    return (
        f"{row['network']:16} {row['arch']:7} {row['tasks']:3} tasks {row['trials']:4} trials "
        f"{row['tuned_s']:5.0f} s  {worst:.2e} (PyTorch {theirs:.2e})  {verdict}"
    )


if __name__ == "__main__":
    sys.exit(main())
