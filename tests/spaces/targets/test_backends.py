"""Each kind of target has a complete row, and what has none is refused wherever it comes in."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from tvm.ir import IRModule

import tuner
from cluster.app.cli import run
from spaces.targets.backends import BACKENDS, Backend, Devices, backend, backend_of, load
from spaces.targets.target import (
    device_of,
    find_backend,
    fits_here,
    parse_target,
    resolve_target,
    takes_the_same,
)
from tests.contracts.programs import gemm_task
from tuner.errors import UsageError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.request.target_text import TARGET_KINDS

pytestmark = pytest.mark.tvm

EACH = pytest.mark.parametrize("row", BACKENDS, ids=lambda row: row.kind)
EXAMPLES = {
    "llvm": '{"kind":"llvm","num-cores":2}',
    "cuda": '{"kind":"cuda","arch":"sm_90"}',
}
"""Of each kind, as a user writes it, with what no machine has to be asked for."""
NAMED = ("pipeline", "templates", "rules", "device_code", "compiling", "try_compiler", "toolchain")
"""What rows name by module."""
OPTIONAL = ("device_code", "compiling", "try_compiler", "toolchain")
"""What a row may leave out."""


def test_there_is_a_row_for_each_kind_that_options_take() -> None:
    assert tuple(row.kind for row in BACKENDS) == TARGET_KINDS
    assert EXAMPLES.keys() == set(TARGET_KINDS)


def test_the_first_kind_is_what_auto_means_where_there_is_nothing_else() -> None:
    assert BACKENDS[0].everywhere
    assert BACKENDS[0].devices.present()


def test_searches_on_unlike_kinds_are_called_differently() -> None:
    assert len({row.word for row in BACKENDS}) == len(BACKENDS)


@EACH
def test_what_a_row_names_can_be_called(row: Backend) -> None:
    for field in NAMED:
        name = getattr(row, field)
        assert callable(load(name)) if name else field in OPTIONAL


@EACH
def test_a_row_s_devices_answer_all_that_is_asked_of_them(row: Backend) -> None:
    for name, asked in inspect.getmembers(Devices, inspect.isfunction):
        if not name.startswith("_"):
            wanted = [*inspect.signature(asked).parameters][1:]  # a module has no self
            assert [*inspect.signature(getattr(row.devices, name)).parameters] == wanted
    assert row.devices.FILLED_IN


@EACH
def test_a_row_is_found_by_its_kind_and_by_a_target_as_text_and_as_tvm_s(row: Backend) -> None:
    target = EXAMPLES[row.kind]
    assert backend(row.kind) is backend_of(target) is backend_of(parse_target(target)) is row
    assert find_backend(row.kind) is find_backend(target) is row


@EACH
def test_a_target_is_completed_once(row: Backend) -> None:
    target = resolve_target(EXAMPLES[row.kind])
    assert resolve_target(target) == target
    assert json.loads(target).keys() >= row.devices.FILLED_IN - {"model"}


@EACH
def test_a_device_is_called_by_its_kind_s_word(row: Backend) -> None:
    target = resolve_target(EXAMPLES[row.kind])
    assert row.devices.fingerprint(target, None).startswith(f"{row.word} ")
    assert takes_the_same(target, target)
    if not row.devices.present():
        assert not fits_here(target)


@EACH
def test_what_launches_kernels_is_a_host(row: Backend) -> None:
    target = parse_target(EXAMPLES[row.kind])
    assert row.on_host == (target.host is None)


@EACH
def test_a_task_has_templates_rules_and_a_pipeline(row: Backend) -> None:
    target = EXAMPLES[row.kind]
    task = gemm_task(target)
    for template in load(row.templates)(task):
        assert template.name
    for low_precision in (False, True):
        names = load(row.rules)(json.loads(target), low_precision)
        assert names.rules
        assert low_precision or names.intrinsics is None
    assert tuner.tir_pipeline(target) == tuner.tir_pipeline(parse_target(target))


def test_a_tag_is_of_the_kind_of_its_vendor() -> None:
    assert find_backend("nvidia/nvidia-h100").kind == "cuda"


def test_targets_of_unlike_kinds_take_nothing_from_each_other() -> None:
    assert not takes_the_same(*EXAMPLES.values())


# ---- what has no row ----

DOORS: dict[str, Callable[[str], Any]] = {
    "resolve_target": resolve_target,
    "asked_backend": find_backend,
    "parse_target": parse_target,
    "device_of": device_of,
    "tuner.lower": lambda text: tuner.lower(IRModule(), text),
    "tuner.tir_pipeline": tuner.tir_pipeline,
    "TuneOptions": lambda text: TuneOptions(ModelSpec("m.onnx"), target=text),
}
UNKNOWN = ("rocm", "vulkan", "metal", "c", "Cuda", "nope")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", UNKNOWN)
def test_an_unknown_kind_is_refused_where_it_enters(door: str, kind: str) -> None:
    with pytest.raises(UsageError, match=f"the target's kind is '{kind}'; it must be llvm or cuda"):
        DOORS[door](f'{{"kind":"{kind}"}}')


@pytest.mark.parametrize("kind", ["rocm", "c"])
def test_so_is_one_that_tvm_knows(kind: str) -> None:
    from tvm.target import Target

    for door in (tuner.tir_pipeline, lambda target: tuner.lower(IRModule(), target)):
        with pytest.raises(UsageError, match=f"'{kind}'"):
            door(Target({"kind": kind}))


@pytest.mark.parametrize("kind", UNKNOWN)
def test_the_command_line_refuses_it_in_the_same_words(kind: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert run(["tune", "m.onnx", "--target", f'{{"kind":"{kind}"}}']) == 2
    assert f"the target's kind is '{kind}'; it must be llvm or cuda" in said.getvalue()


@pytest.mark.parametrize("text", ["vulkan", "", "{", "[]", "{}", "3", '{"kind":["llvm"]}'])
def test_what_is_no_target_as_json_has_no_row(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        backend_of(text)
    assert "\n" not in str(refused.value)
