"""Our kernels on this machine's GPU beside the vendor's libraries and Triton, and what to believe.

    python -m benchmarks.gpu
    python -m benchmarks.gpu --only softmax --only 'f16 2048' --time-budget 2m --out result.json
    python -m benchmarks.gpu --json --no-triton --no-sanitizer --no-tests
    python -m benchmarks.gpu --only 'f32 1024' --long

Needs torch, not Ray. Each workload's kernels are a short evolution of the product's own space,
built on all cores, checked and timed by the product's own runner. Times are of CUDA graphs on both
sides. What is predicted of a kernel is told beside its time. While the next kernels are built, the
device has compute-sanitizer, the tests marked `gpu` and others to run. With --long MetaSchedule
tunes each workload, too, after all else and in minutes for each.
The file is written again after each measurement, so a run that is cut off has told most; without
--out it is benchmarks/results/gpu/DEVICE-DATE.json. A machine without a GPU runs small programs on
the emulated device, whose times are a model's: the file's name and each row say so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.compare import Plan, compare
from benchmarks.gpu.report import Report, file_for, mark_emulated, tell
from benchmarks.gpu.workloads import ON_A_DEVICE, ON_THE_EMULATED_DEVICE, Workload
from tuner.checks import duration_s
from tuner.errors import TunerError

_EMULATED = '{"kind":"cuda","arch":"sm_90"}'


def main() -> int:
    """Run the command line."""
    from spaces.ir.lean_tvm import import_tvm_lean

    options = _flags().parse_args()
    import_tvm_lean()
    from spaces.targets.target import emulate_target

    emulated, out = False, options.out
    try:
        target = find_target(options.target)
    except TunerError as error:
        print(f"{error}\nSmall programs run on the emulated device.", file=sys.stderr)
        target, emulated = emulate_target(_EMULATED), True
        out = out and mark_emulated(out)
    known = ON_THE_EMULATED_DEVICE if emulated else ON_A_DEVICE
    chosen = [w for w in known if _is_asked(w, options.only)]
    if not chosen:
        print(f"no workload is called {options.only}", file=sys.stderr)
        return 2
    machine = about(target)
    out = out or file_for(machine)
    report = Report(out, machine)
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        compare(chosen, _plan(options, target, emulated), Path(folder), report)
    tell(report.known)
    print(f"written to {out}", file=sys.stderr)
    if options.json:
        print(json.dumps(report.known, indent=1))
    return 0


def find_target(text: str) -> str:
    """The target that is named.

    Raises:
        TunerError: the machine has no such device.
    """
    from spaces.targets.target import device_of, resolve_target

    target = resolve_target(text)
    device_of(target)
    return target


def about(target: str) -> dict[str, Any]:
    """What there is to say of the machine."""
    from spaces.passes.toolchain import toolchain_fingerprint
    from spaces.targets.target import device_fingerprint

    return {
        "device": device_fingerprint(target),
        "toolchain": toolchain_fingerprint(target),
        "target": json.loads(target),
        "date": time.strftime("%Y-%m-%d"),
    }


def _plan(options: argparse.Namespace, target: str, emulated: bool) -> Plan:
    return Plan(
        target=target,
        emulated=emulated,
        samples=options.samples,
        generations=options.generations,
        until_s=time.monotonic() + options.time_budget,
        whole=not options.only,
        triton=options.triton,
        sanitizer=options.sanitizer,
        tests=options.tests,
        long_trials=options.long_trials if options.long else 0,
        long_limit_s=options.long_limit,
    )


def _is_asked(workload: Workload, only: list[str]) -> bool:
    return not only or any(word in workload.name for word in only)


def _flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    flags.add_argument("--only", action="append", default=[], help="part of a workload's name")
    flags.add_argument("--time-budget", type=duration_s, default=480.0, help="such as 8m")
    flags.add_argument("--samples", type=int, default=16, help="kernels of a generation, for each")
    flags.add_argument("--generations", type=int, default=3)
    flags.add_argument("--target", default="cuda", help="a CUDA target; its device must be here")
    flags.add_argument("--no-triton", dest="triton", action="store_false")
    flags.add_argument("--no-sanitizer", dest="sanitizer", action="store_false")
    flags.add_argument("--no-tests", dest="tests", action="store_false")
    flags.add_argument("--long", action="store_true", help="MetaSchedule beside ours")
    flags.add_argument("--long-trials", type=int, default=64, help="of MetaSchedule, for each")
    flags.add_argument("--long-limit", type=duration_s, default=600.0, help="for each, such as 10m")
    flags.add_argument("--json", action="store_true", help="print all that is known as JSON")
    flags.add_argument("--out", type=Path, help="file that is written as results come")
    return flags


if __name__ == "__main__":
    sys.exit(main())
