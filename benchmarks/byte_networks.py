"""Whole networks of 8-bit integers, beside onnxruntime's and OpenVINO's.

    pip install -e '.[coverage]'
    python -m benchmarks.byte_networks --out benchmarks/results/byte_networks.json
    python -m benchmarks.byte_networks --only '*resnet50*' --time-budget 60s

Networks with drawn weights, quantized by `onnxruntime.quantization.quantize_static` (weights of
int8 with a scale for each channel, activations of uint8, as onnxruntime advises for CPUs with VNNI)
in both of its forms: QDQ and QOperator. Each is tuned by `tuner tune` within the budget and written
as a library, as its user would do it. Then each side runs the same file in a process of its own, in
turns with 0.15 s between them.

`ratio` is our time over that of the best other side, of medians. `error` is that of our output to
onnxruntime's without its optimisations, by the largest element.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.command import Rows, cores_of, say, workplace
from benchmarks.coverage.latency import tune_file
from benchmarks.coverage.made import write_calls
from benchmarks.coverage.side import race_sides
from benchmarks.encoder import DrawnGraph, encoder
from benchmarks.figures import ratio, spread, summed_up
from tests.spaces.frontends.onnx.quantizing_tools import Tool, plainly, statically
from tuner.errors import TunerError

FORMS: Mapping[str, Tool] = MappingProxyType(
    {form: statically(form, "QUInt8", per_channel=True) for form in ("QDQ", "QOperator")}
)
_CALIBRATED = 4
_ROUNDS = 20
_PEERS = ("onnxruntime", "openvino")


def resnet50(size: int = 224, stages: tuple[int, ...] = (3, 4, 6, 3)) -> Any:
    """He et al., CVPR'16, with strides in the convolutions of 3x3.

    Args:
        size: of the image's sides.
        stages: blocks of each.
    """
    graph = DrawnGraph(0)
    data = graph.call("Relu", graph.convolution("x", 3, 64, 7, stride=2))
    data = graph.call("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for number, blocks in enumerate(stages):
        inner, outer = 64 << number, 256 << number
        for block in range(blocks):
            stride = 2 if number and not block else 1
            inside = graph.call("Relu", graph.convolution(data, channels, inner, 1))
            inside = graph.convolution(inside, inner, inner, 3, stride=stride)
            inside = graph.convolution(graph.call("Relu", inside), inner, outer, 1)
            if not block:
                data = graph.convolution(data, channels, outer, 1, stride=stride)
            data, channels = graph.call("Relu", graph.call("Add", inside, data)), outer
    return _classify(graph, "resnet50", data, channels, size)


def mobilenet_v2(size: int = 224) -> Any:
    """Sandler et al., CVPR'18.

    Args:
        size: of the image's sides.
    """
    graph = DrawnGraph(0)
    zero, six = graph.number(0.0), graph.number(6.0)

    def clip(data: str) -> str:
        return graph.call("Clip", data, zero, six)

    data, channels = clip(graph.convolution("x", 3, 32, 3, stride=2)), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip
    for factor, outer, blocks, first in stages:
        for block in range(blocks):
            stride, wide, inside = 1 if block else first, channels * factor, data
            if factor > 1:
                inside = clip(graph.convolution(inside, channels, wide, 1))
            inside = clip(graph.convolution(inside, wide, wide, 3, stride=stride, groups=wide))
            inside = graph.convolution(inside, wide, outer, 1)
            data = graph.call("Add", inside, data) if block else inside
            channels = outer
    data = clip(graph.convolution(data, channels, 1280, 1))
    return _classify(graph, "mobilenet_v2", data, 1280, size)


def _classify(graph: DrawnGraph, name: str, data: str, channels: int, size: int) -> Any:
    flat = graph.call("Flatten", graph.call("GlobalAveragePool", data), axis=1)
    return graph.model(name, graph.linear(flat, channels, 1000), [1, 3, size, size], [1, 1000])


def bert() -> Any:
    """Four layers of BERT-base, sequence 128."""
    return encoder(layers=4)


NETWORKS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "bert": bert}
)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.byte_networks")
    parser.add_argument("--only", default="*", help="glob on names, such as 'QDQ resnet50'")
    parser.add_argument("--time-budget", default="180s", metavar="180s", help="to tune each")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--runs", type=Path, help="folder for the runs; those there are continued")
    parser.add_argument("--out", type=Path, help="goes on with what is there")
    options = parser.parse_args()
    target, cores = cores_of("llvm")
    rows = Rows(options.out, {"time_budget": options.time_budget, "cores": cores})
    for network, make in NETWORKS.items():
        for form in FORMS:
            name = f"{form} {network}"
            if fnmatch.fnmatchcase(name, options.only) and not rows.has({"name": name}):
                say(name)
                with workplace(options.runs) as runs:
                    rows.add(_row(name, form, make(), runs, target, cores, options))
    print(json.dumps(rows.finish(summed_up([row["ratio"] for row in rows.rows])), indent=1))


def _row(
    name: str,
    form: str,
    network: Any,
    runs: Path,
    target: str,
    cores: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "ratio": None}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_network(network, FORMS[form], folder)
        try:
            run = runs / name.replace(" ", "-")
            row |= tune_file(folder, run, target, options.time_budget)
            sides = {side: (side, folder) for side in ("ours", *_PEERS)}
            raced = race_sides(sides, cores, [0], options.rounds)
        except TunerError as error:
            return {**row, "failure": str(error)}
    samples = {side: of_side[0] for side, of_side in raced.samples_ms.items()}
    row |= {"failed": raced.failed, "error": raced.errors.get("ours"),
            **{f"{side}_ms": spread(found) for side, found in samples.items()}}  # fmt: skip
    peers = [samples[side] for side in _PEERS if side in samples]
    if "ours" in samples and peers:
        row["ratio"] = ratio(samples["ours"], min(peers, key=median))
    return row


def write_network(network: Any, tool: Tool, folder: Path, within: float = 1e-3) -> None:
    """Write a network of bytes as a file, with what it is called with and what it gives.

    Args:
        network: an ONNX model of floats with one input, all its sizes known.
        within: see `write_calls`.
    """
    import onnx

    whole, path = folder / "whole.onnx", folder / "model.onnx"
    onnx.save(network, whole)
    rng = np.random.default_rng(0)
    shape = [dim.dim_value for dim in network.graph.input[0].type.tensor_type.shape.dim]
    drawn = [{"x": rng.standard_normal(shape).astype("float32")} for _ in range(_CALIBRATED + 1)]
    tool(whole, path, drawn[1:])
    write_calls(folder, drawn[:1], [plainly(onnx.load(path), drawn[0])], within=within)


if __name__ == "__main__":
    main()
