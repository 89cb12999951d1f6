"""Rebuild a kernel, compare its output with the unscheduled program's, and time it.

`tuner reproduce` copies this file's text into those that it writes. It knows TVM, NumPy and Python
alone; `spaces.deploy.reproduce` says what `run` holds.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import math
import os
import re
import statistics
import sys
import zlib
from typing import Any

import numpy as np

_SAMPLE_S, _TURNS, _SAMPLES = 0.02, 3, 3
_NOBODY_READS = 141
"""The exit code of programs that SIGPIPE ended, by the shell's count."""


def main(run: dict[str, Any]) -> int:
    """Do what the command line says; 0 if all programs are those of the run and outputs are right.
    It ends quietly where nobody reads on.

    Args:
        run: the kernels, and what the run recorded.
    """
    try:
        code = done(run)
        sys.stdout.flush()
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python complains when it ends
        return _NOBODY_READS
    return code


def done(run: dict[str, Any]) -> int:
    """What `main` says."""
    parser = argparse.ArgumentParser(description=f"Rebuild and time {run['task']} with TVM alone.")
    parser.add_argument("--compile-only", action="store_true", help="build, and run nothing")
    parser.add_argument("--show", action="store_true", help="print the programs as TVMScript")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    flags = parser.parse_args()
    os.environ.update(run["environment"])  # TVM reads it when its threads start
    import tvm

    said = print if not flags.json else lambda *_: None
    said(f"{run['task']} with TVM {tvm.__version__}, on {run['target']}")
    if tvm.__version__ != run["tvm"]:
        said(f"mind that it was written for TVM {run['tvm']}")
    target = target_of(run["target"], run["on_host"])
    builds = [Build(each, target, run) for each in (*run["kernels"], run["default"])]
    wrong = [f"{build.name}: {why}" for build in builds if (why := build.differs())]
    for build in builds:
        said(f"{build.name}: {build.told()}")
        if flags.show:
            print(build.module.script())
    device = tvm.cpu() if run["on_host"] else tvm.device(run["kind"])
    cases: list[dict[str, Any]] = []
    if not flags.compile_only and not device.exist:
        wrong.append(f"this machine has no {run['kind']} device: nothing was run")
    elif not flags.compile_only:
        reference = tvm.compile(unpacked(run["program"]), target=host_of(run, target))["main"]
        for case in run["cases"]:
            cases.append(tried(case, builds, reference, device, flags.seed))
            wrong += [f"{shape_of(case)}{why}" for why in cases[-1]["wrong"]]
            report(case, cases[-1], run, said)
    for why in wrong:
        said(f"NOT THE SAME: {why}")
    if flags.json:
        hashes = {build.name: build.hash for build in builds}
        sources = {build.name: build.source_hash for build in builds}
        print(json.dumps({"wrong": wrong, "hashes": hashes, "sources": sources, "cases": cases}))
    return 1 if wrong else 0


class Build:
    """A kernel, compiled by TVM's own compiler.

    Args:
        data: one of the run's.
        run: whether small tensors stay `stack`ed, as the run had them, and its passes' `config`.
    """

    def __init__(self, data: dict[str, Any], target: Any, run: dict[str, Any]) -> None:
        import tvm

        self.data, self.name = data, data["name"]
        self.module = unpacked(data["module"])
        self.hash = hash_of(self.module)
        # Where TVM has the device it compiles CUDA source for the current target, or the device's.
        current = contextlib.nullcontext() if run["on_host"] else target
        config = {"tirx.disable_assert": True, **run["config"]}
        with current, tvm.transform.PassContext(config=config):
            pipeline = stack_pipeline() if run["stack"] else "default"
            self.library = tvm.compile(self.module, target=target, tir_pipeline=pipeline).mod
        kind = target.kind.name
        sources = [m.inspect_source(kind) for m in self.library.imports if m.kind == kind]
        if sources and not tvm.device(kind).exist:  # else TVM compiles it when it is loaded
            with target:
                tvm.get_global_func(f"tvm_callback_{kind}_compile")("".join(sources))
        self.source_hash = source_hash(self.library)

    def differs(self) -> str:
        """Why the program is not that of the run; empty if it is."""
        if self.hash != self.data["hash"]:
            return f"its program is {self.hash}, and was {self.data['hash']} when it was written"
        if self.data["trace"] is not None and self.replayed() != self.data["recorded_hash"]:
            return f"its trace makes program {self.replayed()}, not {self.data['recorded_hash']}"
        return ""

    def told(self) -> str:
        """What is known of its program."""
        if self.data["trace"] is None:
            return f"program {self.data['recorded_hash']} of the run, {self.data['no_trace']}"
        return f"program {self.data['recorded_hash']} of the run, which TVM rebuilds from its trace"

    def replayed(self) -> str:
        """The hash of the program that the schedule's trace makes of the unscheduled one."""
        from tvm.s_tir import Schedule
        from tvm.s_tir.schedule import Trace

        schedule = Schedule(unpacked(self.data["of"]))
        Trace.apply_json_to_schedule(json.loads(text_of(self.data["trace"])), schedule)
        return hash_of(schedule.mod)

    def on(self, arrays: list[Any], device: Any) -> tuple[list[Any], list[Any]]:
        """The program's arguments on a device, and those of the kernel, whose constant operands are
        packed ahead of time where the schedule asks for it."""
        import tvm

        tensors = [tvm.runtime.tensor(array, device) for array in arrays]
        packing, given = self.data["packing"], list(tensors)
        if packing is not None:
            packed = [tvm.runtime.empty(p["shape"], p["dtype"], device) for p in packing["packed"]]
            self.library["prepack"](*(tensors[i] for i in packing["sources"]), *packed)
            for operand, tensor in zip(packing["packed"], packed, strict=True):
                given[operand["position"]] = tensor
        return tensors, given

    def seconds(self, given: list[Any], device: Any) -> float:
        """The median time of one run."""
        estimate_s = self.library.time_evaluator("main", device, number=1)(*given).mean
        number = max(1, min(100_000, math.ceil(_SAMPLE_S / max(estimate_s, 1e-9))))
        evaluator = self.library.time_evaluator("main", device, number=number, repeat=_SAMPLES)
        return float(statistics.median(evaluator(*given).results))


