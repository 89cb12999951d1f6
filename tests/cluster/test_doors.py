"""What is refused when it is typed is refused from Python too, in the same words."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cluster.app.commands.tune
from cluster.app.cli import run
from tuner.checks import STRATEGIES
from tuner.effort import EFFORTS, Effort
from tuner.errors import UsageError
from tuner.request.model_spec import IntRange, ModelSpec
from tuner.request.options import TuneOptions
from tuner.request.target_text import TARGET_KINDS
from tuner.search.registry import search_maker

MODEL = ModelSpec("m.onnx")
few = settings(max_examples=40)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_tuned() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.app.commands.tune, "show_tuning", lambda *_args, **_named: 0)
        yield


def typed(*arguments: str) -> str:
    """What the command line says of a request; nothing where it takes it."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = run(["tune", *arguments, "m.onnx"])
    assert (code == 2) == bool(said.getvalue())
    return said.getvalue()


def called(**fields: Any) -> str:
    """Why the same is refused from Python; nothing where it is taken."""
    model = {name: fields.pop(name) for name in ("shapes", "inputs", "dims") if name in fields}
    try:
        TuneOptions(ModelSpec("m.onnx", **model) if model else MODEL, **fields)
    except UsageError as error:
        said, why = str(error), str(error.__cause__)
    else:
        return ""
    assert "\n" not in said
    assert next(iter({**model, **fields})) in said, "it says which field it is"
    return why


def assert_alike(said: str, why: str) -> None:
    assert bool(said) == bool(why), (said, why)
    assert why in said


numbers = st.one_of(st.integers(-3, 3), st.integers(2**31 - 3, 2**31 + 3))
kinds = st.sampled_from([*TARGET_KINDS, "auto", "rocm", "vulkan", "metal", ""])
words = st.one_of(st.text(max_size=8), st.sampled_from([*STRATEGIES, "lucky"]))


@pytest.mark.parametrize("name", ["trials", "devices", "max_kernels", "seed"])
@few
@given(number=numbers)
def test_numbers(name: str, number: int) -> None:
    flag = f"--{name.replace('_', '-')}={number}"
    assert_alike(typed(flag), called(**{name: number}))


@pytest.mark.parametrize("name", ["time_budget", "device_wait"])
@few
@given(value_s=st.one_of(numbers, st.integers(366 * 86400 - 1, 366 * 86400 + 1)))
def test_durations(name: str, value_s: int) -> None:
    flag = f"--{name.replace('_', '-')}={value_s}s"
    assert_alike(typed(flag), called(**{f"{name}_s": value_s}))


@few
@given(text=st.one_of(kinds, words, kinds.map(lambda kind: f'{{"kind": "{kind}"}}')))
@example(text=" cuda ")
@example(text='{"kind": "llvm", "num-cores": 0}')
@example(text='{"kind": ["llvm"]}')
@example(text="{")
def test_targets(text: str) -> None:
    assert_alike(typed(f"--target={text}"), called(target=text))


@pytest.mark.parametrize("measure", ["device", "emulated"])
@pytest.mark.parametrize("target", ["auto", "llvm", "cuda"])
@pytest.mark.parametrize("policy", ["warm", "cold", None])
@pytest.mark.parametrize("fast", [True, False])
def test_marks_of_a_target(measure: str, target: str, policy: str | None, fast: bool) -> None:
    flags = [f"--l2={policy}"] * bool(policy) + ["--fast-math"] * fast
    said = typed(f"--target={target}", f"--measure={measure}", *flags)
    why = refused(target=target, measure=measure, fast_math=fast, l2=policy)
    assert_alike(said, why)
    assert bool(why) == (
        (target == "llvm" and (fast or bool(policy) or measure == "emulated"))
        or (measure == "emulated" and (fast or bool(policy)))
    )


def test_a_policy_that_there_is_not() -> None:
    assert_alike(typed("--l2=hot"), called(l2="hot"))


