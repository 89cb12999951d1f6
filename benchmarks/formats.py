"""Products and convolutions in the formats of today's models, beside our float32 or onnxruntime.

    python -m benchmarks.formats --out benchmarks/results/formats.json
    python -m benchmarks.formats --only 'int4*' --time-budget 60s
    python -m benchmarks.formats --only 'llama*'

Rows of language models are those of `benchmarks.language_models`. Each other row is an ONNX file
with one product, tuned by `tuner tune` within the budget and written as a library, as its user
would do it. Then each side runs in a process of its own, in turns with 0.15 s between them. Rows of
halves race our float32, those of 4 bits (blocks of 32) onnxruntime on the same file: `MatMulNBits`,
or `DequantizeLinear` and `MatMul` (`QDQ`), of which onnxruntime rounds the rows to bytes, and ours
where it is told to (`level 4`: `--precision int8`).

`ratio` is our time over the other's, of medians. `share_of_copy`, where there are few rows, is what
a second reads of the weights over what copying so many bytes moves, reads and writes, on all cores,
in the same minute. `error` is that of our output to float64's, by the largest element.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.command import Rows, cores_of, say, workplace
from benchmarks.copies import Copy
from benchmarks.coverage.latency import tune_file
from benchmarks.coverage.side import race_sides
from benchmarks.figures import ratio, spread, summed_up
from benchmarks.language_models import MODELS
from tuner.errors import TunerError

_BLOCK = 32
_FEW_ROWS = 16
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Product:
    """One row.

    Attributes:
        kind: `float16`, `bfloat16`, `int4`, `int4 QDQ`, or `float32`, which halves race.
        level: `accuracy_level` of a product of 4 bits: rows may be bytes at 4.
        window: the height and width of a convolution's kernel, of an image as high and as wide as
            there are rows, of `depth` channels into `columns`; 0 of a matrix product.
    """

    kind: str
    rows: int
    depth: int
    columns: int
    level: int = 0
    window: int = 0

    @property
    def name(self) -> str:
        """By which it is chosen."""
        level = f" level {self.level}" if self.level else ""
        window = f" convolution {self.window}x{self.window} of" if self.window else ""
        return f"{self.kind}{level}{window} {self.rows}x{self.depth}x{self.columns}"

    @property
    def flags(self) -> list[str]:
        """Of `tuner tune`, where the file cannot say it."""
        return ["--precision", "int8"] if self.kind == "int4 QDQ" and self.level else []


PRODUCTS = (
    *(Product(kind, n, n, n) for kind in ("float16", "bfloat16") for n in (512, 1024)),
    *(Product(kind, 1, 4096, 4096) for kind in ("float16", "bfloat16")),
    *(Product(kind, 56, 64, 64, window=3) for kind in ("float16", "bfloat16")),
    *(Product("int4", m, 4096, 4096, level) for level in (0, 4) for m in (1, 8, 128)),
    Product("int4", 1, 4096, 11008, 4),
    *(Product("int4 QDQ", m, 4096, 4096, level) for level in (0, 4) for m in (1, 8)),
)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats")
    parser.add_argument("--only", default="*", help="glob on names of rows")
    parser.add_argument("--time-budget", default="60s", metavar="60s", help="to tune each side")
    parser.add_argument("--model-budget", default="120s", metavar="120s", help="of whole models")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--runs", type=Path, help="folder for the runs; those there are continued")
    parser.add_argument("--out", type=Path, help="goes on with what is there")
    options = parser.parse_args()
    target, cores = cores_of("llvm")
    rows = Rows(options.out, {"time_budget": options.time_budget, "cores": cores})
    for product in PRODUCTS:
        if fnmatch.fnmatchcase(product.name, options.only) and not rows.has({"name": product.name}):
            say(product.name)
            with workplace(options.runs) as runs:
                rows.add(_row(product, runs, target, cores, options))
    for model in MODELS:
        with workplace(options.runs) as runs:
            model.measure(rows, runs, target, cores, options)
    print(json.dumps(rows.finish(summed_up([row["ratio"] for row in rows.rows])), indent=1))


def _row(
    product: Product, runs: Path, target: str, cores: int, options: argparse.Namespace
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": product.name, "ratio": None}
    with tempfile.TemporaryDirectory() as made:
        ours, other = Path(made) / "ours", Path(made) / "other"
        weight_bytes = _write(product, ours)
        try:
            row |= tune_file(ours, runs / product.name.replace(" ", "-"), target,
                             options.time_budget, more=product.flags)  # fmt: skip
            peer = ("onnxruntime", ours)
            if product.kind not in _OF_CODES:
                wide = replace(product, kind="float32")
                _write(wide, other)
                run = runs / f"{wide.name} beside {product.kind}".replace(" ", "-")
                tune_file(other, run, target, options.time_budget)
                peer = ("ours", other)
            sides = {"ours": ("ours", ours), "peer": peer}
            raced = race_sides(sides, cores, [0], options.rounds)
        except TunerError as error:
            return {**row, "failure": str(error)}
    samples = {name: of_side[0] for name, of_side in raced.samples_ms.items()}
    row |= {"failed": raced.failed, "error": raced.errors.get("ours"),
            **{f"{name}_ms": spread(found) for name, found in samples.items()}}  # fmt: skip
    if len(samples) == 2:
        row["ratio"] = ratio(samples["ours"], samples["peer"])
    if product.rows <= _FEW_ROWS and "ours" in samples:
        rate = weight_bytes / median(samples["ours"])
        row["share_of_copy"] = rate / _copy_bytes_per_ms(weight_bytes, target, cores)
    return row


def _copy_bytes_per_ms(number: int, target: str, cores: int) -> float:
    """What the best way to copy moves, reads and writes together, of so many bytes in all."""
    best = 0.0
    for way in ("loop", "memcpies"):
        run = Copy(way, cores, target, number).enter(None).run  # type: ignore[arg-type]
        for _ in range(_ROUNDS):
            start_s = time.perf_counter()
            run()
            best = max(best, number / (time.perf_counter() - start_s) / 1e3)
    return best


def _write(product: Product, folder: Path) -> int:
    """Write a file of one product and what it is called with; give the bytes of its weight."""
    import onnx
    from onnx import TensorProto, helper

    folder.mkdir()
    rng = np.random.default_rng(0)
    rows, depth = product.rows, product.depth
    shape = (1, depth, rows, rows) if product.window else (rows, depth)
    x = rng.standard_normal(shape).astype("float32")
    nodes, weights, exact = _OF_CODES.get(product.kind, _plain)(product, rng)
    element = TensorProto.FLOAT
    y = _multiply(x.astype("float64"), exact, product.window).astype("float32")
    graph = helper.make_graph(
        nodes, "product",
        [helper.make_tensor_value_info("x", element, x.shape)],
        [helper.make_tensor_value_info("y", element, y.shape)],
        weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "model.onnx")
    np.savez(folder / "samples.npz", **{"0 in x": x, "0 out 0": y})
    about = {"inputs": ["x"], "samples": [{}], "tuned": {}}
    (folder / "about.json").write_text(json.dumps(about))
    return sum(len(weight.raw_data) for weight in weights)


def _multiply(x: Any, weight: Any, window: int) -> Any:
    """Rows by a weight, or an image by kernels so large."""
    if not window:
        return x @ weight
    edge = (window // 2, window // 2)
    padded = np.pad(x, ((0, 0), (0, 0), edge, edge))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (window, window), axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, weight, optimize=True)


def _plain(product: Product, rng: np.random.Generator) -> tuple[list[Any], list[Any], Any]:
    """Nodes, weights, and the weight in float64: a product in one type, cast to and from it."""
    from onnx import helper

    from spaces.ir.element_types import numpy_dtype

    depth, columns, window = product.depth, product.columns, product.window
    shape = (columns, depth, window, window) if window else (depth, columns)
    weight = rng.standard_normal(shape) / (depth * max(1, window) ** 2) ** 0.5
    narrow = weight.astype(numpy_dtype(product.kind))
    element = helper.np_dtype_to_tensor_dtype(narrow.dtype)
    stored = helper.make_tensor("w", element, narrow.shape, narrow.tobytes(), raw=True)
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=element),
        helper.make_node("Conv", ["n", "w"], ["t"], pads=[window // 2] * 4)
        if window
        else helper.make_node("MatMul", ["n", "w"], ["t"]),
        helper.make_node("Cast", ["t"], ["y"], to=1),
    ]
    return nodes, [stored], narrow.astype("float64")


def _packed(product: Product, rng: np.random.Generator) -> tuple[list[Any], list[Any], Any]:
    """As of `_plain`: a product of 4 bits."""
    from onnx import helper, numpy_helper

    blocks = product.depth // _BLOCK
    codes = rng.integers(0, 256, (product.columns, blocks, _BLOCK // 2), dtype=np.uint8)
    scales = (rng.random((product.columns, blocks)) / product.depth**0.5).astype("float32")
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=product.depth,
        N=product.columns, bits=4, block_size=_BLOCK, accuracy_level=product.level,
    )  # fmt: skip
    apart = np.stack([codes & 15, codes >> 4], -1).reshape(product.columns, blocks, _BLOCK) - 8.0
    exact = (apart * scales[:, :, None]).reshape(product.columns, product.depth).T
    return (
        [node],
        [numpy_helper.from_array(codes, "w"), numpy_helper.from_array(scales, "s")],
        exact,
    )


def _blocked(product: Product, rng: np.random.Generator) -> tuple[list[Any], list[Any], Any]:
    """As of `_plain`: a product of 4 bits in ONNX's own operators."""
    from onnx import TensorProto, helper, numpy_helper

    shape = (product.depth, product.columns)
    codes = rng.integers(-8, 8, shape).astype("int8")
    nibbles = codes.reshape(-1, 2).astype("uint8") & 15
    stored = nibbles[:, 0] | nibbles[:, 1] << 4
    scales = (rng.random((product.depth // _BLOCK, shape[1])) / shape[0] ** 0.5).astype("float32")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["t"], axis=0, block_size=_BLOCK),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    weights = [
        helper.make_tensor("w", TensorProto.INT4, shape, stored.tobytes(), raw=True),
        numpy_helper.from_array(scales, "s"),
    ]
    return nodes, weights, codes * np.repeat(scales, _BLOCK, axis=0).astype("float64")


_OF_CODES = {"int4": _packed, "int4 QDQ": _blocked}
"""What makes products of 4 bits, by kind."""


if __name__ == "__main__":
    main()
