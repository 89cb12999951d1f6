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
long = pytest.mark.long


def network(
    kind: str,
    *,
    steps: int | str = 3,
    batch: int | str = "batch",
    given: str = "",
    wanted: tuple[str, ...] = ("y", "y_h", "y_c"),
    lengths: Array | None = None,
    fed: bool = False,
    **said: Any,
) -> Any:
    """States that are `given` are inputs.

    Args:
        given: letters of the operands that are there: b, h, c and p.
        fed: whether weights are inputs, too. What only depends on constants is compiled and
            computed ahead, piece by piece, which takes half the time of a test.
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
    dims: dict[str, list[int | str]] = {}
    if fed:
        dims |= {name: [*array.shape] for name, array in held.items()}
        held = {}
    if lengths is not None:
        held["lengths"] = lengths.astype("int32")
    turned = said.get("layout", 0)
    dims["x"] = [batch, steps, IN] if turned else [steps, batch, IN]
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


def say_activations(names: list[str], alphas: list[float], betas: list[float]) -> dict[str, Any]:
    """Attributes of a network in both directions; what has no numbers is left out."""
    numbers = {"activation_alpha": alphas, "activation_beta": betas}
    said: dict[str, Any] = {name: listed for name, listed in numbers.items() if listed}
    return said | {"activations": names, "direction": "bidirectional"}


def check(kind: str, **options: Any) -> None:
    proto = network(kind, **options)
    compare(proto, *(feeds_of(proto, batch) for batch in (1, 5)))


@pytest.mark.parametrize(
    ("kind", "direction", "given", "steps"),
    [
        pytest.param("RNN", "forward", "bh", 4, marks=long),
        pytest.param("GRU", "forward", "bh", 4, marks=long),
        ("LSTM", "forward", "bhc", 4),
        pytest.param("RNN", "reverse", "", 3, marks=long),
        ("GRU", "reverse", "", 3),
        pytest.param("LSTM", "reverse", "", 3, marks=long),
        ("RNN", "bidirectional", "bh", 2),
        pytest.param("GRU", "bidirectional", "bh", 2, marks=long),
        ("LSTM", "bidirectional", "bhc", 2),
        ("RNN", "forward", "b", 1),
        pytest.param("GRU", "forward", "b", 1, marks=long),
        pytest.param("LSTM", "forward", "b", 1, marks=long),
    ],
)
def test_a_network_goes_through_its_sequence(
    kind: str, direction: str, given: str, steps: int
) -> None:
    check(kind, direction=direction, given=given, steps=steps)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param("LSTM", {"given": "bhcp"}, marks=long),
        ("LSTM", {"given": "bp", "direction": "bidirectional", "steps": 2}),
        ("LSTM", {"given": "b", "input_forget": 1}),
        ("LSTM", {"given": "b", "clip": 0.4}),
        ("GRU", {"given": "b", "clip": 0.4, "direction": "reverse"}),
        ("GRU", {"given": "bh", "linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 1, "direction": "bidirectional", "steps": 2}),
        pytest.param("RNN", {"given": "b", "clip": 0.4}, marks=long),
        ("LSTM", {"given": "b", "wanted": ("", "", "y_c")}),
        pytest.param("LSTM", {"wanted": ("", "y_h", "")}, marks=long),
        ("GRU", {"wanted": ("y",)}),
        ("RNN", {"lengths": np.array([3, 3]), "batch": 2}),
    ],
)
def test_a_network_keeps_to_what_is_said(kind: str, said: dict[str, Any]) -> None:
    if "lengths" in said:
        proto = network(kind, **said)
        compare(proto, feeds_of(proto, 2))
    else:
        check(kind, fed=True, **said)


@pytest.mark.parametrize(
    "kind", [pytest.param("RNN", marks=long), pytest.param("GRU", marks=long), "LSTM"]
)
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
        (["Relu", "Softsign", "HardSigmoid", "ScaledTanh"], [0.3, 1.5], [0.4, 0.7]),
        (["HardSigmoid", "Affine", "LeakyRelu", "Elu"], [0.3, 0.5, 0.2, 0.6], [0.4, 0.1]),
        (["ThresholdedRelu", "Softplus", "Sigmoid", "Tanh"], [0.3], []),
    ],
    ids=str,
)
def test_a_network_may_have_other_activations(
    names: list[str], alphas: list[float], betas: list[float]
) -> None:
    """Two for each direction."""
    said = say_activations(names, alphas, betas)
    check("GRU", fed=True, given="bh", steps=2, **said)


@pytest.mark.parametrize(
    "kind", [pytest.param("RNN", marks=long), "GRU", pytest.param("LSTM", marks=long)]
)
def test_steps_share_their_programs(kind: str) -> None:
    """However many there are; a few more put so many pieces together."""
    few, many = (lowered(network(kind, given="b", steps=steps)) for steps in (4, 14))
    assert number_of_programs(few) == number_of_programs(many) < 20


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param("RNN", {"given": "bh"}, marks=long),
        pytest.param("GRU", {"given": "bh"}, marks=long),
        ("LSTM", {"given": "bhc"}),
        pytest.param("RNN", {"direction": "reverse"}, marks=long),
        ("GRU", {"direction": "reverse"}),
        pytest.param("LSTM", {"direction": "reverse"}, marks=long),
        ("RNN", {"given": "b", "direction": "bidirectional"}),
        pytest.param("GRU", {"given": "b", "direction": "bidirectional"}, marks=long),
        pytest.param("LSTM", {"given": "b", "direction": "bidirectional"}, marks=long),
        pytest.param("RNN", {"given": "b", "clip": 0.4}, marks=long),
        ("GRU", {"given": "b", "clip": 0.4}),
        pytest.param("LSTM", {"given": "b", "clip": 0.4}, marks=long),
        ("LSTM", {"given": "bp"}),
        ("LSTM", {"given": "b", "input_forget": 1}),
        ("GRU", {"given": "bh", "linear_before_reset": 1}),
        # With these weights states stay small: onnxruntime's softplus of 89 is infinite.
        ("GRU", {"given": "b", "activations": ["HardSigmoid", "Softplus"], "fed": False}),
    ],
    ids=str,
)
def test_a_sequence_may_be_of_any_length(kind: str, said: dict[str, Any]) -> None:
    proto = network(kind, steps="time", **{"fed": True, **said})
    compare(proto, *(feeds_of(proto, batch, time) for batch, time in ((1, 1), (3, 2), (2, 37))))


def test_a_long_sequence_is_not_unrolled() -> None:
    proto = network("LSTM", steps=300, given="b")
    assert number_of_programs(compare(proto, feeds_of(proto, 2))) < 10


@pytest.mark.parametrize(
    ("names", "alphas", "betas"),
    [
        (["Relu", "Softsign"], [], []),
        (["Affine", "LeakyRelu"], [0.5, 0.2], [0.1]),
        (["ThresholdedRelu", "ScaledTanh"], [0.3, 1.5], [0.7]),
        (["Elu", "Tanh"], [0.6], []),
    ],
    ids=str,
)
def test_activations_are_the_same_in_a_loop(
    names: list[str], alphas: list[float], betas: list[float]
) -> None:
    """One for each direction."""
    said = say_activations(names, alphas, betas)
    proto = network("RNN", fed=True, steps="time", given="b", **said)
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
