"""What a model declares, closed by a user's shapes and sizes, whatever its kind. Needs no TVM."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.frontends.declared import Declared, DeclaredInput, Dims, resolve
from tuner.dynamic.shapes import NO_DOMAIN, Domain
from tuner.errors import TunerError

T = Domain((("T", (2, 8)),))


def of(*dims: Dims | None, **more: Any) -> Declared:
    """A model with the inputs x, y and so on; each name is a symbol."""
    inputs = tuple(DeclaredInput(n, "float32", d) for n, d in zip("xyz", dims, strict=False))
    symbols = [d for one in dims for d in one or () if isinstance(d, str) and d.isidentifier()]
    return Declared(inputs, **{"symbols": tuple(symbols), **more})


def refusal(declared: Declared, *, domain: Domain = NO_DOMAIN, **shapes: tuple[int, ...]) -> str:
    with pytest.raises(TunerError) as refused:
        resolve(declared, shapes.items(), domain)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("declared", "given"), [((1, 3), None), (("N", 3), (8, 3)), (("?", 3), (8, 3)), (None, (8, 3))]
)
def test_a_shape_closes_what_the_model_leaves_open(declared: Dims, given: Any) -> None:
    (spec,) = resolve(of(declared), [("x", given)] if given else [])
    assert (spec.shape, spec.dims) == (given or declared, ())


def test_a_dimension_that_inputs_share_is_given_once() -> None:
    _, y, z = resolve(of(("N", 3), ("N",), (4, "N_x2"), symbols=("N",)), [("x", (8, 3))])
    assert (y.shape, z.shape) == ((8,), (4, 16))


def test_with_a_domain_dimensions_stay_symbolic() -> None:
    x, y = resolve(of(("T", 3), ("T_x2", "?"), symbols=("T",)), [("y", (16, 5))], T)
    assert (x.shape, x.dims) == ((8, 3), ("T", 3))
    assert (y.shape, y.dims) == ((16, 5), ("T_x2", 5))


def test_shapes_that_contradict_the_model_or_each_other_are_refused() -> None:
    declared = of(("N", 3), ("N",))
    assert refusal(declared, x=(1, 2, 3)) == "input x has 2 dimensions, but --shape gives 3"
    assert "dimension 1 is 3 in the model, but --shape says 4" in refusal(declared, x=(1, 4))
    assert refusal(declared, x=(8, 3), y=(7,)).startswith("input y: dimension 0 is 8 in the model")
    assert refusal(declared, z=(1,)) == "--shape z: no such input; the model has x, y"


def test_an_open_input_says_what_can_be_done() -> None:
    assert refusal(of(("N", 3))) == (
        "input x is dynamic (N,3); give its shape: --shape x=?,3 with a number for each ?, or give "
        "the sizes to tune for: --dim N=1..128"
    )
    assert refusal(of(("T_x2", "N")), domain=T).startswith("input x is dynamic (16,N); give its ")
    assert refusal(of(("?",))).endswith("--shape x=? with a number for each ?")
    assert refusal(of(None)) == "input x is dynamic (unknown rank); give its shape: --shape x=..."


def test_tensor_programs_take_sizes_and_no_shapes() -> None:
    program = of(("T_x2", 3), takes_shapes=False, note="T is the number of tokens")
    assert refusal(program) == (
        "input x is dynamic (T_x2,3); give the sizes to tune for: --dim T=1..128, or make the "
        "function static, for instance by an argument for --arg; T is the number of tokens"
    )
    assert refusal(program, x=(2, 3)).startswith("--shape x: the inputs of a tensor program take")


def test_a_dimension_that_is_unknown_or_closed_is_refused() -> None:
    declared = of(("N", 3), ("B",), note="B is the batch")
    assert refusal(declared, domain=T) == (
        "--dim T: no such dimension; the model has N, B; B is the batch"
    )
    batch = Domain((("B", (1, 2)),))
    assert refusal(declared, domain=batch, y=(2,)) == "--dim B: a --shape says already what it is"


def test_sizes_outside_of_the_bounds_are_refused() -> None:
    declared = of(("T", 3), bounds={"T": (4, 16)})
    assert refusal(declared, x=(17, 3)) == (
        "--shape x: dimension 0: the model takes at most 16, not 17"
    )
    assert refusal(declared, domain=T) == "--dim T: the model takes at least 4, not 2"
