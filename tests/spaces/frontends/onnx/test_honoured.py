"""TVM's converters get nothing that they do not honour, and the table says what that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.defs import OpSchema

from spaces.frontends.onnx.converters.registry import CONVERTERS
from spaces.frontends.onnx.honoured.check import HONOURED, NEWEST
from spaces.frontends.onnx.honoured.rows import MOVED, REFUSED_TYPES, Row
from spaces.ir import tvm_compat
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    by_reference,
    compare,
    parsed,
    refusal,
)

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
OF_NO_TENSORS = ("seq(", "optional(", "map(", "sparse_tensor(")


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def schemas() -> dict[str, list[OpSchema]]:
    """Each version of ONNX's own operators, by name."""
    found: dict[str, list[OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, []).append(schema)
    return found


def unmentioned(row: Row, schema: OpSchema) -> Iterator[str]:
    """What a version of an operator has that its row says nothing of."""
    yield from (f"attribute {name}" for name in schema.attributes if name not in row.attributes)
    variadic = bool(schema.inputs) and is_variadic(schema.inputs[-1])
    if len(schema.inputs) > len(row.operands) and not (variadic and row.operands):
        yield f"{len(schema.inputs)} operands"
    if len(schema.outputs) > row.gives[1] and not is_variadic(schema.outputs[-1]):
        yield f"{len(schema.outputs)} outputs"
    for formal in schema.inputs:
        yield from (f"{formal.name} of {name}" for name in types_of(formal) - MOVED - REFUSED_TYPES)


def is_variadic(formal: Any) -> bool:
    return bool(formal.option == OpSchema.FormalParameterOption.Variadic)


def types_of(formal: Any) -> set[str]:
    """Numpy's names of the types of elements that an operand may have."""
    tensors = (name for name in formal.types if not name.startswith(OF_NO_TENSORS))
    names = (name.removeprefix("tensor(").removesuffix(")") for name in tensors)
    return {numpy_name(name) for name in names}


def numpy_name(name: str) -> str:
    number = getattr(onnx.TensorProto, name.upper())
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))


def test_every_operator_of_tvm_has_a_row_or_a_converter_here() -> None:
    known = tvm_compat.list_onnx_operators() & schemas().keys() - {"Attention"}
    assert known - HONOURED.keys() - CONVERTERS.keys() == set()
    assert HONOURED.keys() - known == set()


@pytest.mark.parametrize("operator", sorted(HONOURED))
def test_a_row_mentions_all_that_any_version_has(operator: str) -> None:
    row = HONOURED[operator]
    versions = [s for s in schemas()[operator] if s.since_version >= row.since and not s.deprecated]
    found = {s.since_version: [*unmentioned(row, s)] for s in versions}
    assert {version: names for version, names in found.items() if names} == {}
    older = [s for s in schemas()[operator] if s.since_version <= row.since]
    assert older or min(s.since_version for s in schemas()[operator]) > row.since
    assert len(row.operands) <= max(len(s.inputs) for s in schemas()[operator])
    assert {n for n in row.attributes if not any(n in s.attributes for s in versions)} <= NO_MORE


NO_MORE = {"consumed_inputs"}
"""Attributes that rows of a kind have, of which some operators never had them."""


def test_the_table_was_written_for_the_newest_operators() -> None:
    """Read the converters of those that changed before you raise the number."""
    assert onnx.defs.onnx_opset_version() == NEWEST


def node(call: str, opset: int = 23, given: str = "float[2,3,4] x", **weights: Array) -> Any:
    """A model of one call."""
    more = ', "com.foo" : 1, "com.microsoft" : 1, "ai.onnx.ml" : 3'
    return parsed(
        f'<ir_version: 8, opset_import: ["" : {opset}{more}]> g ({given}) => (float y) '
        f"{{ {call if '=' in call.partition('(')[0].partition('<')[0] else f'y = {call}'} }}",
        **weights,
    )