def tried(
    case: dict[str, Any], builds: list[Build], reference: Any, device: Any, seed: int
) -> dict[str, Any]:
    """Compare the outputs of the kernel for a shape and of the default schedule, and time both."""
    kernels = builds[case["kernel"]], builds[-1]
    arrays, wanted = inputs_and_outputs(case, reference, seed)
    wrong, largest, bound = [], 0.0, []
    for build in kernels:
        tensors, given = build.on(arrays, device)
        build.library["main"](*given)
        device.sync()
        for place, argument in enumerate(case["arguments"]):
            off, error = difference(tensors[place].numpy(), wanted[place], argument)
            largest = max(largest, off)
            if error:
                wrong.append(f"{build.name}, {argument['name']}: {error}")
        bound.append(given)
    times: list[list[float]] = [[], []]
    for _ in range(_TURNS):
        for number in (1, 0):  # the default, then the kernel
            times[number].append(kernels[number].seconds(bound[number], device))
    kernel_s, default_s = map(statistics.median, times)
    told = {"shape": case["shape"], "wrong": wrong, "largest_difference": largest}
    return {**told, "kernel_s": kernel_s, "default_s": default_s, "gain": default_s / kernel_s}


def report(case: dict[str, Any], found: dict[str, Any], run: dict[str, Any], said: Any) -> None:
    """Print the times, beside those of the run."""
    then = [case["default_s"], case["latency_s"]]
    ratio = then[0] / then[1] if all(then) else None
    allowed = max(argument["tolerance"] for argument in case["arguments"])
    if not found["wrong"]:
        off, of = found["largest_difference"], "|value| + root mean square"
        said(f"{shape_of(case)}outputs are right: off by {off:.3g} of {of}, {allowed:.3g} allowed")
    where = run["device"] or "an unknown device"
    said(f"{shape_of(case)}{'now':>24} {'recorded':>13}   (on {where})")
    said(f"  default    {found['default_s'] * 1e3:10.5f} ms {milliseconds(then[0])}")
    said(f"  kernel     {found['kernel_s'] * 1e3:10.5f} ms {milliseconds(then[1])}")
    said(f"  ratio      {found['gain']:10.2f}x   {'-' if ratio is None else f'{ratio:10.2f}x'}")


def milliseconds(seconds: float | None) -> str:
    """A time for people; a dash where the run has none."""
    return "            -" if seconds is None else f"{seconds * 1e3:10.5f} ms"


def shape_of(case: dict[str, Any]) -> str:
    """The sizes of the symbolic dimensions, for people."""
    said = ", ".join(f"{name}={size}" for name, size in case["shape"].items())
    return f"{said}: " if said else ""


def inputs_and_outputs(
    case: dict[str, Any], reference: Any, seed: int
) -> tuple[list[Any], list[Any]]:
    """Contents of all arguments before and after a run of the unscheduled program: of the first
    range of values that gives only finite ones, or else of the last."""
    import tvm

    arrays: list[Any] = []
    wanted: list[Any] = []
    for number in range(len(case["arguments"][0]["limits"])):
        random = np.random.default_rng(seed)
        arrays = [drawn(argument, number, random) for argument in case["arguments"]]
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        reference(*tensors)
        wanted = [tensor.numpy() for tensor in tensors]
        if all(finite(array) for array in wanted):
            break
    return arrays, wanted


