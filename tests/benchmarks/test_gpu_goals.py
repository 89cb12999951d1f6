"""What the best predicted products are made of: each goal is missed where it is missed, and a
product that nobody can build ends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import goals
from benchmarks.gpu.goals import WHATS, describe, find_misses, summarise
from tests.needed import needs_nvcc
from tuner.record import Status

GOOD: Mapping[str, Any] = {
    "kind": "float16",
    "arch": "sm_80",
    "stages": 3,
    "tensor_instructions": {"HMMA.16816.F32": 64},
    "loads": {"LDGSTS.128": 8},
    "spilled_bytes": 0,
    "bank_conflicts": 0,
    "ffma_share": 0.0,
    "refused": 0,
}
BY_THREADS = {**GOOD, "kind": "float32", "tensor_instructions": {}, "ffma_share": 0.86}


def test_a_row_that_reaches_all_misses_nothing() -> None:
    hopper = {"tensor_instructions": {"HGMMA.64x256x16.F32": 4}, "loads": {"UTMALDG": 2}}
    for row in (GOOD, BY_THREADS, {**GOOD, "arch": "sm_90a", **hopper}):
        assert find_misses(row) == {}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({**GOOD, "tensor_instructions": {"HMMA.1688.F32": 64}}, "instructions"),
        ({**GOOD, "tensor_instructions": {}}, "instructions"),
        ({**GOOD, "arch": "sm_90a"}, "instructions"),
        ({**GOOD, "loads": {"LDGSTS.128": 8, "LDG.16": 1}}, "loads"),
        ({**GOOD, "stages": 2}, "stages"),
        ({**GOOD, "spilled_bytes": 4}, "spills"),
        ({**GOOD, "bank_conflicts": 1}, "bank conflicts"),
        ({**BY_THREADS, "ffma_share": 0.84}, "FFMA"),
        ({**GOOD, "refused": 1}, "refused"),
    ],
)
def test_each_goal_is_missed_by_itself(row: Mapping[str, Any], what: str) -> None:
    assert [*find_misses(row)] == [what]
    assert what in WHATS


def test_a_summary_counts_who_misses_what() -> None:
    rows = (GOOD, BY_THREADS, {**GOOD, "stages": 2})
    found = summarise([{**row, "misses": find_misses(row)} for row in rows])
    assert (found["rows"], found["reach_all"], found["miss_stages"]) == (3, 2, 1)
    assert found["miss_spills"] == found["miss_bank_conflicts"] == 0
    assert found["least_ffma_share"] == 0.86


@pytest.mark.tvm
def test_a_product_of_which_no_setting_is_built_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = SimpleNamespace(status=Status.BUILD_FAILED, error="it spills", artifact=b"")
    builder = SimpleNamespace(learn=lambda task: None, build=lambda key, candidate: refusal)
    space = SimpleNamespace(name="kernel:some-1", ranked=[{"stages": n} for n in range(300)])
    opened = (SimpleNamespace(key="task"), space)
    monkeypatch.setattr(goals, "child", lambda: builder)
    monkeypatch.setattr(goals, "open_space", lambda *_: opened)
    with pytest.raises(RuntimeError, match=r"no setting is built: .*it spills"):
        describe("float16", "sm_80", "NT", (64, 64, 64))


@needs_nvcc
@pytest.mark.tvm
@pytest.mark.long
@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_a_row_tells_of_a_kernel_that_is_built(kind: str) -> None:
    row = describe(kind, "sm_80", "NT", (1024, 1024, 1024))
    assert row["misses"] == {}
    assert row["predicted_us"] > 0
    assert json.loads(json.dumps(row)) == row
