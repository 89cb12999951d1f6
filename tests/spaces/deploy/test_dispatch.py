"""The function that picks a kernel for each shape: it does what its tree says, and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.deploy.dispatch import make_dispatcher
from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols
from tuner.dynamic.dispatch_tree import Leaf, Split, Tree, pick

pytestmark = pytest.mark.tvm

DIMS = ("B", "T")
EMPTY = 99


def writing(number: int, *, dtype: str = "int64") -> Any:
    """A program over `B` by `T` elements that writes a number into each, and into one more."""
    from tvm import te, tirx

    b, t = (tirx.Var(name, dtype) for name in DIMS)
    a = te.placeholder((b, t), "float32", name="A")
    one = tirx.const(1, dtype)
    out = te.compute((one,), lambda i: tirx.const(float(number), "float32"), name="kernel")
    return te.create_prim_func([a, out])


def built(tree: Tree, number: int, *, empty: bool = False, dtype: str = "int64") -> Any:
    import tvm

    kernels = [writing(n, dtype=dtype) for n in range(number)]
    plain = writing(EMPTY, dtype=dtype) if empty else None
    module = tvm.ir.IRModule(make_dispatcher("program", kernels, tree, plain))
    return tvm.compile(module, target=tvm.target.Target({"kind": "llvm"}))


def taken(library: Any, b: int, t: int) -> float:
    """Which kernel ran for a shape; -1 where none did."""
    import tvm

    out = np.full(1, -1, "float32")
    tensors = [tvm.runtime.tensor(np.zeros((b, t), "float32")), tvm.runtime.tensor(out)]
    library["program"](*tensors)
    return float(tensors[1].numpy()[0])


def grown(rng: np.random.Generator, depth: int, number: int) -> Tree:
    """A tree at random."""
    if depth == 0 or rng.random() < 0.2:
        return Leaf(int(rng.integers(number)))
    dim, bound = DIMS[int(rng.integers(2))], int(rng.integers(1, 12))
    return Split(dim, bound, grown(rng, depth - 1, number), grown(rng, depth - 1, number))


@pytest.mark.parametrize("seed", range(3))
def test_every_shape_goes_where_the_tree_sends_it(seed: int) -> None:
    tree = grown(np.random.default_rng(seed), 4, 5)
    library = built(tree, 5)
    for b in (1, 2, 5, 11, 13):
        for t in (1, 2, 3, 7, 8, 11, 12, 100):
            assert taken(library, b, t) == pick(tree, {"B": b, "T": t}), (b, t)


def test_a_bound_belongs_to_what_is_below() -> None:
    library = built(Split("T", 5, Leaf(0), Leaf(1)), 2)
    assert [taken(library, 1, t) for t in (4, 5, 6)] == [0, 0, 1]


def test_a_tree_of_one_leaf_calls_its_kernel() -> None:
    assert taken(built(Leaf(0), 1), 3, 4) == 0


def test_dimensions_of_32_bits_are_compared_as_well() -> None:
    library = built(Split("T", 5, Leaf(0), Leaf(1)), 2, dtype="int32")
    assert [taken(library, 1, t) for t in (5, 6)] == [0, 1]


@pytest.mark.parametrize(("b", "t"), [(0, 4), (4, 0), (0, 0)])
def test_a_shape_without_elements_reaches_no_kernel(b: int, t: int) -> None:
    tree = Split("T", 5, Leaf(0), Leaf(1))
    assert taken(built(tree, 2), b, t) == -1
    assert taken(built(tree, 2, empty=True), b, t) == EMPTY


def test_the_unscheduled_program_serves_nothing_else() -> None:
    library = built(Split("B", 1, Leaf(0), Leaf(1)), 2, empty=True)
    assert [taken(library, b, 1) for b in (1, 2)] == [0, 1]


def test_all_functions_are_named_after_the_program() -> None:
    made = make_dispatcher(
        "p", [writing(0), writing(1)], Split("T", 5, Leaf(0), Leaf(1)), writing(9)
    )
    assert set(made) == {"p", "p_kernel0", "p_kernel1", "p_empty"}
    for name, function in made.items():
        assert tvm_compat.attribute(function, tvm_compat.GLOBAL_SYMBOL) == name
        assert tvm_compat.attribute(function, tvm_compat.NO_ALIAS)
        assert tvm_compat.attribute(function, tvm_compat.IS_SCHEDULED)
    assert list(symbols(made["p"])) == list(DIMS)


def test_a_dimension_that_the_program_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="the program has no dimension Q"):
        make_dispatcher("p", [writing(0), writing(1)], Split("Q", 5, Leaf(0), Leaf(1)))


def test_tvm_can_ask_a_dispatcher_whether_it_only_reshapes() -> None:
    """It asks every program of a graph with one input, and expects a root block."""
    from tvm.relax.analysis import has_reshape_pattern

    tree: Tree = Split("T", 4, Leaf(0), Leaf(1))
    made = make_dispatcher("program", [writing(0), writing(1)], tree)
    assert not has_reshape_pattern(made["program"])
