"""The runner of instructions on a device: children that spoil it, results, and what it says where
there is no device."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.instructions.__main__ import arch_of, main
from benchmarks.gpu.instructions.accumulation import EXACT, SCALE, Model, Term, fit, sum_by
from benchmarks.gpu.instructions.compile import compile_programs, join_sources, read_index
from benchmarks.gpu.instructions.confirmed import UNCONFIRMED, table
from benchmarks.gpu.instructions.devices import DeviceProcess
from benchmarks.gpu.instructions.questions.catalogue import questions
from benchmarks.gpu.instructions.saved import RESULT, plain
from tests.needed import needs_nvcc
from tests.spaces.emulation.instructions.catalogue import programs
from tests.spaces.emulation.instructions.rounding import HALF, SINGLE, value_of

PROGRAMS = programs()
CHILD = """
import json, sys, time
import numpy as np
print(json.dumps({"device": "made"}), flush=True)
for line in sys.stdin:
    name = line.strip()
    if name == "ldmatrix.x1":
        time.sleep(600)
    if name == "ldmatrix.x2":
        sys.exit(3)
    if name == "ldmatrix.x4":
        print(json.dumps({"error": "cuCtxSynchronize: illegal (715)"}), flush=True)
        break
    np.savez(sys.argv[1], np.arange(3), np.ones(2))
    print(json.dumps({"file": sys.argv[1]}), flush=True)