def refused(**fields: Any) -> str:
    """Why fields that do not go together are refused; nothing where they are taken."""
    try:
        TuneOptions(MODEL, **fields)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["strategy", "only", "base_model"])
@few
@given(text=words)
@example(text="a\0b")
def test_texts(name: str, text: str) -> None:
    assert_alike(typed(f"--{name.replace('_', '-')}={text}"), called(**{name: text}))


@few
@given(text=st.one_of(words, st.sampled_from(["host:1", "local", "host:70000", "ray://h:1"])))
def test_addresses(text: str) -> None:
    assert_alike(typed(f"--address={text}"), called(address=text))


@few
@given(
    text=st.sampled_from(
        ["runs/one", "s3://", "s3://b/run", "file://runs/x", "file:///x", "http://h/run"]
    )
)
def test_places(text: str) -> None:
    assert_alike(typed(f"--run={text}"), called(run=text))
    assert_alike(typed(f"--seeds-from={text}"), called(seeds_from=(text,)))


@few
@given(sizes=st.lists(numbers, max_size=3))
def test_shapes(sizes: list[int]) -> None:
    text = ",".join(map(str, sizes))
    # A negative size has no spelling of its own, so it is no size at all where it is typed.
    if all(size >= 0 for size in sizes):
        assert_alike(typed(f"--shape=x={text}"), called(shapes=(("x", tuple(sizes)),)))
    assert bool(typed(f"--shape=x={text}")) == bool(called(shapes=(("x", tuple(sizes)),)))
    ordered = sorted(set(sizes))
    text = ",".join(map(str, ordered))
    assert_alike(typed(f"--dim=T={text}"), called(dims=(("T", tuple(ordered)),)))


def test_a_name_that_is_given_twice() -> None:
    assert_alike(typed("--shape=x=1", "--shape=x=2"), called(shapes=(("x", (1,)), ("x", (2,)))))


def test_inputs() -> None:
    assert_alike(typed("--input=x=data.csv"), called(inputs=(("x", Path("data.csv")),)))
    with pytest.raises(UsageError, match="LO <= HI"):
        IntRange(5, 1)
    assert "LO <= HI" in typed("--input=x=int:5..1")


def test_efforts() -> None:
    assert_alike(typed("--effort=huge"), called(effort="huge"))
    assert not typed("--effort=max")
    assert not called(effort=EFFORTS["max"])
    assert not called(effort="max")
    with pytest.raises(UsageError, match="trials_per_task"):
        Effort("none", trials_per_task=0, time_budget_s=1.0)


def test_what_can_be_typed_may_be_given_so_from_python() -> None:
    asked = TuneOptions(ModelSpec("m.onnx"), trials="7", time_budget_s="20m", until="3%")  # type: ignore[arg-type]
    assert (asked.trials, asked.time_budget_s, asked.until) == (7, 1200.0, 0.03)


@pytest.mark.parametrize(
    "wrong",
    [
        {"trials": 2.5},
        {"trials": True},
        {"time_budget_s": float("nan")},
        {"time_budget_s": float("inf")},
        {"target": None},
        {"dims": (("T", ()),)},
        {"dims": (("T", (5, 5)),)},
        {"dims": (("T", (9, 5)),)},
        {"dims": (("T", 5),)},
        {"dims": ("T",)},
        {"shapes": (("x", "1,3"),)},
    ],
    ids=str,
)
def test_what_cannot_be_typed_is_refused_too(wrong: dict[str, Any]) -> None:
    of_model = bool({"shapes", "dims"} & set(wrong))
    with pytest.raises(UsageError) as refused:
        _ = ModelSpec("m.onnx", **wrong) if of_model else TuneOptions(MODEL, **wrong)
    assert next(iter(wrong)) in str(refused.value)


def test_every_strategy_that_is_taken_can_be_searched_with() -> None:
    for name in STRATEGIES:
        search_maker(name)
