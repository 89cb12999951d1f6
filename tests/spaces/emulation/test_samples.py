"""Random samples of each space that there is for CUDA are right on the emulated device."""

from __future__ import annotations

import json
from collections.abc import Collection
from math import prod
from typing import Any

import pytest

from spaces.targets.target import emulate_target
from tests.spaces.emulation import (
    attention_samples,
    convolution_samples,
    few_row_samples,
    memory_samples,
    product_samples,
    rule_samples,
    thread_product_samples,
)
from tests.spaces.emulation.samples import AMPERE, OLD, Sample, rare, wrong
from tests.spaces.templates.tensor_cores import (
    byte_float_products,
    byte_products,
    convolutions,
    grouped_products,
    packed_products,
    products,
    single_products,
)
from tests.spaces.templates.tensor_cores.products import Programs
from tuner.request.target_text import tf32

pytestmark = pytest.mark.tvm
_FEW, _MANY = 6, 200
_LONG = (pytest.mark.long, pytest.mark.timeout(1800))
_IN_ALL = {"convolution", "float16 in float32", "softmax"}
"""Programs of which a few samples run in `make test`: each of the spaces has one."""
_WIDTHS = "of (1, 2, 3, 4, 8, 16)"
_REFUSED = {
    "bfloat16 in float32": {(f"choice 0 {_WIDTHS}", 16), (f"choice 1 {_WIDTHS}", 16)},
    "int8 in int32": {(f"choice 0 {_WIDTHS}", 8), (f"choice 0 {_WIDTHS}", 16)},
}
"""Vectors that TVM's check of kernels refuses whatever else is drawn, such as those of 32 bytes."""
_TF32, _HOPPER_TF32 = (
    emulate_target(tf32(f'{{"kind":"cuda","arch":"{arch}"}}')) for arch in ("sm_80", "sm_90a")
)
_PRODUCTS = {
    "hopper": (products.HOPPER, products.PROGRAMS),
    "ampere": (products.AMPERE, products.PROGRAMS),
    "hopper bytes": (products.HOPPER, byte_products.PROGRAMS),
    "ampere bytes": (products.AMPERE, byte_products.PROGRAMS),
    "single precision": (products.AMPERE, single_products.PROGRAMS),
    "TF32": (_TF32, single_products.PROGRAMS),
    "hopper TF32": (_HOPPER_TF32, single_products.NT_PROGRAMS),
    "floats of 8 bits": (byte_float_products.ADA, byte_float_products.PROGRAMS),
    "ada rough": (byte_float_products.ADA, byte_float_products.ROUGH),
    "grouped on hopper": (products.HOPPER, grouped_products.PROGRAMS),
    "grouped on ampere": (products.AMPERE, grouped_products.PROGRAMS),
    "hopper rough": (products.HOPPER, byte_float_products.ROUGH),
    "packed on hopper": (products.HOPPER, packed_products.PROGRAMS),
    "packed on ampere": (products.AMPERE, packed_products.PROGRAMS),
    "packed singles": (products.AMPERE, packed_products.SINGLES),
    "packed TF32": (_TF32, packed_products.SINGLES),
    "packed hopper TF32": (_HOPPER_TF32, packed_products.SINGLES),
}
_CONVOLUTIONS = {
    "hopper": (products.HOPPER, convolutions.PROGRAMS),
    "ampere": (products.AMPERE, convolutions.PROGRAMS),
    "hopper bytes": (products.HOPPER, convolutions.BYTE_PROGRAMS),
    "ampere bytes": (products.AMPERE, convolutions.BYTE_PROGRAMS),
    "TF32": (_TF32, convolutions.SINGLE_PROGRAMS),
    "hopper TF32": (_HOPPER_TF32, convolutions.CHANNELS_LAST_PROGRAMS),
    "ampere threads": (products.AMPERE, convolutions.SINGLE_PROGRAMS),
    "old threads": (OLD, convolutions.SINGLE_PROGRAMS),
    "old threads, halves": (OLD, convolutions.PROGRAMS),
}
_LAYOUTS = ("NT", "odd NN", "turned", "rounded", "open layer", "open terms", "open batch", "4 bits")
_WINDOWS = ("3x3 added", "odd groups", "channels first, stride 2", "open batch", "open images")
_SMALL = {"activation": 6}
"""The number of points of spaces that have less than `_MANY`."""


def cases(names: Collection[str]) -> list[Any]:
    """Each program with few samples and with many."""
    few = [pytest.param(n, _FEW, marks=() if n in _IN_ALL else pytest.mark.long) for n in names]
    return [*few, *(pytest.param(name, _MANY, marks=_LONG) for name in names)]


@pytest.mark.parametrize(("name", "number"), cases(rule_samples.PROGRAMS))
def test_samples_of_the_rules_are_right(name: str, number: int) -> None:
    task = rule_samples.task(name)
    is_whole = number == _MANY and name not in _SMALL
    each = rule_samples.values_of(task) - _REFUSED.get(name, set()) if is_whole else set()
    drawn = list(rule_samples.drawn(task, number, each=each))
    assert len({sample.settings for sample in drawn}) == min(number, _SMALL.get(name, number))
    assert rare((value for sample in drawn for value in sample.values), each) == {}
    assert all(map(has_tiles_and_stages, drawn))
    assert wrong(drawn) == {}


def has_tiles_and_stages(sample: Sample) -> bool:
    """Whether each extent is of more than two and a half tiles, and each sum of four stages."""
    _, decisions = json.loads(sample.settings)
    tiles = [parts for _, parts in decisions if isinstance(parts, list)]
    stages = [parts[0] for parts in tiles if len(parts) == 3]
    spatial = [parts[0] for parts in tiles if len(parts) == 5 and prod(parts) > 1]
    return min(spatial, default=3) > 2.5 and (not stages or prod(stages) >= 4)


