"""One side of the race of a network: `python -m benchmarks.coverage.side_child SIDE FOLDER CORES`.

SIDE is `ours` (`model.so`), `onnxruntime` or `openvino` (`model.onnx`). For each number of a sample
on standard input it runs that sample for a while, and prints how many milliseconds a run took; it
prints `ready` when it can begin, with its largest error on any sample.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_WARM_UP_S, _SAMPLE_S, _MOST_RUNS = 0.05, 0.03, 500
Call = Callable[[], Sequence[Any]]


def main() -> None:
    """Load, compare, answer."""
    side, folder, cores = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    about = json.loads((folder / "about.json").read_text())
    prepare = {"ours": _ours, "onnxruntime": _onnxruntime, "openvino": _openvino}[side]
    prepared = prepare(folder, cores)
    calls, worst = {}, 0.0
    with np.load(folder / "samples.npz") as arrays:
        for number in map(int, sys.argv[4].split(",")):
            given = {name: arrays[f"{number} in {name}"] for name in about["inputs"]}
            calls[number] = call = prepared(given)
            for i, got in enumerate(call()):
                wanted = arrays[f"{number} out {i}"]
                scale = max(float(np.abs(wanted).max()), 1e-30)
                worst = max(worst, float(np.abs(_array(got) - wanted).max()) / scale)
    print(f"ready {worst}", flush=True)
    for line in sys.stdin:
        print(_ms(calls[int(line)]), flush=True)


def _array(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else value.numpy()


def _ms(call: Call) -> float:
    until_s, run_s = time.perf_counter() + _WARM_UP_S, 0.0
    while not run_s or time.perf_counter() < until_s:
        run_s = _taken_s(call, 1)
    return 1e3 * _taken_s(call, max(1, min(_MOST_RUNS, round(_SAMPLE_S / run_s))))


def _taken_s(call: Call, runs: int) -> float:
    start_s = time.perf_counter()
    for _ in range(runs):
        call()
    return (time.perf_counter() - start_s) / runs


def _ours(folder: Path, cores: int) -> Callable[[Any], Call]:
    import tvm

    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), tvm.cpu())
    main = machine["main"]

    def prepared(given: Any) -> Call:
        tensors = [tvm.runtime.tensor(value) for value in given.values()]

        def call() -> Sequence[Any]:
            found = main(*tensors)
            return (found,) if hasattr(found, "numpy") else found

        return call

    return prepared


def _onnxruntime(folder: Path, cores: int) -> Callable[[Any], Call]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = cores, 1
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"]
    )

    def prepared(given: Any) -> Call:
        binding = session.io_binding()
        for name, value in given.items():
            binding.bind_cpu_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name)

        def call() -> Sequence[Any]:
            session.run_with_iobinding(binding)
            outputs: Sequence[Any] = binding.get_outputs()
            return outputs

        return call

    return prepared


def _openvino(folder: Path, cores: int) -> Callable[[Any], Call]:
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": cores,
                "PERFORMANCE_HINT": "LATENCY"}  # fmt: skip
    compiled = core.compile_model(str(folder / "model.onnx"), "CPU", settings)

    def prepared(given: Any) -> Call:
        request = compiled.create_infer_request()
        for name, value in given.items():
            request.set_tensor(name, openvino.Tensor(value))

        def call() -> Sequence[Any]:
            request.infer()
            return [tensor.data for tensor in request.output_tensors]

        return call

    return prepared


if __name__ == "__main__":
    main()
