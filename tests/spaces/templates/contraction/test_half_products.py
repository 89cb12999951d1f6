"""Products and convolutions in halves on a CPU without instructions for them: weights stay halves,
sums are of float32."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.prepack import split
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.element_types import numpy_dtype
from spaces.lowering.extract_tasks import extract
from spaces.lowering.relax_rewrite import tir_calls
from spaces.targets.target import resolve_target
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import ContractionTemplate, contraction_templates
from tests.contracts.programs import without_bf16, write_down
from tests.spaces.frontends.onnx.beside_onnxruntime import Array, lowered
from tests.spaces.templates.open_programs import draw_feasible
from tuner.dynamic.shapes import joint
from tuner.task import Task

pytestmark = pytest.mark.tvm

CPU = without_bf16(resolve_target("llvm", cores=2))
RNG = np.random.default_rng(0)
KINDS = ("float16", "bfloat16")
DEPTH, COLUMNS = 72, 53
DENSE = f"m, {DEPTH}"
NETWORKS = {
    "product": (DENSE, "t = MatMul(x, w)", (DEPTH, COLUMNS)),
    "convolution": ("1, 8, 13, 11", "t = Conv<pads = [1, 1, 1, 1]>(x, w)", (24, 8, 3, 3)),
}


@lru_cache
def network(name: str, kind: str) -> tuple[Any, Array]:
    """A file with ReLU after a product, and its weight."""
    shape, call, size = NETWORKS[name]
    weight = (RNG.standard_normal(size) / 8).astype(numpy_dtype(kind))
    text = (
        f'<ir_version: 10, opset_import: ["" : 20]> g ({kind}[{shape}] x) => ({kind} y) '
        f"{{ {call} y = Relu(t) }}"
    )
    proto = onnx.parser.parse_model(text)
    element = onnx.helper.np_dtype_to_tensor_dtype(weight.dtype)
    proto.graph.initializer.append(
        onnx.helper.make_tensor("w", element, size, weight.tobytes(), raw=True)
    )
    return proto, weight


@lru_cache
def task_of(name: str, kind: str) -> tuple[Any, Task]:
    """The lowered network, and the task of its product."""
    module = lowered(network(name, kind)[0], CPU)
    shapes = joint([("m", (1, 5, 32))]) if name == "product" else ()
    tasks = extract(module, CPU, shapes=shapes)
    return module, next(t for t in tasks if contraction_templates(t, match_contraction(t)))


def template_of(task: Task) -> ContractionTemplate:
    template = contraction_templates(task, match_contraction(task))[0]
    assert isinstance(template, ContractionTemplate)
    return template


@pytest.mark.each_value
@pytest.mark.parametrize("inside", [k.IN_STEP, k.IN_CHUNK], ids=["in a step", "in a chunk"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_setting_of_a_product_sums_in_float32(kind: str, inside: int) -> None:
    import tvm

    module, task = task_of("product", kind)
    weight = network("product", kind)[1]
    template = template_of(task)
    for knobs in draw_feasible(template, 3, pack_inside=inside):
        point = write_down(KnobSpace(task, template), knobs)
        kernel = load_kernel(build_artifact(point.schedule.mod, CPU))
        for rows in (1, 4, 37):
            x = RNG.standard_normal((rows, DEPTH)).astype(weight.dtype)
            sums = x.astype("float32") @ weight.astype("float32")
            call = next(c for c in tir_calls(module) if len(c.args[1].fields) == 2)
            given = [x if not hasattr(f, "value") else weight for f in call.args[1].fields]
            found = np.zeros(sums.shape, weight.dtype)
            tensors = [tvm.runtime.tensor(a) for a in (*given, found)]
            kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
            got = tensors[-1].numpy().astype("float32")
            eps = 2.0**-7 if kind == "bfloat16" else 2.0**-10
            np.testing.assert_allclose(got, np.maximum(sums, 0), rtol=eps, atol=1e-4)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_weight_in_halves_stays_in_halves(name: str, kind: str) -> None:
    _, task = task_of(name, kind)
    template = template_of(task)
    (knobs,) = draw_feasible(template, 1)
    found = split(write_down(KnobSpace(task, template), knobs).schedule.mod)
    assert found is not None
    assert {packed.dtype for packed in found.packing.packed} == {kind}