@pytest.mark.parametrize(
    ("call", "opset", "why"),
    [
        ("ConvTranspose<output_shape = [7]>(x, t)", 11, "its output_shape [7] is larger than"),
        ("Gelu(x)", 17, "it is not taken in opset 17"),
        ("Scatter(x, i, x)", 11, ""),
        ("Elu<beta = 1.0>(x)", 22, "its attribute beta is not known in opset 22"),
        ("Mean<axes = [1]>(x)", 13, "its attribute axes is not known in opset 13"),
        ("BatchNormalization<training_mode = 1>(x, c, c, c, c)", 15, "its training_mode is 1"),
        ("BatchNormalization(x, c, c, c, c)", 6, "its is_test is 0"),
        ("Dropout(x, half, true)", 13, "it draws at random, as in training"),
        ("Dropout(x)", 6, "it draws at random, as in training"),
        ("z, y = BatchNormalization(x, c, c, c, c)", 15, "its output running_mean is not"),
        ("Add(x, x, x)", 13, "its input 2 is not taken"),
        ("Not(i)", 13, "its input X is not taken in int32"),
        ("Add(x, i)", 13, "its input B is int32, and not float32"),
        ("Mod<fmod = -3>(x, x)", 13, "its fmod is -3, which is neither 0 nor 1"),
        ("ReduceSum<keepdims = -2>(x)", 13, "its keepdims is -2"),
        ("Slice(x, v, v, one)", 13, "its operands say ends of unlike numbers of axes"),
        ("GroupNormalization<num_groups = 1>(x, c, short)", 21, "has 2 elements too few"),
        ("CenterCropPad(x, one)", 18, "1 sizes are none for 3 axes"),
        ("SequenceLength(x)", 11, "is no sequence that is known"),
        ("com.foo.Add(x, x)", 17, "does not know operator com.foo.Add"),
        ("ai.onnx.ml.Relu(x)", 17, "does not know operator ai.onnx.ml.Relu"),
        ("com.microsoft.Unique(x)", 17, "does not know operator com.microsoft.Unique"),
    ],
)
def test_what_is_not_honoured_is_refused_in_a_line(call: str, opset: int, why: str) -> None:
    given = "float[2,3,4] x, float[2,3] r, int64[5] v, "
    given += "int32[2,3] i"
    proto = node(
        call, opset, given,
        c=floats(3), l=floats(4), t=floats(3, 1, 2),
        half=np.array(0.5, "float32"), true=np.array(True), one=np.array([2]), short=floats(1),
    )  # fmt: skip
    said = refusal(proto)
    name = call.partition("(")[0].partition("<")[0].split("= ")[-1]
    assert f"operator {name} " in said
    assert why in said


@pytest.mark.parametrize(
    ("call", "opset", "given"),
    [
        ("Elu<consumed_inputs = [0]>(x)", 1, "float[2,3,4] x"),
        ("ConvTranspose<output_shape = [5]>(x, t)", 11, "float[2,3,4] x"),
        ("Dropout<seed = 3>(x, zero, true)", 13, "float[2,3,4] x"),
        ("y, unused = Dropout(x)", 7, "float[2,3,4] x"),
        ("Dropout(x, half)", 13, "float[2,3,4] x"),
        ("MaxPool<kernel_shape = [2], storage_order = 1>(x)", 12, "float[2,3,4] x"),
        ('Conv<auto_pad = "NOTSET", pads = [1, 0]>(x, w)', 11, "float[2,3,4] x"),
        ("Shrink<bias = 1.0, lambd = 1.5>(x)", 9, "float[2,3,4] x"),
        ("LayerNormalization(x, l)", 17, "float[2,3,4] x"),
        ("ReduceSum<noop_with_empty_axes = 1>(x)", 13, "float[2,3,4] x"),
        ("Split<axis = 2, num_outputs = 1>(x)", 18, "float[2,3,4] x"),
    ],
)
def test_what_is_honoured_is_taken(call: str, opset: int, given: str) -> None:
    """Defaults of the version that a node is written in among it."""
    proto = node(
        call, opset, given,
        l=floats(4), w=floats(2, 3, 2), t=floats(3, 1, 2), half=np.array(0.5, "float32"),
        zero=np.array(0, "float32"), true=np.array(True),
    )  # fmt: skip
    used = {name for one in proto.graph.node for name in one.input}
    unused = [t for t in proto.graph.initializer if t.name not in used]
    for tensor in unused:
        proto.graph.initializer.remove(tensor)
    compare(proto, {"x": floats(2, 3, 4)}, peer=by_reference, within=1e-6)


def test_a_default_is_that_of_the_version() -> None:
    said = node("Selu<alpha = 1.6732, gamma = 1.0507>(x)", 6)
    compare(node("Selu(x)", 1), {"x": floats(2, 3, 4)}, peer=lambda _, fed: by_reference(said, fed))


def test_slopes_and_sums_of_old_versions_are_aligned_at_the_end() -> None:
    proto = node("Add<axis = 1, broadcast = 1>(x, r)", 6, "float[2,3,4] x, float[3,4] r")
    x, r = floats(2, 3, 4), floats(3, 4)
    compare(proto, {"x": x, "r": r}, peer=lambda *_: [x + r])


def test_slopes_and_sums_of_old_versions_begin_at_an_axis() -> None:
    """They are ours: TVM's converters would align them at the end."""
    x, r, c = floats(2, 3, 4), floats(2, 3), floats(3)
    proto = node("Add<axis = 0, broadcast = 1>(x, r)", 6, "float[2,3,4] x, float[2,3] r")
    compare(proto, {"x": x, "r": r}, peer=lambda *_: [x + r[:, :, None]])
    wanted = np.where(x < 0, x * c[:, None], x)
    compare(node("PRelu(x, c)", 6, c=c), {"x": x}, peer=lambda *_: [wanted])
