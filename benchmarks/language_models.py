"""Language models of 4 bits with a cache, beside onnxruntime on the same file: rows of
`benchmarks.formats`.

A model has four layers as Llama's or Qwen3's and drawn weights, in blocks of 32 by onnxruntime's
own tool, and allows rows of 8 bits (`accuracy_level` 4). It is tuned once, with its lengths open,
and then makes one step after several lengths, and reads prompts. Errors of both sides are to what
onnxruntime computes of the same codes with whole rows. `memory_over_file` is what a process grows
by that loads the library and runs a step, over the file's size, and `peak_over_file` the most on
the way; `private_over_file` leaves out the pages of the library itself, which the system may drop.
`load_s` is what loading takes.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import Rows, say
from benchmarks.coverage.latency import tune_file
from benchmarks.coverage.side import Raced, race_sides
from benchmarks.figures import ratio, spread
from tests.spaces.frontends.onnx.language_models import Sizes, llama, step
from tuner.errors import TunerError

_LAYERS, _BLOCK, _IN_BYTES = 4, 32, 4
_SIZES = Sizes(words=4096, width=1024, heads=16, shared=4, head=64, inner=2816, places=1024)
_CALLS = ((1, 16), (1, 128), (1, 512), (32, 0), (256, 0))
"""New rows, and rows of the past."""
_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """One model.

    Attributes:
        norms: whether queries and keys are normalised by heads.
    """

    kind: str
    norms: bool
    layers: int = _LAYERS
    sizes: Sizes = _SIZES

    def name(self, call: tuple[int, int]) -> str:
        """Of the row of a call."""
        rows, past = call
        return f"{self.kind} int4 " + (f"step after {past}" if rows == 1 else f"prompt of {rows}")

    def measure(
        self, rows: Rows, runs: Path, target: str, cores: int, options: argparse.Namespace
    ) -> None:
        """Add the rows that are asked for and not there."""
        wanted = [
            number
            for number, call in enumerate(_CALLS)
            if fnmatch.fnmatchcase(name := self.name(call), options.only)
            and not rows.has({"name": name})
        ]
        if not wanted:
            return
        say(f"{self.kind} int4")
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "model"
            file_bytes = self.write(folder)
            try:
                told = self._tune(folder, runs, target, options.model_budget)
                told |= _measure_loaded(folder, file_bytes)
                sides = {"ours": ("ours", folder), "peer": ("onnxruntime", folder)}
                raced = race_sides(sides, cores, wanted, options.rounds)
            except TunerError as error:
                for number in wanted:
                    failed = {"ratio": None, "failure": str(error)}
                    rows.add({"name": self.name(_CALLS[number]), **failed})
                return
        for number in wanted:
            rows.add({"name": self.name(_CALLS[number]), **_row(raced, number), **told})

    def write(self, folder: Path) -> int:
        """Write the file, what it is called with and what comes out; give the file's size."""
        import onnx

        folder.mkdir()
        proto = llama(self.layers, norms=self.norms, sizes=self.sizes)
        for value in proto.graph.input:
            value.type.tensor_type.shape.dim[0].dim_value = 1
        proto = _in_blocks(proto)
        onnx.save(proto, folder / "model.onnx")
        calls = {number: step(proto, *call) for number, call in enumerate(_CALLS)}
        arrays = _exact(proto, calls)
        for number, given in calls.items():
            arrays |= {f"{number} in {name}": array for name, array in given.items()}
        np.savez(folder / "samples.npz", **arrays)
        shapes = [{"s": rows, "p": max(past, 1)} for rows, past in _CALLS]
        tuned = {dim: sorted({shape[dim] for shape in shapes}) for dim in "sp"}
        about = {"inputs": [*calls[0]], "samples": [{} for _ in _CALLS], "tuned": tuned}
        (folder / "about.json").write_text(json.dumps(about))
        weights = [{**shape, "weight": 1} for shape in shapes]
        (folder / "weights.json").write_text(json.dumps(weights))
        return (folder / "model.onnx").stat().st_size

    def _tune(self, folder: Path, runs: Path, target: str, budget: str) -> dict[str, Any]:
        more = ("--dim=t=s+p", "--weights", str(folder / "weights.json"))
        told = tune_file(folder, runs / f"{self.kind}-int4", target, budget, more=more)
        return {"model_budget": budget, **told}


MODELS = (LanguageModel("llama", norms=False), LanguageModel("qwen3", norms=True))


def _in_blocks(proto: Any) -> Any:
    """A model with its products and table of words in 4 bits."""
    import logging

    from onnxruntime.quantization import matmul_nbits_quantizer as tool

    logging.getLogger(tool.__name__).setLevel(logging.WARNING)
    quantizer = tool.MatMulNBitsQuantizer(
        proto,
        block_size=_BLOCK,
        is_symmetric=True,
        accuracy_level=_IN_BYTES,
        op_types_to_quantize=("MatMul", "Gather"),
    )
    quantizer.process()
    return quantizer.model.model


def _exact(proto: Any, calls: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What comes out of calls of a model that does not round rows."""
    import onnxruntime

    whole = type(proto)()
    whole.CopyFrom(proto)
    for node in whole.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    session = onnxruntime.InferenceSession(whole.SerializeToString())
    return {
        f"{number} out {place}": array
        for number, given in calls.items()
        for place, array in enumerate(session.run(None, dict(given)))
    }


def _measure_loaded(folder: Path, file_bytes: int) -> dict[str, float]:
    """By how much a process grows that loads the library and runs a step, and how long it loads:
    see `benchmarks.loaded_memory`.

    Raises:
        TunerError: it cannot, or takes too long.
    """
    command = [sys.executable, "-m", "benchmarks.loaded_memory", str(folder)]
    root = Path(__file__).parents[1]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise TunerError(f"a step took longer than {_LIMIT_S:g} s") from error
    if done.returncode:
        raise TunerError((done.stderr.strip().splitlines() or ["no word"])[-1][:200])
    found: dict[str, float] = json.loads(done.stdout)
    load_s = found.pop("load_s")
    grown = {f"{kind}_over_file": size / file_bytes for kind, size in found.items()}
    return {**grown, "load_s": load_s}


def _row(raced: Raced, number: int) -> dict[str, Any]:
    samples = {name: of_side[number] for name, of_side in raced.samples_ms.items()}
    row: dict[str, Any] = {"ratio": None, "failed": raced.failed, "errors": raced.errors}
    row |= {f"{name}_ms": spread(found) for name, found in samples.items()}
    if len(samples) == 2:
        row["ratio"] = ratio(samples["ours"], samples["peer"])
    return row
