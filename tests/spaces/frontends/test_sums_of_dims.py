"""Dimensions that are sums of open ones: a mask over past and new rows, as language models have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.codegen.executable import compile_module
from spaces.deploy.apply_kernel_sets import apply_sets
from spaces.design_space.task_space import TaskSpace
from spaces.frontends.model import Model, load_model
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    TARGET,
    Array,
    Feeds,
    by_onnxruntime,
    compare,
    parsed,
)
from tests.spaces.frontends.onnx.language_models import llama, step
from tuner.candidate import Draft
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet
from tuner.errors import TunerError, UsageError
from tuner.request.model_spec import IntRange, ModelSpec

pytestmark = pytest.mark.tvm

SIZES = ((5, 0), (1, 0), (1, 1), (1, 9), (4, 7), (9, 1))
"""New rows and past ones: prefill, decoding, and several rows after others."""
DIMS = (("b", (1,)), ("p", (0, 1, 8)), ("s", (1, 2, 8)))


def with_total(proto: Any, total: str) -> Any:
    """The model whose dimension `t` is called otherwise."""
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "t":
                dim.dim_param = total
    return proto


def language_model(total: str) -> Any:
    return with_total(llama(1), total)


def plain_attention() -> Any:
    """Attention of single operators, with past keys beside new ones; past rows are in no other
    shape than that of the mask."""
    proto = parsed(
        """<ir_version: 10, opset_import: ["": 21]> g
        (float[2,s,8] x, float[t] mask, float[2,t,8] keys) => (float y, float more) {
            columns = Transpose<perm = [0, 2, 1]>(keys) scores = MatMul(x, columns)
            masked = Add(scores, mask) shares = Softmax(masked) y = MatMul(shares, keys)
            more = Concat<axis = 1>(keys, x) }"""
    )
    return with_total(proto, "p + s")


def load(proto: Any, folder: Path, **said: Any) -> Model:
    onnx.save(proto, folder / "model.onnx")
    return load_model(ModelSpec(str(folder / "model.onnx"), **said))


def outputs(module: Any, feeds: Feeds) -> list[Array]:
    import tvm

    library = compile_module(module, TARGET).library
    found = tvm.relax.VirtualMachine(library, tvm.cpu())["main"](
        *map(tvm.runtime.tensor, feeds.values())
    )
    return [each.numpy() for each in found]


def with_kernels(module: Any, model: Model) -> Any:
    """A lowered model with a drawn kernel behind each of its programs that takes one."""
    sets = {}
    for task in extract(module, TARGET, shapes=model.shapes):
        for number in range(20):
            with contextlib.suppress(InvalidCandidate):
                point = TaskSpace(task).realize_draft(Draft(task.key, number, number))
                kernels = KernelSet((point.candidate,), Leaf(0), (1.0,), 1.0, (), None, 0)
                sets[task.name] = (task, kernels)
                break
    assert len(sets) > 3
    return apply_sets(module, sets)


def assert_close(found: list[Array], wanted: Any) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, atol=1e-4 * max(1.0, np.abs(want).max(initial=0)))


def test_a_mask_over_past_and_new_rows_is_taken_at_any_pair() -> None:
    proto = language_model("p + s")
    compare(proto, *(step(proto, *sizes) for sizes in SIZES), within=1e-3)


@pytest.mark.parametrize("total", ["p + s", "s+p"])
def test_the_sum_is_a_dimension_in_any_order(total: str, tmp_path: Path) -> None:
    model = load(language_model(total), tmp_path, dims=DIMS)
    mask = next(spec for spec in model.inputs if spec.name == "mask")
    assert mask.shape == (1, 16)
    assert mask.at({"b": 3, "p": 0, "s": 5}).shape == (3, 5)


def test_a_free_name_is_tied_to_others(tmp_path: Path) -> None:
    proto = language_model("total")
    model = load(proto, tmp_path, dims=DIMS, ties=(("total", "p + s"),))
    module = lower(model.module, TARGET)
    for sizes in SIZES[:4]:
        feeds = step(proto, *sizes)
        assert_close(outputs(module, feeds), by_onnxruntime(proto, feeds))


def test_a_sum_whose_terms_are_in_no_other_shape_is_solved() -> None:
    rng = np.random.default_rng(0)

    def fed(rows: int, past: int) -> Iterator[Array]:
        for shape in ((2, rows, 8), (past + rows,), (2, past + rows, 8)):
            yield rng.standard_normal(shape).astype("float32")

    names = ("x", "mask", "keys")
    compare(plain_attention(), *(dict(zip(names, fed(*s), strict=True)) for s in SIZES))


def test_a_wrong_sum_is_refused_in_one_line() -> None:
    proto = language_model("p + s")
    model = compare(proto, step(proto, 3, 4), within=1e-3)
    feeds = step(proto, 3, 4)
    feeds["mask"] = feeds["mask"][:, 1:]
    with pytest.raises(RuntimeError, match="mask") as caught:
        outputs(model, feeds)
    assert "\n" not in str(caught.value).strip()


def test_one_of_the_terms_may_be_closed(tmp_path: Path) -> None:
    proto = plain_attention()
    model = load(proto, tmp_path, shapes=(("x", (2, 1, 8)),), dims=(("p", (0, 3)),))
    assert [spec.dims for spec in model.inputs] == [(), ("p_x1_p1",), (2, "p_x1_p1", 8)]
    feeds = {
        "x": np.ones((2, 1, 8), "float32"),
        "mask": np.arange(7, dtype="float32"),
        "keys": np.linspace(0, 1, 112, dtype="float32").reshape(2, 7, 8),
    }
    assert_close(outputs(lower(model.module, TARGET), feeds), by_onnxruntime(proto, feeds))


def test_sizes_of_nothing_are_no_sizes_to_measure(tmp_path: Path) -> None:
    model = load(language_model("p + s"), tmp_path, dims=DIMS)
    assert {dict(instance)["p"] for instance, _ in model.shapes} == {0, 1, 8}
    tasks = extract(lower(model.module, TARGET), TARGET, shapes=model.shapes)
    sizes = [size for task in tasks for shape, _ in task.shapes for _, size in shape]
    assert min(sizes) == 1


@pytest.mark.slow
def test_kernels_serve_sums_that_nobody_declared(tmp_path: Path) -> None:
    proto = language_model("p + s")
    model = load(proto, tmp_path, dims=DIMS)
    tuned = with_kernels(lower(model.module, TARGET), model)
    for sizes in SIZES:
        feeds = step(proto, *sizes)
        assert_close(outputs(tuned, feeds), by_onnxruntime(proto, feeds))


def test_masks_whose_sums_are_lengths_are_drawn_full(tmp_path: Path) -> None:
    model = load(language_model("p + s"), tmp_path, dims=DIMS)
    assert {spec.name: spec.drawn for spec in model.inputs if spec.drawn} == {
        "mask": IntRange(1, 1)
    }


@pytest.mark.parametrize(
    ("ties", "said"),
    [
        ((("total", "p + q"),), "--dim total=p + q: no such dimension as q; the model has b, s, t"),
        ((("all", "p + s"),), "--dim all=p + s: no such dimension as all"),
        ((("total", "p * s"),), "--dim total=p * s: no such dimension as p * s"),
        ((("total", "p + s"), ("p", "s")), "--dim total=p + s: p follows from others, too"),
    ],
)
def test_a_tie_that_cannot_be_is_refused(
    ties: tuple[tuple[str, str], ...], said: str, tmp_path: Path
) -> None:
    with pytest.raises(TunerError) as caught:
        load(language_model("total"), tmp_path, dims=DIMS[:1], ties=ties)
    assert said in str(caught.value)


def test_a_tie_is_an_expression() -> None:
    with pytest.raises(UsageError, match="all=past"):
        ModelSpec("m.onnx", ties=(("total", " "),))
    with pytest.raises(UsageError, match="sizes above 0"):
        ModelSpec("m.onnx", dims=(("p", (0,)),))
    with pytest.raises(UsageError, match="given twice"):
        ModelSpec("m.onnx", dims=(("p", (1,)),), ties=(("p", "s"),))


@pytest.mark.slow
def test_an_archive_of_pytorch_has_sums(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Cached(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(16, 48)

        def forward(self, x: Any, mask: Any, past_k: Any, past_v: Any) -> Any:
            q, k, v = self.inner(x).split(16, -1)
            k, v = torch.cat([past_k, k], 1), torch.cat([past_v, v], 1)
            shares = (q @ k.transpose(-1, -2) / 4 + mask[:, None]).softmax(-1)
            return shares @ v, k, v

    def fed(rows: int, past: int) -> tuple[Any, ...]:
        pasts = [torch.randn(2, past, 16) for _ in range(2)]
        return (torch.randn(2, rows, 16), torch.randn(2, past + rows), *pasts)

    torch.manual_seed(0)
    network, open_ = Cached().eval(), {1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(network, fed(3, 5), dynamic_shapes=(open_,) * 4)
    torch.export.save(program, tmp_path / "cached.pt2")
    dims = (("past_k_1", (0, 5)), ("x_1", (1, 3)))
    model = load_model(ModelSpec(str(tmp_path / "cached.pt2"), dims=dims))
    assert model.inputs[1].dims == (2, "past_k_1_plus_x_1")
    module = lower(model.module, TARGET)
    tuned = with_kernels(module, model)
    for sizes in SIZES:
        given = fed(*sizes)
        with torch.no_grad():
            wanted = [each.numpy() for each in network(*given)]
        feeds = {str(n): each.numpy() for n, each in enumerate(given)}
        assert_close(outputs(module, feeds), wanted)
        assert_close(outputs(tuned, feeds), wanted)
