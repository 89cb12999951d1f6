"""Mixtures of experts as PyTorch exports them compute what they do in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.frontends.model import load_model
from spaces.frontends.pytorch.archive import read_archive
from spaces.import_check.check import check_import
from spaces.import_check.torch_source import TorchSource
from spaces.ir.schedules import task_module
from spaces.lowering.extract_tasks import describe_untuned, extract
from spaces.lowering.lower import lower
from spaces.templates.registry import templates_of
from tests.needed import needed_package
from tests.spaces.frontends.test_torch_model import refusal, write_archive
from tuner.request.model_spec import ModelSpec
from tuner.runs.import_check import Limits

torch = needed_package("torch")
nn = torch.nn
pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
GROUPS, TERMS, COLUMNS = 3, 16, 24
ENDS = {
    "each": [2, 6, 10],
    "one of all": [0, 10, 10],
    "none first": [0, 4, 10],
    "the last none": [3, 10, 10],
    "of nothing": [0, 0, 0],
    "rows beyond": [1, 4, 7],
}
"""Where groups of ten rows end."""


class Grouped(nn.Module):
    """Rows by the weights of their groups, which lie with columns or with terms inside."""

    def __init__(self, *, turned: bool) -> None:
        super().__init__()
        shape = (GROUPS, COLUMNS, TERMS) if turned else (GROUPS, TERMS, COLUMNS)
        torch.manual_seed(0)
        self.weights = nn.Parameter(torch.randn(shape).bfloat16())
        self._turned = turned

    def forward(self, x: Any, ends: Any) -> Any:
        weights = self.weights.transpose(-2, -1) if self._turned else self.weights
        return nn.functional.grouped_mm(x, weights, offs=ends)


class Experts(nn.Module):
    """A layer of experts as Hugging Face's `grouped_mm_experts_forward` has it."""

    def __init__(self, experts: int, chosen: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self._experts, self._chosen = experts, chosen
        self.gate = nn.Parameter(torch.randn(experts, TERMS))
        self.up = nn.Parameter(torch.randn(experts, 2 * COLUMNS, TERMS) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, TERMS, COLUMNS) * 0.2)

    def forward(self, x: Any) -> Any:
        scores = nn.functional.linear(x.float(), self.gate.float())  # of halves some are equal
        shares, experts = torch.topk(scores.softmax(-1), self._chosen, dim=-1)
        count = x.shape[0]
        token = torch.arange(count).unsqueeze(1).expand(-1, self._chosen).reshape(-1)
        order = torch.argsort(experts.reshape(-1))
        back = torch.argsort(order)
        sorted_experts = experts.reshape(-1)[order].float()
        rows = torch.histc(sorted_experts, bins=self._experts, min=0, max=self._experts - 1)
        ends = torch.cumsum(rows, dim=0, dtype=torch.int32)
        taken = x[token[order]]
        gated = nn.functional.grouped_mm(taken, self.up.transpose(-2, -1), offs=ends)
        gate, up = gated.chunk(2, dim=-1)
        hidden = nn.functional.silu(gate) * up
        out = nn.functional.grouped_mm(hidden, self.down.transpose(-2, -1), offs=ends)
        out = out * shares.reshape(-1)[order].unsqueeze(-1).to(out.dtype)
        return out[back].view(count, self._chosen, -1).sum(1)


def rows_of(count: int) -> Any:
    return np.random.default_rng(count).normal(size=(count, TERMS)).astype(ml_dtypes.bfloat16)


def export(path: Path, network: Any) -> Path:
    """An archive of a product of groups whose number of rows is open."""
    example = torch.zeros(10, TERMS).bfloat16(), torch.tensor([2, 6, 10], dtype=torch.int32)
    return write_archive(path, network, *example, dynamic=({0: torch.export.Dim.AUTO}, None))


def far(found: Any, wanted: Any) -> float:
    """How far values are apart, over the largest of those that are wanted."""
    found, wanted = (one.astype(np.float32) for one in (found, wanted))
    return float(np.max(np.abs(found - wanted), initial=0) / np.max(np.abs(wanted), initial=1))


@pytest.mark.parametrize("turned", [False, True])
def test_rows_are_multiplied_by_the_weights_of_their_groups(tmp_path: Path, turned: bool) -> None:
    path = export(tmp_path / "net.pt2", Grouped(turned=turned))
    model = load_model(ModelSpec(str(path), dims=(("x_0", (10,)),)))
    executable = compile_module(lower(model.module, LLVM), LLVM)
    source = TorchSource(read_archive(path))
    for ends in ENDS.values():
        feeds = [rows_of(10), np.array(ends, np.int32)]
        (found,), (wanted,) = run_once(executable, feeds), source.outputs(feeds)
        assert found.dtype == wanted.dtype == ml_dtypes.bfloat16
        assert far(found, wanted) < 1e-2
        assert not found[ends[-1] :].astype(np.float32).any()
        assert np.any(wanted) == (ends[-1] > 0)


