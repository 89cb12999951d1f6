"""Archives with operators of PyTorch's quantizers give what PyTorch computes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import LoadedModel
from spaces.frontends.model import Model, load_model
from spaces.import_check.plain_code import compile_untuned
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.lowering.relax_rewrite import tir_calls
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import contraction_templates
from tests.needed import needed_package
from tuner.request.model_spec import ModelSpec

torch = needed_package("torch")
pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
COLUMNS, DEPTH, GROUP = 48, 64, 32
Rounds = Callable[[Any, Any], Any]


def round_affine(x: Any, known: Any) -> Any:
    said = (*known.choose_qparams(x, -128, 127, 1e-5, torch.int8), -128, 127, torch.int8)
    return known.dequantize_per_tensor.tensor(known.quantize_per_tensor.tensor(x, *said), *said)


def round_symmetric(x: Any, known: Any) -> Any:
    found = known.choose_qparams_symmetric(x, -127, 127, 1e-5, torch.int8)
    said = (*found, -127, 127, torch.int8)
    return known.dequantize_per_tensor.tensor(known.quantize_per_tensor.tensor(x, *said), *said)


def round_unsigned(x: Any, known: Any) -> Any:
    said = (*known.choose_qparams_symmetric(x, 0, 255, 1e-5, torch.uint8), 0, 255, torch.uint8)
    return known.dequantize_per_tensor.tensor(known.quantize_per_tensor.tensor(x, *said), *said)


def round_tokens(x: Any, known: Any) -> Any:
    said = (*known.choose_qparams_per_token(x, torch.int8), -128, 127, torch.int8)
    return known.dequantize_per_token(known.quantize_per_token(x, *said), *said, torch.float32)


def round_tokens_affine(x: Any, known: Any) -> Any:
    said = (*known.choose_qparams_per_token_asymmetric(x, torch.int8), -128, 127, torch.int8)
    return known.dequantize_per_token(known.quantize_per_token(x, *said), *said, torch.float32)


def write(
    folder: Path,
    rounds: Rounds | None,
    least: int = -8,
    zeros: bool = False,
    scales: str = "float32",
) -> Any:
    """Write an archive of one product, with rounded rows or a weight in groups; give the network.

    Args:
        least: of the weight's codes, sixteen of which follow.
        zeros: whether groups have zero points that differ.
        scales: their type.
    """
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 -- registers the operators

    known, rng = torch.ops.quantized_decomposed, torch.Generator().manual_seed(0)

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            most, groups = least + 16, (COLUMNS, DEPTH // GROUP)
            codes = torch.randint(least, most, (COLUMNS, DEPTH), dtype=torch.int8, generator=rng)
            points = torch.randint(-3, 3, groups, generator=rng) if zeros else torch.zeros(groups)
            self.register_buffer("codes", codes)
            by = torch.rand(groups, generator=rng) * 0.01 + 0.001
            self.register_buffer("scales", by.to(getattr(torch, scales)))
            self.register_buffer("zeros", points.to(torch.int64))

        def forward(self, x: Any) -> Any:
            if rounds is not None:
                return rounds(x, known) @ (self.codes.to(torch.float32) * 0.01).T
            said = (least, least + 15, torch.int8, GROUP, torch.float32)
            weight = known.dequantize_per_channel_group(self.codes, self.scales, self.zeros, *said)
            return torch.nn.functional.linear(x, weight)

    network = Network().eval()
    exported = torch.export.export(network, (rows(),))
    torch.export.save(exported, folder / "model.pt2")
    return network


def rows() -> Any:
    return torch.randn(3, DEPTH, generator=torch.Generator().manual_seed(1))


def load(folder: Path) -> Model:
    return load_model(ModelSpec(str(folder / "model.pt2")))


@pytest.mark.parametrize(
    "rounds", [round_affine, round_symmetric, round_unsigned, round_tokens, round_tokens_affine]
)
def test_rows_are_rounded_as_pytorch_rounds_them(rounds: Rounds, tmp_path: Path) -> None:
    network = write(tmp_path, rounds)
    (found,) = LoadedModel(compile_untuned(load(tmp_path).module, LLVM), [rows().numpy()]).outputs()
    np.testing.assert_allclose(found, network(rows()).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("least", "packed"), [(-8, True), (20, False)])
def test_weights_of_4_bits_in_groups_are_packed(
    least: int, packed: bool, zeros: bool, tmp_path: Path
) -> None:
    """Others become floats."""
    network = write(tmp_path, None, least, zeros)
    lowered = lower(load(tmp_path).module, LLVM)
    arrays = [
        operand.value.numpy()
        for call in tir_calls(lowered)
        for operand in call.args[1].fields
        if hasattr(operand, "value")
    ]
    sizes = [array.nbytes for array in arrays if array.size >= COLUMNS * DEPTH // 2]
    assert sizes == [COLUMNS * DEPTH // 2 if packed else COLUMNS * DEPTH * 4]
    (found,) = LoadedModel(compile_untuned(load(tmp_path).module, LLVM), [rows().numpy()]).outputs()
    np.testing.assert_allclose(found, network(rows()).numpy(), rtol=1e-5, atol=1e-5)


def test_a_product_unpacks_groups_in_its_steps(tmp_path: Path) -> None:
    write(tmp_path, None)
    (task,) = extract(lower(load(tmp_path).module, LLVM), LLVM)
    (template, *_) = contraction_templates(task, match_contraction(task))
    assert k.IN_STEP in template.choices[k.PACK_INSIDE]


@pytest.mark.parametrize("scales", ["float16", "bfloat16"])
def test_products_of_codes_and_scales_in_halves_are_halves(scales: str, tmp_path: Path) -> None:
    """As PyTorch rounds them, whatever is made of these."""
    network = write(tmp_path, None, scales=scales)
    (found,) = LoadedModel(compile_untuned(load(tmp_path).module, LLVM), [rows().numpy()]).outputs()
    np.testing.assert_allclose(found, network(rows()).numpy(), rtol=1e-5, atol=1e-5)
