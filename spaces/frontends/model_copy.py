"""A copy of a model inside a run folder, so that the run needs the original no more.

The folder holds `model.json` (what the model is called, its kind, its inputs and values for
them, checksums of the files: see `tuner.runs.model_files`), and beside it `model.onnx` (with
`model.onnx.data` where it has weights in other files), or `module.json` and `module.params` with a
module of TVM: what a function made, or what was imported from PyTorch, with what PyTorch computes
for a few inputs (`spaces.frontends.references`).

Whoever can write to a run may put anything there, so nothing in it is read by something that runs
code. Archives of PyTorch are: reading one unpickles what is in it and evaluates its expressions.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spaces.frontends.declared import ModelKind
from spaces.frontends.inputs import InputSpec
from spaces.frontends.model import Model
from spaces.frontends.module_copy import load_module, save_module
from spaces.frontends.references import References, save_references
from tuner.dynamic.shapes import domain_of, from_plain
from tuner.errors import TunerError
from tuner.request.model_spec import InputArray, InputValue, IntRange
from tuner.runs.model_files import DESCRIPTION, check_copy, checksums

InputValues = tuple[tuple[str, InputValue], ...]
_FILES: dict[ModelKind, str] = {
    "onnx": "model.onnx",
    "torch": "module.json",
    "function": "module.json",
}
_FORMATS: dict[ModelKind, int] = {"onnx": 1, "torch": 2, "function": 2}


def save_model_copy(
    model: Model,
    directory: Path,
    *,
    inputs: InputValues = (),
    references: References | None = None,
) -> None:
    """Copy a model, the values given for its inputs, and what was recorded of its source, into a
    folder.

    The description is written last: a folder that has one is complete. None of it is synced to
    the disk: `tuner.files.atomic.put_folder` does that, and gives the folder its name.

    Raises:
        TunerError: the folder cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _copy_body(model, directory / _FILES[model.kind])
        values = _copy_values(inputs, directory)
        if references is not None:
            save_references(references, directory)
        about = _description(model, values) | {"files": checksums(directory)}
        text = json.dumps(about, indent=1)
        scratch = directory / f"{DESCRIPTION}.{os.getpid()}"
        scratch.write_text(text + "\n")
        os.replace(scratch, directory / DESCRIPTION)
    except OSError as error:
        raise TunerError(f"cannot copy the model to {directory}: {error}") from error


def load_model_copy(directory: Path, model_hash: str = "") -> Model:
    """The model that `save_model_copy` put into a folder; its `path` is the copy.

    Args:
        model_hash: of the run's model, as its manifest has it; empty is not compared.

    Raises:
        TunerError: there is none, or it is not what was copied.
    """
    about = _read_description(directory)
    check_copy(directory, model_hash)
    kind: ModelKind = about["kind"]
    path = directory / _FILES[kind]
    inputs = tuple(
        InputSpec(
            i["name"],
            tuple(i["shape"]),
            i["dtype"],
            tuple(i.get("dims", ())),
            IntRange(*i["drawn"]) if "drawn" in i else None,
        )
        for i in about["inputs"]
    )
    shapes = from_plain(about.get("shapes", ()))
    if kind == "onnx":
        from spaces.frontends.onnx.model import import_graph, read_onnx

        module = import_graph(read_onnx(path), inputs, path, domain_of(shapes))
        return Model(about["name"], kind, module, inputs, about["content_hash"], path, shapes)
    module = load_module(path)
    return Model(about["name"], kind, module, inputs, about["content_hash"], None, shapes)


def load_input_values(directory: Path) -> InputValues:
    """Values for inputs that were kept with a copy, files being the folder's own."""
    values: list[tuple[str, InputValue]] = []
    for name, value in _read_description(directory)["values"]:
        file = isinstance(value, str)
        values.append((name, directory / value if file else IntRange(*value)))
    return tuple(values)


def _read_description(directory: Path) -> dict[str, Any]:
    path = directory / DESCRIPTION
    try:
        about = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TunerError(f"{directory} holds no readable copy of a model: {error}") from error
    known = {str(kind): number for kind, number in _FORMATS.items()}
    if not isinstance(about, dict) or about.get("format") != known.get(str(about.get("kind")), -1):
        raise TunerError(
            f"{path} was written by another version of the tuner: use that one, or a new run folder"
        )
    return about


def _description(model: Model, values: list[Any]) -> dict[str, Any]:
    return {
        "format": _FORMATS[model.kind],
        "name": model.name,
        "kind": model.kind,
        "content_hash": model.content_hash,
        "inputs": [_describe(i) for i in model.inputs],
        "values": values,
        **({"shapes": model.shapes} if model.shapes else {}),
    }


def _describe(spec: InputSpec) -> dict[str, Any]:
    about: dict[str, Any] = {"name": spec.name, "shape": spec.shape, "dtype": spec.dtype}
    about |= {"dims": spec.dims} if spec.dims else {}
    return about | ({"drawn": [spec.drawn.low, spec.drawn.high]} if spec.drawn else {})


def _copy_values(inputs: Sequence[tuple[str, InputValue]], directory: Path) -> list[Any]:
    values: list[Any] = []
    for number, (name, value) in enumerate(inputs):
        if isinstance(value, IntRange):
            values.append([name, [value.low, value.high]])
            continue
        copy = directory / f"input-{number}.npy"
        if isinstance(value, InputArray):
            copy.write_bytes(value.npy)
        else:
            _copy_file(value, copy)
        values.append([name, copy.name])
    return values


def _copy_body(model: Model, path: Path) -> None:
    if model.kind == "onnx" and model.path is not None:
        _copy_onnx(model.path, path)
    elif model.kind == "onnx":
        path.write_bytes(model.proto.SerializeToString())
    else:
        save_module(model.module, path)


def _copy_onnx(source: Path, path: Path) -> None:
    """The file, with weights in one beside it where they are in others; so they are never all in
    memory twice."""
    from spaces.frontends.onnx.model import has_external_data, read_onnx

    if not has_external_data(source):
        _copy_file(source, path)
        return
    import onnx

    data = path.with_name(path.name + ".data")
    data.unlink(missing_ok=True)  # onnx appends to a file that is there
    onnx.save_model(
        read_onnx(source),
        str(path),
        save_as_external_data=True,
        location=data.name,
        convert_attribute=True,
    )


def _copy_file(source: Path, path: Path) -> None:
    if not (path.exists() and path.samefile(source)):
        shutil.copyfile(source, path)