def drawn(argument: dict[str, Any], number: int, random: Any) -> Any:
    """Contents of an argument before a run; an output's are no less random, so that what is not
    written is seen."""
    low, high = argument["limits"][number]
    dtype = numpy_dtype(argument["dtype"])
    if dtype.kind in "iub":
        return random.integers(low, high, argument["shape"], endpoint=True).astype(dtype)
    return (random.random(argument["shape"]) * (high - low) + low).astype(dtype)


def finite(array: Any) -> bool:
    """Whether no number is infinite or none at all."""
    return array.dtype.kind in "iub" or bool(np.isfinite(array.astype(np.float64)).all())


def difference(got: Any, want: Any, argument: dict[str, Any]) -> tuple[float, str]:
    """The largest difference, over the size of the number and the root mean square of all; and how
    it is wrong, if it is."""
    if got.dtype.kind in "iub":
        off = np.abs(got.astype(np.int64) - want.astype(np.int64))
        allowed = argument["steps"]
        return 0.0, f"off by {off.max()}" if off.size and off.max() > allowed else ""
    one, other = got.astype(np.float64), want.astype(np.float64)
    known = np.isfinite(other)
    if not np.array_equal(one[~known], other[~known], equal_nan=True):
        return 0.0, "other infinities, or numbers where there are none"
    if not known.any():
        return 0.0, ""
    one, other = one[known], other[known]
    size = np.abs(other) + math.sqrt(float(np.mean(np.square(other))))
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.abs(one - other) / size
    off[one == other] = 0.0
    largest = float("inf") if np.isnan(off).any() else float(off.max())
    allowed = argument["tolerance"]
    return largest, f"off by {largest:.3g}, {allowed:.3g} is allowed" if largest > allowed else ""


def numpy_dtype(name: str) -> Any:
    """NumPy's type of TVM's; the small floats come from a package that TVM needs, too."""
    try:
        return np.dtype("bool" if name in ("uint1", "boolean") else name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def target_of(text: str, on_host: bool) -> Any:
    """TVM's target, with the CPU as host where it is another device."""
    from tvm.target import Target

    target = Target(json.loads(text))
    if on_host or target.host is not None:
        return target
    return Target(target, host=Target({"kind": "llvm"}))


def host_of(run: dict[str, Any], target: Any) -> Any:
    """The target of the unscheduled program, which runs on the CPU."""
    return target if run["on_host"] else target.host


def unpacked(text: str) -> Any:
    """A module that was packed."""
    import tvm

    return tvm.ir.load_json(text_of(text))


def text_of(packed: str) -> str:
    """A text that was compressed."""
    return zlib.decompress(base64.b85decode("".join(packed.split()))).decode()


def hash_of(module: Any) -> str:
    """The structural hash of a program."""
    from tvm_ffi import structural_hash

    return f"{structural_hash(module) & (2**64 - 1):016x}"


def source_hash(library: Any) -> str:
    """The hash of a compiled library's code, of the CPU's and of another device's, but for the
    addresses of variables by which LLVM's code names them."""
    others = [m.inspect_source(m.kind) for m in library.imports]
    source = re.sub(r'!"0x[0-9a-f]+', '!"', library.inspect_source("ll")) + "".join(others)
    return hashlib.sha256(source.encode()).hexdigest()


def stack_pipeline() -> str:
    """TVM's own pipeline, but for one thing: tensors of known size up to 16 KiB stay on the stack,
    where TVM would have its runtime allocate those of a kilobyte and more."""
    import tvm
    from tvm.ir.transform import Sequential
    from tvm.tirx import get_tir_pipeline, register_tir_pipeline
    from tvm.tirx.transform import prim_func_pass
    from tvm_ffi import structural_mutate

    def marked(allocation: Any, _: Any) -> Any:
        shape: list[Any] = [getattr(n, "value", None) for n in allocation.buffer.shape]
        if None in shape:
            return allocation
        dtype = tvm.DataType(str(allocation.buffer.dtype))
        size = math.prod(int(n) for n in shape) * max(1, int(dtype.bits * dtype.lanes) // 8)
        if size > 16 << 10:
            return allocation
        marks = {**allocation.annotations, "disable_lower_builtin": tvm.tirx.const(1, "int32")}
        return tvm.tirx.AllocBuffer(allocation.buffer, marks)

    def flat(function: Any, *_: Any) -> Any:
        body = structural_mutate(function.body, [(tvm.tirx.AllocBuffer, marked)])
        return function if body.same_as(function.body) else function.with_body(body)

    def made() -> Any:
        passes, host, device = get_tir_pipeline("default")
        last = prim_func_pass(flat, opt_level=0, name="OnStack")
        return passes, lambda: Sequential([last, host()]), device

    register_tir_pipeline("on-stack", made)
    return "on-stack"
