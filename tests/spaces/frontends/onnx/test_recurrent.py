"""`LSTM`, `GRU` and `RNN`, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from spaces.lowering.extract_tasks import extract
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    compare,
    lowered,
    number_of_programs,
    refusal,
)

pytestmark = pytest.mark.tvm

FLOAT = onnx.TensorProto.FLOAT
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
IN, WIDTH = 3, 4
OPERANDS = ["x", "w", "r", "b", "lengths", "h", "c", "p"]


def network(
    kind: str,
    *,
    steps: int | str = 3,
    batch: int | str = "batch",
    given: str = "",
    wanted: tuple[str, ...] = ("y", "y_h", "y_c"),
    lengths: Array | None = None,
    **said: Any,
) -> Any:
    """Weights are constants; states that are `given` are inputs.

    Args:
        given: letters of the operands that are there: b, h, c and p.
    """
    rng = np.random.default_rng(0)
    ways = 2 if said.get("direction") == "bidirectional" else 1
    gates = GATES[kind] * WIDTH
    shapes = {
        "w": (ways, gates, IN),
        "r": (ways, gates, WIDTH),
        "b": (ways, 2 * gates),
        "p": (ways, 3 * WIDTH),
    }
    held = {
        name: rng.standard_normal(shape).astype("float32")
        for name, shape in shapes.items()
        if name in f"wr{given}"
    }
    if lengths is not None:
        held["lengths"] = lengths.astype("int32")
    turned = said.get("layout", 0)
    dims: dict[str, list[int | str]] = {"x": [batch, steps, IN] if turned else [steps, batch, IN]}
    for name in "hc":
        if name in given:
            dims[name] = [batch, ways, WIDTH] if turned else [ways, batch, WIDTH]
    operands = [name if name in dims or name in held else "" for name in OPERANDS]
    operands = operands if kind == "LSTM" else operands[:6]
    outputs = list(wanted if kind == "LSTM" else wanted[:2])
    node = onnx.helper.make_node(kind, operands, outputs, name="cell", hidden_size=WIDTH, **said)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [info(name, FLOAT, shape) for name, shape in dims.items()],
        [info(name, FLOAT, None) for name in outputs if name],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds_of(proto: Any, batch: int, time: int = 0) -> dict[str, Array]:
    rng, sizes = np.random.default_rng(batch), {"batch": batch, "time": time}
    return {
        value.name: rng.standard_normal(
            [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        ).astype("float32")
        for value in proto.graph.input
    }


def check(kind: str, **options: Any) -> None:
    proto = network(kind, **options)
    compare(proto, *(feeds_of(proto, batch) for batch in (1, 5)))


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    ("direction", "given", "steps"),
    [("forward", "bhc", 4), ("reverse", "", 3), ("bidirectional", "bhc", 2), ("forward", "b", 1)],
)
def test_a_network_goes_through_its_sequence(
    kind: str, direction: str, given: str, steps: int
) -> None:
    given = given if kind == "LSTM" else given.replace("c", "")
    check(kind, direction=direction, given=given, steps=steps)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("LSTM", {"given": "bhcp"}),
        ("LSTM", {"given": "bp", "direction": "bidirectional", "steps": 2}),
        ("LSTM", {"given": "b", "input_forget": 1}),
        ("LSTM", {"given": "b", "clip": 0.4}),
        ("GRU", {"given": "b", "clip": 0.4, "direction": "reverse"}),
        ("GRU", {"given": "bh", "linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 1, "direction": "bidirectional", "steps": 2}),
        ("RNN", {"given": "b", "clip": 0.4}),
        ("LSTM", {"given": "b", "wanted": ("", "", "y_c")}),
        ("LSTM", {"wanted": ("", "y_h", "")}),
        ("GRU", {"wanted": ("y",)}),
        ("RNN", {"lengths": np.array([3, 3]), "batch": 2}),
    ],
)
def test_a_network_keeps_to_what_is_said(kind: str, said: dict[str, Any]) -> None:
    if "lengths" in said:
        proto = network(kind, **said)
        compare(proto, feeds_of(proto, 2))
    else:
        check(kind, **said)


@pytest.mark.parametrize("kind", GATES)
def test_a_batch_may_come_first(kind: str) -> None:
    """onnxruntime has no such layout."""
    given = "bhc" if kind == "LSTM" else "bh"
    said: dict[str, Any] = {"given": given, "direction": "bidirectional", "steps": 2}
    plain, turned = network(kind, **said), network(kind, layout=1, **said)

    def peer(_: Any, feeds: Any) -> list[Array]:
        from tests.spaces.frontends.onnx.beside_onnxruntime import by_onnxruntime

        y, *states = by_onnxruntime(plain, {n: a.swapaxes(0, 1) for n, a in feeds.items()})
        return [y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in states)]

    compare(turned, feeds_of(turned, 3), peer=peer)


@pytest.mark.parametrize(
    ("names", "alphas", "betas"),
    [
        (["Relu", "Softsign"], [], []),
        (["HardSigmoid", "ScaledTanh"], [0.3, 1.5], [0.4, 0.7]),
        (["HardSigmoid", "Affine"], [0.3, 0.5], [0.4, 0.1]),
        (["LeakyRelu", "Elu"], [0.2, 0.6], []),
        (["ThresholdedRelu", "Softplus"], [0.3], []),
    ],
)
def test_a_network_may_have_other_activations(
    names: list[str], alphas: list[float], betas: list[float]
) -> None:
    numbers = {"activation_alpha": alphas, "activation_beta": betas}
    said = {name: listed for name, listed in numbers.items() if listed}
    check("GRU", activations=names, given="bh", steps=2, **said)


@pytest.mark.parametrize("kind", GATES)
def test_steps_share_their_programs(kind: str) -> None:
    """However many there are; a few more put so many pieces together."""
    few, many = (lowered(network(kind, given="b", steps=steps)) for steps in (4, 14))
    assert number_of_programs(few) == number_of_programs(many) < 20


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    "said",
    [
        {"given": "bhc"},
        {"given": "", "direction": "reverse"},
        {"given": "b", "direction": "bidirectional"},
        {"given": "b", "clip": 0.4},
        {"given": "bp", "kinds": ("LSTM",)},
        {"given": "b", "input_forget": 1, "kinds": ("LSTM",)},
        {"given": "bh", "linear_before_reset": 1, "kinds": ("GRU",)},
        {"given": "b", "activations": ["HardSigmoid", "Softplus"], "kinds": ("GRU",)},
    ],
    ids=str,
)
def test_a_sequence_may_be_of_any_length(kind: str, said: dict[str, Any]) -> None:
    if kind not in said.get("kinds", GATES):
        return
    more = {name: value for name, value in said.items() if name != "kinds"}
    more["given"] = more["given"] if kind == "LSTM" else more["given"].replace("c", "")
    proto = network(kind, steps="time", **more)
    compare(proto, *(feeds_of(proto, batch, time) for batch, time in ((1, 1), (3, 2), (2, 37))))


def test_a_long_sequence_is_not_unrolled() -> None:
    proto = network("LSTM", steps=300, given="b")
    assert number_of_programs(compare(proto, feeds_of(proto, 2))) < 10


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Relu", {}),
        ("Softsign", {}),
        ("Affine", {"activation_alpha": [0.5], "activation_beta": [0.1]}),
        ("LeakyRelu", {"activation_alpha": [0.2]}),
        ("ThresholdedRelu", {"activation_alpha": [0.3]}),
        ("ScaledTanh", {"activation_alpha": [1.5], "activation_beta": [0.7]}),
        ("Elu", {"activation_alpha": [0.6]}),
    ],
)
def test_activations_are_the_same_in_a_loop(name: str, said: dict[str, Any]) -> None:
    proto = network("RNN", steps="time", given="b", activations=[name], **said)
    compare(proto, feeds_of(proto, 2, 9))


def test_a_loop_is_no_task() -> None:
    """The product of all inputs is one; what goes through the steps has its schedule with it."""
    from tests.spaces.frontends.onnx.beside_onnxruntime import TARGET

    module = lowered(network("GRU", steps="time", given="b"))
    shapes = tuple(((("batch", 1), ("time", size)), 1.0) for size in (1, 8))
    tasks = [task.name for task in extract(module, TARGET, None, shapes)]
    assert any("matmul" in name for name in tasks)
    assert not any(name.startswith("steps") for name in tasks)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"batch": 2, "lengths": np.array([3, 2])}, "its sequences have lengths that are not"),
        ({"activations": ["Sin"]}, "the importer does not know its activation 'Sin'"),
    ],
)
def test_what_is_not_known_is_refused(said: dict[str, Any], why: str) -> None:
    assert f"cannot import operator RNN (node cell): {why}" in refusal(network("RNN", **said))
