"""What users type is understood, or refused in one line that shows a right one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.app.console import parse
from tuner import checks
from tuner.errors import UsageError
from tuner.request import target_text
from tuner.request.model_spec import IntRange


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("20m", 1200),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
        (" 1d1s ", 86401),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert checks.duration_s(text) == seconds


@given(st.integers(0, 300), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_a_duration_is_the_sum_of_its_parts(d: int, h: int, m: int, s: int) -> None:
    assert checks.duration_s(f"{d}d{h}h{m}m{s}s") == ((d * 24 + h) * 60 + m) * 60 + s


def test_shapes_inputs_and_arguments() -> None:
    assert parse.shape("x=1,3,224,224") == ("x", (1, 3, 224, 224))
    assert parse.shape("name=with:odd=8") == ("name=with:odd", (8,))
    assert parse.input_value("ids=int:-3..30522") == ("ids", IntRange(-3, 30522))
    assert parse.input_value("x=data/a=b.npy") == ("x", Path("data/a=b.npy"))
    assert parse.argument("m=512") == ("m", 512)
    assert parse.argument("eps=1e-5") == ("eps", 1e-5)
    assert parse.argument("dtype=float16") == ("dtype", "float16")
    assert parse.argument("text=") == ("text", "")
    assert parse.argument("value=nan") == ("value", "nan")


def test_dimensions() -> None:
    assert parse.dimension("T=1..4") == ("T", (1, 2, 3, 4))
    assert parse.dimension("M=16..64:16") == ("M", (16, 32, 48, 64))
    assert parse.dimension("M=1..10:4") == ("M", (1, 5, 9))
    assert parse.dimension("T=5,24,43") == ("T", (5, 24, 43))
    assert parse.dimension(" T = 7 ") == ("T", (7,))


def test_a_dimension_may_be_none_at_times_and_follow_from_others() -> None:
    assert parse.dimension_or_tie("past=0..2") == ("past", (0, 1, 2))
    assert parse.dimension_or_tie(" all = past + 2*new") == ("all", "past + 2*new")
    assert parse.split_ties([("T", (1,)), ("all", "T+n")]) == ((("T", (1,)),), (("all", "T+n"),))
    with pytest.raises(UsageError, match=r"'T=1\.\.N' is no dimension: .*, or all=past\+new"):
        parse.dimension_or_tie("T=1..N")


def test_a_size_of_a_dimension() -> None:
    assert parse.size("T=16") == ("T", (16,))
    assert parse.size(" T = 7 ") == ("T", (7,))


@pytest.mark.parametrize("text", ["foo", "T", "T=", "=16", "T=1..4", "T=1,2", "T=-1", "T=x"])
def test_a_hint_for_a_size_shows_one_and_no_range(text: str) -> None:
    with pytest.raises(UsageError, match=r"write for example T=16$"):
        parse.size(text)


def test_a_dimension_has_each_value_once_in_order() -> None:
    assert parse.dimension("T=128, 1..3, 2..4") == ("T", (1, 2, 3, 4, 128))


def test_a_dimension_may_be_as_large_as_an_extent_but_not_have_that_many_values() -> None:
    assert parse.dimension("T=2147483647") == ("T", (2147483647,))
    assert len(parse.dimension("T=1..65536")[1]) == 65536
    with pytest.raises(UsageError, match="more than 65536 values: give it a step"):
        parse.dimension("T=1..65537")
    assert len(parse.dimension("T=1..2147483647:65536")[1]) == 32768


@given(st.integers(1, 5000), st.integers(0, 500), st.integers(1, 50))
def test_a_range_of_a_dimension_has_both_ends(low: int, steps: int, step: int) -> None:
    high = low + steps * step
    _, values = parse.dimension(f"T={low}..{high}:{step}")
    assert values == tuple(range(low, high + 1, step))
    assert (values[0], values[-1]) == (low, high)


def test_names_given_twice_are_refused() -> None:
    assert parse.distinct(["x=1", "y=2"], parse.shape) == (("x", (1,)), ("y", (2,)))
    with pytest.raises(UsageError, match="'x' is given twice; the second is 'x=2'"):
        parse.distinct(["x=1", "x=2"], parse.shape)


def test_targets() -> None:
    assert [target_text.target(t) for t in ("auto", "llvm", " cuda ")] == ["auto", "llvm", "cuda"]
    text = '{"mcpu": "cascadelake", "kind": "llvm"}'
    assert json.loads(target_text.target(text)) == json.loads(text)


def test_equal_targets_give_equal_text() -> None:
    texts = ('{"kind":"llvm","a":1}', '{"a": 1, "kind": "llvm"}')
    assert len({target_text.target(text) for text in texts}) == 1


def test_addresses() -> None:
    for text in ("auto", "local", "127.0.0.1:6379", "head.cluster.local:6379", "[::1]:6379"):
        assert checks.address(text) == text


def test_numbers() -> None:
    assert checks.positive("128") == 128
    assert checks.seed("0") == 0
    assert [checks.share(text) for text in ("3%", "0.05", "0", "100%")] == [0.03, 0.05, 0.0, 1.0]


BAD: list[tuple[Callable[[str], Any], list[str]]] = [
    (
        checks.duration_s,
        ["", "20", "m", "-5m", "0s", "0d0h", "5 parsecs", "30m1h", "1h1h", "999999d", "1e9s", "٣m"],
    ),
    (checks.positive, ["0", "-1", "", "1.5", "ten", "1_000", "9" * 10, "9" * 400, "٣", "+1"]),
    (checks.seed, ["-1", "x", ""]),
    (checks.share, ["", "%", "3 percent", "3%%", "%3", "101%", "1.1", "-1", "nan", "x"]),
    (
        parse.shape,
        ["", "x", "x=", "=1", "x=1,", "x=1,,2", "x=0", "x=-1", "x=1,a", "x=1.5", "x=9999999999"],
    ),
    (
        parse.dimension,
        ["", "T", "T=", "=1..8", "T=a", "T=1,", "T=1,,2", "T=1.5", "T=1..", "T=..8", "T=1..2..3"],
    ),
    (
        parse.dimension,
        ["T=-1", "T=-1..8", "T=1..0", "T=9..1", "T=1..9:0", "T=1..9:-1", "T=5:2", "T=1:"],
    ),
    (
        parse.dimension,
        ["T=9999999999", "T=1..9999999999", "T=1..99999999999", "T=1..2000000000", "T=٣", "T==5"],
    ),
    (
        parse.input_value,
        ["", "x", "x=", "=a.npy", "x=a.txt", "x=int:", "x=int:1", "x=int:5..1", "x=int:a..b"],
    ),
    (parse.argument, ["", "m", "=3", "3m=1", "a b=1"]),
    (
        target_text.target,
        ["", "llmv", "vulkan", '"llvm"', "[]", "{", "{}", '{"kind": "rocm"}', '{"kind": ["llvm"]}'],
    ),
    (
        target_text.target,
        [f'{{"kind": "llvm", "num-cores": {n}}}' for n in ("0", "-1", "1.5", "true", '"2"')],
    ),
    (
        checks.address,
        ["", "remote", "host", "host:", "host:0", "host:70000", ":6379", "ray://h:1", "a b:1"],
    ),
    (checks.nonempty, ["", "  ", "a\0b", "a\udcffb"]),
]


@pytest.mark.parametrize(
    ("function", "text"),
    [pytest.param(f, t, id=f"{f.__name__}-{t[:16]!r}") for f, texts in BAD for t in texts],
)
def test_bad_text_gets_one_clear_line(function: Callable[[str], Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        function(text)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.exit_code == 2


def test_deeply_nested_target_is_refused() -> None:
    with pytest.raises(UsageError):
        target_text.target('{"kind": ' * 100_000)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for function, _ in BAD:
        try:
            function(text)
        except UsageError:
            continue
