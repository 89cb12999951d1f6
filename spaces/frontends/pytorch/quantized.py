"""Operators that PyTorch's quantizers write (`torch.ops.quantized_decomposed`).

PyTorch has formulas of all in core operators, those of tensors' scales in numbers of Python
(`Tensor.item`), which cannot be exported: these are here, in tensors. Weights of 4 bits in groups
are packed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.elementwise.packed_codes import (
    FIRST,
    Matrix,
    count_bits,
    emit_matrix,
    pack,
)
from spaces.frontends.pytorch.products import Converter
from spaces.ir.element_types import WIDE
from spaces.lowering.relax_rewrite import constant
from spaces.lowering.weights.codes import Codes

Formula = Callable[..., Any]
_GROUPS = "dequantize_per_channel_group.default"
_KIND = "int4"


def list_formulas(program: Any) -> dict[Any, Formula]:
    """Formulas by operator, for `ExportedProgram.run_decompositions`; none of weights in groups
    where all of those can be packed."""
    if all(_read_weight(program, node) is not None for node in _list_groups(program)):
        return _formulas()
    return {**_formulas(), **_formula_of_groups()}


def without_groups(program: Any) -> Any:
    """A program in core operators alone, its weights in groups made floats of."""
    return program.run_decompositions(_formula_of_groups()) if _list_groups(program) else program


def _formula_of_groups() -> dict[Any, Formula]:
    import torch
    from torch.ao.quantization.fx import _decomposed as theirs

    known = torch.ops.quantized_decomposed
    return {known.dequantize_per_channel_group.default: theirs.dequantize_per_channel_group}


def _list_groups(program: Any) -> list[Any]:
    """The nodes that make floats of weights in groups."""
    nodes = program.graph.nodes
    return [node for node in nodes if getattr(node.target, "__name__", "") == _GROUPS]


def group_converters(program: Any) -> dict[str, Converter]:
    """Converters by operator, for the importer's `custom_convert_map`."""

    def convert(node: Any, importer: Any) -> Any:
        weight = _read_weight(program, node)
        if weight is None:
            raise ValueError("its weight is not known, or of more than 4 bits")
        dtype = str(node.meta["val"].dtype).removeprefix("torch.")
        return emit_matrix(importer.block_builder, _read_matrix(*weight), dtype, turned=True)

    return {_GROUPS: convert}


def _read_weight(program: Any, node: Any) -> tuple[Any, Any, Any] | None:
    """The codes, scales and zero points of a weight in groups, arrays; None where one of them is no
    constant, codes have more than 4 bits, or scales are halves, in which PyTorch multiplies."""
    found = [_find_constant(program, argument) for argument in node.args[:2]]
    zeros = node.args[2]
    points = np.zeros(1) if zeros is None else _find_constant(program, zeros)
    codes, scales = found
    if codes is None or scales is None or points is None or codes.ndim != 2:
        return None
    first = FIRST[_KIND]
    small = codes.size and codes.min() >= first and codes.max() < first + (1 << count_bits(_KIND))
    wide = scales.dtype == WIDE and scales.ndim == 2
    whole = wide and codes.shape[1] % scales.shape[-1] == 0
    return (codes, scales, points) if small and whole else None


def _find_constant(program: Any, node: Any) -> Any:
    """The array that an input of a program is bound to; None where it is no constant, or of
    bfloat16, which numpy has not."""
    import torch

    said = program.graph_signature
    names = {
        **said.inputs_to_parameters,
        **said.inputs_to_buffers,
        **said.inputs_to_lifted_tensor_constants,
    }
    name = names.get(getattr(node, "name", ""))
    tensor = program.state_dict.get(name, program.constants.get(name)) if name else None
    if tensor is None or tensor.dtype == torch.bfloat16:
        return None
    return tensor.detach().numpy()


def _read_matrix(codes: Any, scales: Any, zeros: Any) -> Matrix:
    """The matrix of a weight; its columns are the weight's rows."""
    first = FIRST[_KIND]
    points = np.broadcast_to(zeros, scales.shape)
    middles = Codes(constant((points - first).astype(WIDE)), count_bits(_KIND))
    return Matrix(
        codes=pack(codes, _KIND),
        scales=constant(scales),
        depth=codes.shape[1],
        columns=codes.shape[0],
        block=codes.shape[1] // scales.shape[1],
        zeros=middles if points.any() else None,
    )


def _formulas() -> dict[Any, Formula]:
    import torch
    from torch.ao.quantization.fx import _decomposed as theirs

    known = torch.ops.quantized_decomposed
    return {
        known.choose_qparams.tensor: _choose_affine,
        known.choose_qparams_symmetric.tensor: _choose_symmetric,
        known.quantize_per_tensor.tensor: _quantize,
        known.quantize_per_tensor.tensor2: _quantize,
        known.dequantize_per_tensor.tensor: _dequantize,
        known.dequantize_per_tensor.tensor2: _dequantize,
        known.choose_qparams_per_token.default: theirs.choose_qparams_per_token,
        known.choose_qparams_per_token_asymmetric.default: (
            theirs.choose_qparams_per_token_asymmetric
        ),
        known.quantize_per_token.default: theirs.quantize_per_token,
        known.dequantize_per_token.default: theirs.dequantize_per_token,
    }


def _choose_affine(x: Any, low: int, high: int, eps: float, _dtype: Any) -> tuple[Any, Any]:
    """A scale for the range of a tensor and zero, and the code of zero."""
    import torch

    least, most = _span(x)
    scale = ((most - least) / float(high - low)).clamp(min=eps)
    zero = (low - torch.round(least / scale)).clamp(low, high)
    return scale.to(torch.float64), zero.to(torch.int64)


def _choose_symmetric(x: Any, low: int, high: int, eps: float, dtype: Any) -> tuple[Any, Any]:
    """A scale for the largest number of a tensor; zero is the middle code."""
    import torch

    least, most = _span(x)
    scale = (torch.maximum(-least, most) / (float(high - low) / 2)).clamp(min=eps)
    middle = 128 if dtype == torch.uint8 else 0
    return scale.to(torch.float64), torch.full_like(scale, middle, dtype=torch.int64)


def _span(x: Any) -> tuple[Any, Any]:
    """The least and the largest number of a tensor and zero, of one element each."""
    flat = x.reshape(1, -1)
    return flat.amin(-1).clamp(max=0), flat.amax(-1).clamp(min=0)


def _quantize(x: Any, scale: Any, zero: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Codes of a tensor, in float32 until they are cut off."""
    import torch

    real = x.to(torch.float32)
    steps = torch.round(real * (1.0 / scale).to(torch.float32)) + zero.to(torch.float32)
    return steps.clamp(low, high).to(dtype)


def _dequantize(
    x: Any, scale: Any, zero: Any, _low: Any, _high: Any, _dtype: Any, *, out_dtype: Any = None
) -> Any:
    import torch

    wide = out_dtype or torch.float32
    return (x.to(wide) - zero.to(wide)) * scale.to(wide)
