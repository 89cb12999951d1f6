"""A large program is computed at some elements if that is known how, a small one wholly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.check.case import Case
from spaces.check.choice import QUICK_STEPS, reference_of, steps_of
from spaces.check.sampled_case import SampledCase
from tests.actors.gate_programs import module_of, product

pytestmark = pytest.mark.tvm


def kinds(module: Any, **settings: Any) -> set[type]:
    return {type(case) for case in reference_of(module, "seed", **settings).cases}


def test_the_number_of_steps_decides() -> None:
    from tvm import te

    module = module_of("f32")
    steps = steps_of(module["main"])
    assert steps == 24 * 40 * 256 + 1, "and one for what holds all"
    assert kinds(module) == {Case}
    assert kinds(module, quick_steps=steps) == {Case}
    assert kinds(module, quick_steps=steps - 1) == {SampledCase}
    large = te.create_prim_func(product("float32", "float32", "float32", 1 << 24))
    assert steps_of(large) > QUICK_STEPS


def test_what_is_not_known_is_computed_wholly() -> None:
    """As what depends on the old contents of an output."""
    import tvm
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def add_to(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.remap("S", [i])
                C[vi] = C[vi] + A[vi]

    assert kinds(tvm.IRModule({"main": add_to}), quick_steps=0) == {Case}


def test_elements_are_the_same_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of("softmax")
    made = reference_of(module, "seed", tmp_path, quick_steps=0)
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("elements-")
    with monkeypatch.context() as patch:
        patch.setattr("spaces.check.sampled_program.SampledProgram.compute", None)
        again = reference_of(module, "seed", tmp_path, quick_steps=0)
    for one, two in zip(made.cases, again.cases, strict=True):
        assert isinstance(one, SampledCase)
        assert isinstance(two, SampledCase)
        mine, theirs = one._samples[1], two._samples[1]
        assert all(map(np.array_equal, mine.places, theirs.places))
        assert np.array_equal(mine.want, theirs.want)
        assert mine.bound is not None
        assert theirs.bound is not None
        assert np.array_equal(mine.bound, theirs.bound)
        assert np.array_equal(one.fresh(0), two.fresh(0))
    file.write_bytes(b"torn")
    assert {type(case) for case in made.cases} == kinds(module, cache=tmp_path, quick_steps=0)
