"""A graph that was lowered stays as it is, for the kind of target that it was lowered for."""

from __future__ import annotations

import pytest

from examples.dense import dense
from spaces.deploy.provenance import Origin, put
from spaces.frontends.memory_model import model_in_memory
from spaces.lowering.lower import lower
from tuner.errors import UsageError
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
CUDA = '{"arch":"sm_80","kind":"cuda"}'


def test_it_is_lowered_once_and_for_one_kind_of_target() -> None:
    lowered = lower(dense(), LLVM)
    assert lower(lowered, LLVM).same_as(lowered)
    with pytest.raises(UsageError, match="was lowered for llvm, and is wanted for cuda"):
        lower(lowered, CUDA)


def test_what_a_pass_noted_of_times_is_no_part_of_the_models_identity() -> None:
    lowered = lower(dense(), LLVM)
    (name,) = (str(v.name_hint) for v in lowered.functions if v.name_hint != "main")
    hashes = {
        model_in_memory(
            put(lowered, {name: (lowered[name], Origin("default", "rule", f"{s} s", s))}),
            ModelSpec("model"),
        ).content_hash
        for s in (1.0, 2.0)
    }
    assert len(hashes) == 1
