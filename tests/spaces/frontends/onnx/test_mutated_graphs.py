"""Whatever graph of ONNX is drawn is computed as its source does, or refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings

from spaces.codegen.executable import compile_plainly, run_once
from spaces.frontends.declared import resolve
from spaces.frontends.onnx.model import read_onnx_proto
from spaces.import_check.bounds import coarsest_step, part
from spaces.import_check.sources import CannotRun, _Evaluator, _Onnxruntime
from spaces.lowering.lower import lower
from tests.few_examples import examples
from tests.in_a_line import make_or_refuse
from tests.spaces.frontends.onnx.beside_onnxruntime import TARGET
from tests.spaces.frontends.onnx.mutated_graphs import Drawn, graphs
from tuner.dynamic.shapes import NO_DOMAIN

pytestmark = pytest.mark.tvm

Array = npt.NDArray[Any]


def by_source(drawn: Drawn) -> Sequence[Array]:
    """What its sources give, where they agree.

    Raises:
        CannotRun: neither takes it, one does and refuses its inputs, or each means something else.
    """
    names, feeds = [*drawn.feeds], [*drawn.feeds.values()]
    found = []
    for source in (_Onnxruntime, _Evaluator):
        try:
            taken = source(drawn.proto, names)
        except CannotRun:
            continue
        try:
            found.append(taken.outputs(feeds))
        except CannotRun:
            if not found:
                raise
    if not found:
        raise CannotRun("neither takes it")
    for one, other in zip(found[0], found[-1], strict=True):
        if part(one, other):
            raise CannotRun("its sources do not agree")
    return found[0]


def by_us(drawn: Drawn) -> Sequence[Array]:
    source = read_onnx_proto(drawn.proto, "drawn")
    inputs = resolve(source.declared, (), NO_DOMAIN)
    module = lower(source.imported(inputs, NO_DOMAIN), TARGET)
    return run_once(compile_plainly(module, TARGET), [*drawn.feeds.values()])


@settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(graphs())
def test_it_is_computed_as_its_source_does_or_refused_in_a_line(drawn: Drawn) -> None:
    try:
        wanted = by_source(drawn)
    except CannotRun:
        assume(False)
    found = make_or_refuse(lambda: by_us(drawn))
    if found is None:
        return
    assert len(found) == len(wanted)
    for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
        said = part(got, np.asarray(want), step=coarsest_step(drawn.proto))
        assert not said, f"output {place}: {said}"
