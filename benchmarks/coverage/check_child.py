"""Imports and compiles one exported network, and compares it with what it should compute:
`python -m benchmarks.coverage.check_child FOLDER`. It prints one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from spaces.codegen.executable import Array, compile_plainly
from spaces.frontends.model import Model, load_model
from spaces.import_check.check import check_import
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.target import resolve_target
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.runs.import_check import Limits

_CHECK_S = 9.0
"""A tenth of a run of 90 s, as the check of the import has there."""


def main() -> None:
    """The row of one network."""
    folder = Path(sys.argv[1])
    try:
        row = _checked(folder)
    except TunerError as error:
        row = {"refused": str(error)}
    except Exception as error:  # the defect that the table is for
        row = {"crashed": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    print(json.dumps(row))


def _checked(folder: Path) -> dict[str, Any]:
    about = json.loads((folder / "about.json").read_text())
    (path,) = (path for path in folder.glob("model.*"))
    model = load_model(ModelSpec(str(path), dims=dims_of(about["tuned"], path)))
    target = resolve_target("llvm")
    lowered = lower(model.module, target)
    tasks = extract(lowered, target, None, model.shapes)
    compared = _compared(lowered, target, model, about, folder)
    row = {"tasks": len(tasks), **compared}
    if "within" in about:  # compared with onnxruntime, as the check of the import would be
        row["within"] = about["within"]
        if row["error"] <= about["within"]:
            return row
    limits = Limits(_CHECK_S, psutil.virtual_memory().available)
    check = check_import(model, target, (), limits)
    told = {name: check.to_json()[name] for name in ("state", "said", "notes", "seconds")}
    return {**row, "import": told}


def dims_of(tuned: Any, path: Path) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What is to be tuned for, under the names that the file has: sizes by name."""
    if not tuned:
        return ()
    names = _names(path, list(tuned))
    pixels = {dim: 4 if name.endswith("_pixels") else 1 for dim, name in names.items()}
    return tuple(
        (names[dim], tuple(size * pixels[dim] for size in sizes)) for dim, sizes in tuned.items()
    )


def _names(path: Path, dims: list[str]) -> dict[str, str]:
    if path.suffix == ".pt2":
        from spaces.frontends.pytorch.model import read_torch

        symbols = read_torch(path).declared.symbols
        return dict(zip(dims if len(dims) == 1 else sorted(dims), symbols, strict=True))
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    texts = {d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim}
    return {dim: f"{dim}_pixels" if f"{dim}_pixels" in texts else dim for dim in dims}


def _compared(lowered: Any, target: str, model: Model, about: Any, folder: Path) -> dict[str, Any]:
    import tvm

    machine = tvm.relax.VirtualMachine(compile_plainly(lowered, target).library, tvm.cpu())
    worst, refused = 0.0, []
    with np.load(folder / "samples.npz") as arrays:
        for number, sizes in enumerate(about["samples"]):
            given = [arrays[f"{number} in {name}"] for name in about["inputs"]]
            outputs = [name for name in arrays if name.startswith(f"{number} out ")]
            wanted = [arrays[name] for name in outputs]
            try:
                found = machine["main"](*map(tvm.runtime.tensor, given))
            except Exception as error:  # sizes that the network does not take are refused, too
                if wanted:
                    refused.append({"sizes": sizes, "why": " ".join(str(error).split())[-120:]})
                continue
            got = [part.numpy() for part in ((found,) if hasattr(found, "numpy") else found)]
            if why := _unlike(got, wanted):
                refused.append({"sizes": sizes, "why": why})
            else:
                worst = max(worst, *(_error(a, b) for a, b in zip(got, wanted, strict=True)))
    return {"error": worst, "sizes": len(about["samples"]), "wrong": refused}


def _unlike(got: Sequence[Array], wanted: Sequence[Array]) -> str:
    """Why outputs cannot be compared; empty where they can."""
    if not wanted:
        return "PyTorch refuses it, the library does not"
    shapes = [array.shape for array in got], [array.shape for array in wanted]
    return "" if shapes[0] == shapes[1] else f"shapes {shapes[0]} for {shapes[1]}"


def _error(got: Array, wanted: Array) -> float:
    """The largest difference, by the largest element."""
    scale = max(float(np.abs(wanted).max()), 1e-30)
    return float(np.abs(got - wanted).max()) / scale


if __name__ == "__main__":
    main()
