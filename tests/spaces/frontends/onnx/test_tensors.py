"""The tensors of a model, wherever they stand: read, made dense, part of its hash and its copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from spaces.frontends.model import Model, load_model
from spaces.frontends.model_copy import load_model_copy, save_model_copy
from spaces.frontends.onnx.model import read_onnx_proto
from spaces.frontends.onnx.tensors import tensors_of
from spaces.ir import tvm_compat
from tests.spaces.frontends.onnx.beside_onnxruntime import Array, compare, parsed, refusal
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm
HEADER = '<ir_version: 10, opset_import: ["": 17, "own": 1]>'
DATA = "data.bin"


def graph(nodes: str, **weights: Array) -> Any:
    return parsed(f"{HEADER} g (float[3] x) => (float[3] y) {{ {nodes} }}", **weights)


def initializer() -> Any:
    return graph("y = Add(x, w)", w=values())


def attribute() -> Any:
    return graph("w = Constant<value = float[3] {1, 2, 3}>() y = Add(x, w)")


def branch(inside: str) -> Any:
    nodes = f"y = If(c) <then_branch = t () => (float[3] p) {{ {inside} }}, "
    nodes += "else_branch = e () => (float[3] q) { q = Neg(x) }>"
    return graph(nodes, c=np.array(True))


def branch_attribute() -> Any:
    return branch("v = Constant<value = float[3] {1, 2, 3}>() p = Add(x, v)")


def branch_initializer() -> Any:
    proto = branch("p = Add(x, v)")
    body = next(a.g for a in proto.graph.node[0].attribute if a.name == "then_branch")
    body.initializer.append(numpy_helper.from_array(values(), "v"))
    return proto


def own_function() -> Any:
    return onnx.parser.parse_model(
        f"""{HEADER} g (float[3] x) => (float[3] y) {{ y = own.f(x) }}
        <domain: "own", opset_import: ["": 17]>
        f (a) => (b) {{ w = Constant<value = float[3] {{1, 2, 3}}>() b = Add(a, w) }}"""
    )


def sparse(shape: tuple[int, ...] = (3,), indices: Any = (0, 2), count: int = 2) -> Any:
    held = numpy_helper.from_array(values()[:count], "w")
    places = numpy_helper.from_array(np.array(indices, "int64"), "places")
    return helper.make_sparse_tensor(held, places, list(shape))


def sparse_initializer() -> Any:
    proto = graph("y = Add(x, w)")
    proto.graph.sparse_initializer.append(sparse())
    return proto


def sparse_attribute() -> Any:
    proto = graph("y = Add(x, w)")
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse()))
    return proto


def values() -> Array:
    return np.array([1, 2, 3], "float32")


def floats(proto: Any) -> Iterator[Any]:
    return (t for t in tensors_of(proto) if t.data_type == TensorProto.FLOAT)


def outside(proto: Any, path: Path, place: str = DATA) -> Path:
    """A file of a model whose floats are in another one, next to it."""
    data = b""
    for tensor in floats(proto):
        array = numpy_helper.to_array(tensor)
        for field in ("float_data", "raw_data"):
            tensor.ClearField(field)
        tensor.data_location = TensorProto.EXTERNAL
        about = {"location": place, "offset": len(data), "length": array.nbytes}
        for key, value in about.items():
            tensor.external_data.add(key=key, value=str(value))
        data += array.tobytes()
    assert data
    path.parent.mkdir(exist_ok=True)
    (path.parent / DATA).write_bytes(data)
    path.write_bytes(proto.SerializeToString())
    return path


def load(path: Path) -> Model:
    return load_model(ModelSpec(str(path)))


def refused(path: Path) -> str:
    with pytest.raises(TunerError) as caught:
        load(path)
    said = str(caught.value)
    assert "\n" not in said
    return said


PLACES = pytest.mark.parametrize(
    "make",
    [
        initializer,
        attribute,
        branch_initializer,
        branch_attribute,
        own_function,
        sparse_initializer,
        sparse_attribute,
    ],
)


@PLACES
def test_data_in_another_file_count_in_the_hash(make: Callable[[], Any], tmp_path: Path) -> None:
    path = outside(make(), tmp_path / "net.onnx")
    before = load(path).content_hash
    assert load(path).content_hash == before
    data = bytearray((tmp_path / DATA).read_bytes())
    data[0] ^= 1
    (tmp_path / DATA).write_bytes(data)
    assert load(path).content_hash != before


@PLACES
def test_data_in_another_file_are_in_the_copy(make: Callable[[], Any], tmp_path: Path) -> None:
    from tvm_ffi import structural_equal

    path = outside(make(), tmp_path / "net" / "net.onnx")
    model = load(path)
    save_model_copy(model, tmp_path / "copy")
    (path.parent / DATA).unlink()
    again = load_model_copy(tmp_path / "copy")
    assert structural_equal(again.module, model.module)


def test_a_copy_of_a_file_with_others_beside_it_keeps_all_tensors(tmp_path: Path) -> None:
    from tvm_ffi import structural_equal

    proto = graph("v = Constant() u = Mul(v, w) y = Add(x, u)", w=np.ones((1024, 3), "float32"))
    large = numpy_helper.from_array(np.full((1024, 3), 3, "float32"))
    proto.graph.node[0].attribute.append(helper.make_attribute("value", large))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [1024, 3]))
    model = load(outside(proto, tmp_path / "net.onnx"))
    save_model_copy(model, tmp_path / "copy")
    assert (tmp_path / "copy" / "model.onnx").stat().st_size < 4000
    assert structural_equal(load_model_copy(tmp_path / "copy").module, model.module)


@PLACES
def test_a_model_in_memory_has_all_its_data(make: Callable[[], Any], tmp_path: Path) -> None:
    proto = make()
    compare(proto, {"x": np.ones(3, "float32")})
    other = make()
    tensor = next(floats(other))
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 2, tensor.name))
    digests = [read_onnx_proto(one, "net").file.digest() for one in (proto, other)]
    assert digests[0] != digests[1]
    outside(proto, tmp_path / "net.onnx")
    with pytest.raises(TunerError, match="its weights are in other files"):
        read_onnx_proto(proto, "net")


@pytest.mark.parametrize(
    ("shape", "indices", "count"),
    [((3, 4), [0, 5], 2), ((3, 4), [[0, 1], [2, 3]], 2), ((2, 2), [], 0), ((2, 3), [5], 1)],
)
def test_a_sparse_tensor_is_what_its_indices_say(
    shape: tuple[int, ...], indices: Any, count: int
) -> None:
    proto = parsed(
        f"{HEADER} g (float[1] x) => (float[N,M] y) {{ y = Add(x, w) }}",
    )
    proto.graph.sparse_initializer.append(sparse(shape, indices, count))
    want = np.zeros(shape, "float32")
    for place, value in zip(indices, values(), strict=False):
        want[tuple(place) if isinstance(place, list) else np.unravel_index(place, shape)] = value
    compare(proto, {"x": np.zeros(1, "float32")}, peer=lambda *_: [want])


@pytest.mark.parametrize(
    ("shape", "indices", "why"),
    [
        ((3,), [0, 3], "out of range"),
        ((3,), [-1, 0], "out of range"),
        ((3, 3), [[0, 0], [0, 3]], "out of range"),
        ((3,), [1, 1], "twice"),
        ((3,), [0], "one index for each value"),
        ((1 << 40,), [0, 1], "more than 2 GB"),
    ],
)
def test_a_sparse_tensor_that_is_none_is_refused(
    shape: tuple[int, ...], indices: Any, why: str
) -> None:
    proto = graph("y = Add(x, w)")
    proto.graph.sparse_initializer.append(sparse(shape, indices))
    said = refusal(proto)
    assert "sparse tensor w" in said
    assert why in said


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/etc/hostname", "no path inside"),
        ("../data.bin", "no path inside"),
        ("a/../../data.bin", "no path inside"),
        ("", "no path inside"),
        ("link", "leads out of the model's folder"),
        ("linked/data.bin", "leads out of the model's folder"),
        ("nothing.bin", "no file beside the model"),
        (".", "no file beside the model"),
        ("pointer", "git lfs pull"),
        ("short", "ends before its data do"),
    ],
)
def test_data_stay_inside_the_folder_of_the_model(place: str, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / DATA).write_bytes(values().tobytes())
    (folder / "link").symlink_to(tmp_path / DATA)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "pointer").write_text("version https://git-lfs.github.com/spec/v1\noid 0\n")
    (folder / "short").write_bytes(b"1234")
    said = refused(outside(attribute(), folder / "net.onnx", place))
    assert "net.onnx" in said
    assert why in said


def test_data_may_be_in_a_folder_below_or_a_link_to_one(tmp_path: Path) -> None:
    path = outside(initializer(), tmp_path / "net.onnx", "below/link")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "link").symlink_to(tmp_path / DATA)
    load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.dims.append(1 << 40),
        lambda tensor: tensor.dims.append(-1),
        lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-1]),
        lambda tensor: setattr(tensor, "data_type", 99),
    ],
)
def test_a_damaged_tensor_is_named(change: Callable[[Any], Any], tmp_path: Path) -> None:
    proto = branch_initializer()
    change(next(floats(proto)))
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert "net.onnx is damaged: tensor v of 3" in refused(tmp_path / "net.onnx")
    assert "tensor v of 3" in refusal(proto)


def test_what_is_no_model_is_called_what_it_is(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 102400\n"
    for name in ("net.onnx", "net.pt2"):
        (tmp_path / name).write_text(pointer)
        assert "is a pointer of Git LFS" in refused(tmp_path / name)
    for name in ("folder", "folder.onnx", "folder.pt2"):
        (tmp_path / name).mkdir()
        assert f"{name} is a folder" in refused(tmp_path / name)


@pytest.mark.parametrize("version", [0, 3, 99])
def test_a_graph_needs_no_name_and_no_version_of_its_format(version: int, tmp_path: Path) -> None:
    proto = initializer()
    proto.graph.ClearField("name")
    proto.ir_version = version
    compare(proto, {"x": values()}, peer=lambda _, feeds: [feeds["x"] + values()])
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    load(tmp_path / "net.onnx")


def test_inputs_whose_names_differ_in_a_sign_are_two() -> None:
    proto = parsed(
        f"{HEADER} g (float[2] x, float[2] z) => (float[2] y) {{ y = Sub(x, z) }}",
    )
    proto.graph.input[0].name, proto.graph.input[1].name = "a.b", "a-b"
    proto.graph.node[0].input[:] = ["a.b", "a-b"]
    feeds = {"a.b": np.array([3, 4], "float32"), "a-b": np.array([1, 1], "float32")}
    module = compare(proto, feeds)
    names = [tvm_compat.variable_name(param) for param in module["main"].params]
    assert names == ["a_b", "a_b_"]


def test_dimensions_whose_names_differ_in_a_sign_are_two() -> None:
    proto = parsed(
        f"{HEADER} g (float[N] x, float[M] z) => (float[K] y) {{ y = Concat<axis=0>(x, z) }}"
    )
    for value, name in zip(proto.graph.input, ("n-x", "n.x"), strict=True):
        value.type.tensor_type.shape.dim[0].dim_param = name
    compare(proto, {"x": np.ones(3, "float32"), "z": np.zeros(5, "float32")})