"""


@pytest.fixture
def process(tmp_path: Path) -> DeviceProcess:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "outputs.npz")]
    return DeviceProcess(command, answer_s=2.0)


def test_outputs_come_from_the_file_that_the_child_names(process: DeviceProcess) -> None:
    assert process.start() == {"device": "made"}
    outputs = process.run(PROGRAMS["movmatrix.trans"])
    assert not isinstance(outputs, str)
    assert [array.tolist() for array in outputs] == [[0, 1, 2], [1, 1]]
    process.end()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ldmatrix.x1", "no answer in 2 s"),
        ("ldmatrix.x2", "the process on the device ended without a word"),
        ("ldmatrix.x4", "cuCtxSynchronize: illegal (715)"),
    ],
)
def test_one_that_spoils_the_device_costs_the_others_nothing(
    process: DeviceProcess, name: str, says: str
) -> None:
    assert process.run(PROGRAMS[name]) == says
    assert not isinstance(process.run(PROGRAMS["movmatrix.trans"]), str)
    process.end()


@pytest.mark.parametrize(
    ("capability", "arch"), [("9.0", "sm_90a"), ("8.6", "sm_86"), ("10.0", "sm_100a")]
)
def test_all_are_compiled_for_the_device_that_is_there(capability: str, arch: str) -> None:
    assert arch_of({"capability": capability}) == arch
    assert arch_of({"error": "no driver"}) == ""


def test_sources_are_joined_with_their_includes_once() -> None:
    both = [PROGRAMS["atomicAdd.half"], PROGRAMS["ldmatrix.x1"]]
    source = join_sources(both)
    assert source.count("#include <cuda_fp16.h>") == 1
    assert [program.kernel in source for program in both] == [True, True]


@needs_nvcc
def test_without_a_device_all_is_compiled_and_nothing_called_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "benchmarks.gpu.instructions.__main__.child_command",
        lambda *_: [sys.executable, "-c", 'print(\'{"error": "no driver: none"}\')'],
    )
    assert main(["--out", str(tmp_path), "--only", "matrix.x4"]) == 0
    said = capsys.readouterr().out
    assert "0 of 4 programs ran" in said
    assert "ldmatrix.x4: compiled, and run on no device: no driver: none" in said
    document = json.loads((tmp_path / RESULT).read_text())
    assert document["programs"]["stmatrix.x4.trans"]["ran"] is False
    assert len(read_index(tmp_path / "cubins").cubins) == 4
    assert not (tmp_path / "instructions.npz").exists()


@needs_nvcc
def test_each_question_compiles(tmp_path: Path) -> None:
    asked = [question.program for question in questions().values()]
    assert compile_programs(asked, tmp_path).errors == {}


@pytest.mark.gpu
def test_this_device_does_what_the_definitions_say(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / RESULT).read_text())["programs"]
    assert {name for name, row in rows.items() if not row["ran"]} == set()


def test_numbers_that_json_lacks_become_words() -> None:
    assert plain({"a": [float("nan"), 1.5], "b": float("inf")}) == {"a": ["nan", 1.5], "b": "inf"}


def test_a_section_is_confirmed_once_a_device_gave_what_it_says() -> None:
    names = ["ldmatrix.x1", "ldmatrix.x2", "movmatrix.trans"]
    known = {name: PROGRAMS[name] for name in names}
    assert table({}, known).count(f"| {UNCONFIRMED} |") == 2
    right = {"ran": True, "says": "equal"}
    result = {
        "date": "2026-11-26T23:00:00+00:00",
        "device": {"device": "NVIDIA H100"},
        "programs": {"ldmatrix.x1": right, "movmatrix.trans": right},
    }
    said = table(result, known).splitlines()
    assert said[2].endswith("| 2 | 1 of 2 confirmed |")
    assert said[3].endswith("| 1 | confirmed: NVIDIA H100, 2026-11-26 |")
    result["programs"] = {
        **dict.fromkeys(names, right),
        "ldmatrix.x2": {**right, "says": "differs"},
    }
    assert table(result, known).splitlines()[2].endswith("| differs: `ldmatrix.x2` |")


# ---- sums


def test_a_sum_that_keeps_all_bits_is_the_exact_one_rounded() -> None:
    terms = [Term(int(Fraction(n, 7 << 20) * (1 << SCALE)), 0) for n in range(-40, 41, 3)]
    exact = Fraction(sum(term.value for term in terms), 1 << SCALE)
    bits = sum_by(Model(len(terms), EXACT, "rn", "product"), terms, 0, SINGLE)
    value = value_of(bits, SINGLE)
    assert isinstance(value, Fraction)
    assert np.float32(float(exact)) == np.float32(float(value))


def test_terms_lose_what_is_below_the_largest_ones_unit() -> None:
    one, tiny = 1 << SCALE, 1 << (SCALE - 24)
    terms = [Term(one, 0), *[Term(tiny, -24)] * 7]
    cut = sum_by(Model(8, 23, "rz", "product"), terms, 0, SINGLE)
    kept = sum_by(Model(8, 24, "rz", "product"), terms, 0, SINGLE)
    assert (value_of(cut, SINGLE), value_of(kept, SINGLE)) == (1, 1 + Fraction(3, 1 << 23))


@pytest.mark.parametrize(
    "model",
    [Model(8, 24, "rz", "factors"), Model(4, 26, "rn", "product"), Model(16, 25, "rz", "factors")],
)
def test_the_model_that_made_the_sums_is_found(model: Model) -> None:
    rng = np.random.default_rng(3)
    left, right = (
        (rng.choice([-1, 1], shape) * rng.uniform(1, 2, shape) * 2.0 ** rng.integers(-9, 1, shape))
        .astype(np.float16)
        .view(np.uint16)
        for shape in ((1, 16, 16), (1, 16, 8))
    )
    start = (rng.uniform(-4, 4, (1, 16, 8))).astype(np.float32).view(np.uint32)
    got = np.zeros_like(start)
    for place in np.ndindex(got.shape):
        terms = []
        for x, y in zip(left[0, place[1]].tolist(), right[0, :, place[2]].tolist(), strict=True):
            a, b = value_of(x, HALF), value_of(y, HALF)
            assert isinstance(a, Fraction)
            assert isinstance(b, Fraction)
            exponent = ((x >> 10) & 31) + ((y >> 10) & 31) - 30
            terms.append(Term(int(a * b * (1 << SCALE)), exponent))
        before = value_of(int(start[place]), SINGLE)
        got[place] = sum_by(model, terms, int(Fraction(before) * (1 << SCALE)), SINGLE)
    found = fit(left, right, start, got, factors=HALF)
    best = found["best"]
    assert isinstance(best, dict)
    assert best[str(model)] == found["elements"]
    assert next(iter(best.values())) == found["elements"]
