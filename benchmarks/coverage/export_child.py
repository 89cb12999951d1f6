"""Makes one network, and exports it: `python -m benchmarks.coverage.export_child NAME HOW FOLDER`.

It writes `model.onnx` or `model.pt2`, and `samples.npz`: inputs, and the outputs that PyTorch
computes of them, at each size that is tried. HOW is `dynamo`, `tracing` or `archive`, or `file` of
those of `benchmarks.coverage.quantized`.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage.made import Made
from benchmarks.coverage.networks import TIMED
from benchmarks.coverage.quantized import FILES

_AFFINE = re.compile(r"(?:(\d+)\*)?(\w+)(?: \+ (\d+))?")


def main() -> None:
    """One network, one exporter."""
    name, how, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    warnings.filterwarnings("ignore")
    if how == "file":
        FILES[name](folder)
        return
    _let_torchvision_be_imported()
    import torch

    torch.manual_seed(0)
    made = TIMED[name]()
    with torch.no_grad():
        _shake(made.module)
        _export(made, how, folder)
        _write_samples(made, folder)


def _let_torchvision_be_imported() -> None:
    """Its compiled operators are those of another build of torch where that is one for CPUs. No
    network here needs them, but it describes them when it is imported."""
    import torch

    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    text = (Path(found.origin).parent / "_meta_registrations.py").read_text()
    names = {*re.findall(r"torchvision::(\w+)", text), *re.findall(r'register_meta\("(\w+)"', text)}
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for operator in names:
        if not hasattr(torch.ops.torchvision, operator):
            operators.define(f"{operator}(Tensor x) -> Tensor")
    _KEPT.append(operators)


_KEPT: list[Any] = []
"""A library's operators go with it."""


def _shake(module: Any) -> None:
    """Weights that are made equal, as zeros of a last layer or ones of a normalisation, get values:
    what is multiplied by zero would be right, whatever it is."""
    import torch

    for parameter in module.parameters():
        if parameter.is_floating_point() and bool((parameter == parameter.flatten()[0]).all()):
            parameter.add_(0.1 * torch.randn_like(parameter))


def _export(made: Made, how: str, folder: Path) -> None:
    import torch

    given = tuple(made.inputs.values())
    if how == "tracing":
        axes = {name: {a: _plain(d) for a, d in dims.items()} for name, dims in made.axes.items()}
        torch.onnx.export(
            made.module, given, folder / "model.onnx", dynamo=False, dynamic_axes=axes,
            input_names=list(made.inputs), opset_version=17,
        )  # fmt: skip
        return
    symbols: dict[str, Any] = {}
    open_dims = tuple(
        {axis: _dim(text, made, symbols) for axis, text in made.axes.get(name, {}).items()} or None
        for name in made.inputs
    )
    shapes = _as_taken(made.module, open_dims) if made.axes else None
    if how == "archive":
        program = torch.export.export(made.module, given, dynamic_shapes=shapes)
        torch.export.save(program, folder / "model.pt2")
        return
    torch.onnx.export(
        made.module, given, folder / "model.onnx", dynamo=True, dynamic_shapes=shapes,
        external_data=False, verbose=False, input_names=list(made.inputs),
    )  # fmt: skip


def _as_taken(module: Any, every: tuple[Any, ...]) -> tuple[Any, ...]:
    """With what goes into `*arguments` as a tuple of its own."""
    taken = inspect.signature(module.forward).parameters.values()
    named = sum(p.kind is not p.VAR_POSITIONAL for p in taken)
    return every if named == len(taken) else (*every[:named], every[named:])


def _plain(text: str) -> str:
    """A name for a dimension that tracing knows no expression of: `h` of `4*h`."""
    return f"{text.partition('*')[2]}_pixels" if "*" in text else text


def _dim(text: str, made: Made, symbols: dict[str, Any]) -> Any:
    from torch.export import Dim

    match = _AFFINE.fullmatch(text)
    assert match is not None, text
    times, name, plus = match.groups()
    dim = symbols.setdefault(name, Dim(name, max=made.tuned[name][-1]))
    dim = dim if times is None else int(times) * dim
    return dim if plus is None else dim + int(plus)


def _write_samples(made: Made, folder: Path) -> None:
    import torch

    number = max((len(sizes) for sizes in made.tried.values()), default=1)
    arrays: dict[str, Any] = {}
    every: list[dict[str, int]] = []
    for sample in range(number):
        sizes = {dim: tried[sample % len(tried)] for dim, tried in made.tried.items()}
        given = {name: _resized(made, name, sizes) for name in made.inputs}
        try:
            found = made.module(*given.values())
        except Exception:  # a network may refuse a size, and then so must we
            found = None
        arrays |= {f"{sample} in {name}": value.numpy() for name, value in given.items()}
        outputs = (found,) if isinstance(found, torch.Tensor) else found or ()
        arrays |= {f"{sample} out {i}": value.numpy() for i, value in enumerate(outputs)}
        every.append(sizes)
    np.savez(folder / "samples.npz", **arrays)
    tuned = {dim: list(sizes) for dim, sizes in made.tuned.items()}
    about = {"tuned": tuned, "samples": every, "inputs": list(made.inputs)}
    (folder / "about.json").write_text(json.dumps(about))


def _resized(made: Made, name: str, sizes: Mapping[str, int]) -> Any:
    """An input of the shape that some sizes give, other values in it than in the example."""
    import torch

    example = made.inputs[name]
    shape = list(example.shape)
    for axis, text in made.axes.get(name, {}).items():
        match = _AFFINE.fullmatch(text)
        assert match is not None, text
        times, dim, plus = match.groups()
        shape[axis] = int(times or 1) * sizes[dim] + int(plus or 0)
    if example.dtype.is_floating_point:
        return torch.randn(shape)
    if "mask" in name:
        mask = torch.ones(shape, dtype=example.dtype)
        mask[:, : shape[1] // 3] = 0
        return mask
    return torch.randint(3, 200, shape)


if __name__ == "__main__":
    main()