@pytest.mark.parametrize("target", [AMPERE, OLD], ids=["ampere", "old"])
def test_products_that_threads_multiply_are_right_with_each_value_of_a_knob(target: str) -> None:
    drawn = list(thread_product_samples.cover(target, _LAYOUTS))
    assert wrong(drawn) == {}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", [AMPERE, OLD], ids=["ampere", "old"])
def test_samples_of_products_that_threads_multiply_are_right_in_every_layout_and_shape(
    target: str,
) -> None:
    drawn = list(thread_product_samples.drawn(target, _MANY))
    assert len({sample.settings for sample in drawn}) == _MANY
    values = (value for sample in drawn for value in sample.values)
    assert rare(values, thread_product_samples.values_of(target)) == {}
    assert wrong(drawn) == {}


@pytest.mark.parametrize("number", [3, pytest.param(_MANY, marks=_LONG)])
@pytest.mark.parametrize(("target", "programs"), _PRODUCTS.values(), ids=_PRODUCTS)
def test_samples_of_templates_for_tensor_cores_are_right_in_every_layout(
    target: str, programs: Programs, number: int
) -> None:
    drawn = list(product_samples.drawn(target, number, programs))
    assert len({sample.settings for sample in drawn}) == number
    if number == _MANY:
        values = (value for sample in drawn for value in sample.values)
        assert rare(values, product_samples.values_of(target, programs)) == {}
    assert wrong(drawn) == {}


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["3x3 added", "groups", "open images", "channels first"])
@pytest.mark.parametrize("target", [products.HOPPER, products.AMPERE], ids=["hopper", "ampere"])
def test_the_best_predicted_of_convolutions_are_right(target: str, name: str) -> None:
    assert wrong([convolution_samples.best(target, name)]) == {}


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["signs of one", "requantized", "open images", "channels first"])
@pytest.mark.parametrize("target", [products.HOPPER, products.AMPERE], ids=["hopper", "ampere"])
def test_the_best_predicted_of_convolutions_of_bytes_are_right(target: str, name: str) -> None:
    assert wrong([convolution_samples.best(target, name, convolutions.BYTE_PROGRAMS)]) == {}


@pytest.mark.each_value
@pytest.mark.parametrize(("name", "splits"), [("3x3 added", 2), ("open images", 4)])
@pytest.mark.parametrize("target", [products.HOPPER, products.AMPERE], ids=["hopper", "ampere"])
def test_blocks_share_the_taps_and_channels_of_windows(target: str, name: str, splits: int) -> None:
    assert wrong([convolution_samples.best(target, name, splits=splits)]) == {}


@pytest.mark.parametrize(
    "number",
    [pytest.param(len(convolutions.PROGRAMS), marks=_LONG), pytest.param(_MANY, marks=_LONG)],
)
@pytest.mark.parametrize(("target", "programs"), _CONVOLUTIONS.values(), ids=_CONVOLUTIONS)
def test_samples_of_convolutions_are_right_in_every_layout(
    target: str, programs: convolution_samples.Programs, number: int
) -> None:
    drawn = list(convolution_samples.drawn(target, number, programs))
    assert len({sample.settings for sample in drawn}) == number
    assert wrong(drawn) == {}


@pytest.mark.parametrize("target", [AMPERE, OLD], ids=["ampere", "old"])
def test_convolutions_that_threads_multiply_are_right_with_each_value_of_a_knob(
    target: str,
) -> None:
    drawn = list(convolution_samples.cover(target, _WINDOWS, convolutions.SINGLE_PROGRAMS))
    assert wrong(drawn) == {}


@pytest.mark.parametrize("number", [4, pytest.param(_MANY, marks=_LONG)])
@pytest.mark.parametrize("target", [products.HOPPER, products.AMPERE], ids=["hopper", "ampere"])
def test_samples_of_attention_are_right_with_any_mask_and_size(target: str, number: int) -> None:
    drawn = list(attention_samples.drawn(target, number))
    assert len({sample.settings for sample in drawn}) == number
    if number == _MANY:
        values = (value for sample in drawn for value in sample.values)
        assert rare(values, attention_samples.values_of(target)) == {}
    assert wrong(drawn) == {}


@pytest.mark.parametrize("number", [6, pytest.param(_MANY + 40, marks=_LONG)])
def test_samples_of_templates_for_what_is_bound_by_memory_are_right_in_every_shape(
    number: int,
) -> None:
    drawn = list(memory_samples.drawn(number))
    assert len({sample.settings for sample in drawn}) == number
    assert wrong(drawn) == {}


def test_convolutions_with_a_filter_for_each_channel_are_right_with_each_value_of_a_knob() -> None:
    names = [name for name in memory_samples.PROGRAMS if "filters" in name]
    assert wrong(memory_samples.cover(names)) == {}


@pytest.mark.parametrize("name", ["bias and relu", "TN", "open rows", "batched NN"])
def test_the_best_predicted_of_few_rows_are_right(name: str) -> None:
    best = few_row_samples.space_of(name).ranked[:1]
    assert wrong(few_row_samples.sample(name, knobs) for knobs in best) == {}


@pytest.mark.parametrize("number", [4, pytest.param(_MANY, marks=_LONG)])
def test_samples_of_the_template_for_few_rows_are_right_in_every_layout(number: int) -> None:
    drawn = list(few_row_samples.drawn(number))
    assert len({sample.settings for sample in drawn}) == number
    if number == _MANY:
        values = (value for sample in drawn for value in sample.values)
        assert rare(values, few_row_samples.values_of()) == {}
    assert wrong(drawn) == {}