@pytest.mark.parametrize(("experts", "chosen"), [(4, 2), (8, 1), (3, 3)])
def test_a_layer_of_experts_is_right_at_every_length(
    tmp_path: Path, experts: int, chosen: int
) -> None:
    network = Experts(experts, chosen).bfloat16()
    path = write_archive(
        tmp_path / "net.pt2",
        network,
        torch.zeros(10, TERMS).bfloat16(),
        dynamic=({0: torch.export.Dim("t", min=1, max=512)},),
    )
    lengths = (1, 2, 33, 200)
    model = load_model(ModelSpec(str(path), dims=(("x_0", lengths),)))
    executable = compile_module(lower(model.module, LLVM), LLVM)
    source = TorchSource(read_archive(path))
    for length in lengths:
        feeds = [rows_of(length)]
        (found,), (wanted,) = run_once(executable, feeds), source.outputs(feeds)
        assert far(found, wanted) < 2e-2


def test_products_of_experts_are_tuned_at_every_length_and_keep_halves(tmp_path: Path) -> None:
    path = write_archive(
        tmp_path / "net.pt2",
        Experts(4, 2).bfloat16(),
        torch.zeros(10, TERMS).bfloat16(),
        dynamic=({0: torch.export.Dim("t", min=1, max=512)},),
    )
    model = load_model(ModelSpec(str(path), dims=(("x_0", (1, 33)),)))
    lowered = lower(model.module, LLVM)
    assert describe_untuned(lowered, model.shapes) == ""
    tasks = extract(lowered, LLVM, shapes=model.shapes)
    products = [task for task in tasks if "grouped_product" in task.name]
    assert len(products) == 2
    for task in products:
        weights = next(p for p in task_module(task.module)["main"].params if len(p.shape) == 3)
        assert str(weights.dtype) == "bfloat16"
        assert any(t.name.startswith("kernel:shapes-") for t in templates_of(task))


def test_layers_of_experts_find_the_groups_of_their_rows_once(tmp_path: Path) -> None:
    path = write_archive(
        tmp_path / "net.pt2", Experts(4, 2).bfloat16(), torch.zeros(10, TERMS).bfloat16()
    )
    text = load_model(ModelSpec(str(path))).module.script()
    assert text.count("R.call_tir(cls.groups_of_rows") == 1
    assert text.count("R.call_tir(cls.grouped_product") == 2


def test_an_import_is_compared_where_pytorch_says_what_rows_are(tmp_path: Path) -> None:
    path = export(tmp_path / "net.pt2", Grouped(turned=True))
    model = load_model(ModelSpec(str(path), dims=(("x_0", (3, 10)),)))
    ends = tmp_path / "ends.npy"
    np.save(ends, np.array([1, 1, 2], np.int32))
    said = check_import(model, LLVM, (("ends", ends),), Limits(seconds=60, bytes_free=1 << 30))
    assert said.state == "passed", said


class Unknown(nn.Module):
    def __init__(self, compute: Any) -> None:
        super().__init__()
        self._compute = compute

    def forward(self, *tensors: Any) -> Any:
        return self._compute(*tensors)


def test_weights_for_each_group_of_terms_are_refused(tmp_path: Path) -> None:
    ends = torch.tensor([4, 8], dtype=torch.int32)
    args = torch.zeros(16, 8).bfloat16(), torch.zeros(8, 16).bfloat16(), ends
    network = Unknown(lambda x, y, offs: nn.functional.grouped_mm(x, y, offs=offs))
    said = refusal(write_archive(tmp_path / "net.pt2", network, *args))
    assert "_grouped_mm" in said
    assert "operands of 2 and 2 dimensions are not supported" in said


@pytest.mark.parametrize(
    ("bins", "low", "high"), [(4, 0, 3), (5, -1, 1), (3, 0.5, 2), (1, 0, 9), (100, -4, 4)]
)
def test_elements_are_counted_in_bins(tmp_path: Path, bins: int, low: float, high: float) -> None:
    network = Unknown(lambda x: torch.histc(x, bins=bins, min=low, max=high))
    path = write_archive(tmp_path / "net.pt2", network, torch.zeros(3, 40))
    executable = compile_module(lower(load_model(ModelSpec(str(path))).module, LLVM), LLVM)
    values = np.random.default_rng(0).integers(-8, 8, (3, 40)).astype(np.float32) / 2
    values[0, :3] = np.nan, np.inf, -np.inf
    (found,) = run_once(executable, [values])
    assert found.tolist() == network(torch.from_numpy(values)).tolist()


def test_a_range_that_is_that_of_the_elements_is_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "net.pt2", Unknown(torch.histc), torch.zeros(40))
    assert "a range that is that of the elements is not supported" in refusal(path)
