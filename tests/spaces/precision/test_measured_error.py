"""The error of a precision, what is said of logits, and what `auto` takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model
from spaces.import_check.answers import plan
from spaces.precision.choose import choose_precision, choose_type
from spaces.precision.compare import measure_error
from spaces.precision.convert import in_precision
from spaces.precision.language import Language, read_language
from spaces.precision.samples import read_samples
from tests.spaces.precision.typed_models import (
    INNER,
    LLVM,
    VOCABULARY,
    WIDTH,
    Array,
    dense,
    imported,
    language,
    normal,
    outputs,
    parsed,
)
from tuner.errors import TunerError, UsageError
from tuner.precision import Precision, PrecisionError
from tuner.request.model_spec import IntRange

pytestmark = pytest.mark.tvm
DIMS = {"B": (1, 2), "T": (2, 5)}
INT4 = Precision("int4", "int4")


def logits(ids: Array, table: Array, *weights: Array) -> Array:
    x = table[ids]
    up, down, head = weights
    return np.asarray((np.maximum(x @ up, 0) @ down + x) @ head)


WHOLE = (normal(VOCABULARY, WIDTH), normal(WIDTH, INNER), normal(INNER, WIDTH),
         normal(WIDTH, VOCABULARY))  # fmt: skip


def test_it_is_that_of_the_outputs() -> None:
    model = imported(dense("6"))
    changed = imported(parsed(
        f"shifted (float[6, {WIDTH}] x) => (float[6, 40] y) {{"
        " a = MatMul(x, up)  b = Relu(a)  c = MatMul(b, down)  d = Add(c, bias)"
        " s = Softmax <axis = 1> (d)  y = Add(s, by) }",
        up=normal(WIDTH, INNER), down=normal(INNER, 40), bias=normal(40),
        by=np.full(1, 0.25, "float32"),
    ))  # fmt: skip
    found = measure_error(model, changed, LLVM, ())
    assert found.inputs == 2
    assert found.largest == pytest.approx(0.25, rel=1e-5)
    x = [normal(6, WIDTH, seed=seed) for seed in range(2)]
    least = min(float(np.linalg.norm(outputs(model, rows)[0])) for rows in x)
    on_these = measure_error(model, changed, LLVM, (), [[rows] for rows in x])
    assert on_these.relative == pytest.approx(0.25 * np.sqrt(240) / least, rel=1e-4)
    assert (found.logits, found.perplexity) == (None, None)
    assert measure_error(model, model, LLVM, ()) == PrecisionError(2, 0.0, 0.0)


def test_what_overflows_is_refused() -> None:
    proto = parsed(
        f"large (float[4, {WIDTH}] x) => (float[4, 8] y) {{ a = Mul(x, by)  y = MatMul(a, w) }}",
        by=np.full(1, 1e6, "float32"),
        w=normal(WIDTH, 8),
    )
    model = imported(proto)
    with pytest.raises(TunerError, match=r"^--precision f16: outputs are infinite or no numbers"):
        choose_precision(model, "f16", LLVM, (), None)
    error = choose_precision(model, "bf16", LLVM, (), None).error
    assert error is not None
    assert error.relative < 0.02


def test_tokens_and_logits_are_known_by_the_table_that_tokens_choose_from() -> None:
    assert read_language(imported(language(), DIMS)) == Language("ids", 0, VOCABULARY)
    assert read_language(imported(language("last"), DIMS)) is None
    assert read_language(imported(dense())) is None


def test_logits_and_perplexity_are_those_of_the_tokens() -> None:
    model = imported(language(), DIMS)
    found = measure_error(model, in_precision(model, INT4), LLVM, ())
    assert found.logits == found.largest > 0
    assert found.perplexity is not None
    assert found.inputs == len([*plan(model.shapes)]) > 2, "at several sizes"
    losses: dict[bool, list[float]] = {True: [], False: []}
    for instance, number in plan(model.shapes):
        specs = [spec.at(dict(instance)) for spec in model.inputs]
        (ids,) = make_inputs(specs, [("ids", IntRange(0, VOCABULARY - 1))], seed=number)
        for typed in (True, False):
            (got,) = outputs(model, ids, precision=INT4) if typed else (logits(ids, *WHOLE),)
            shares = np.exp(got) / np.exp(got).sum(-1, keepdims=True)
            for row, follow in zip(shares, ids, strict=True):
                losses[typed] += [-np.log(p[t]) for p, t in zip(row[:-1], follow[1:], strict=True)]
    assert found.perplexity.before == pytest.approx(np.exp(np.mean(losses[False])), rel=1e-4)
    assert found.perplexity.after == pytest.approx(np.exp(np.mean(losses[True])), rel=1e-4)
    assert max(map(len, losses.values())) == min(map(len, losses.values())) > 0


def test_given_tokens_are_taken() -> None:
    model = imported(language(), DIMS)
    same = measure_error(model, model, LLVM, [("ids", IntRange(7, 7))])
    row = logits(np.array([[7, 7]]), *WHOLE)[0, 0].astype("float64")
    share = np.exp(row)[7] / np.exp(row).sum()
    assert same.perplexity is not None
    assert same.perplexity.before == same.perplexity.after == pytest.approx(1 / share, rel=1e-4)


@pytest.mark.parametrize(
    ("features", "name", "why"),
    [
        (["+avx512f", "+avx512vl", "+avx512vnni"], "int8", "VNNI"),
        (["+avx512f", "+avx512vl", "+avx512vnni", "+avx512bf16"], "int8", "VNNI"),
        (["+avx512f", "+avx512vl", "+avx512bf16"], "bf16", "AVX512-BF16"),
        (["+avx2"], "f32", "no instruc"),
    ],
)
def test_auto_takes_what_the_cpu_multiplies(features: list[str], name: str, why: str) -> None:
    """Bytes, then bfloat16."""
    import json

    target = json.dumps({"kind": "llvm", "mcpu": "x86-64", "mattr": features, "num-cores": 1})
    chosen, said = choose_type(target)
    assert (chosen, why in said, "\n" in said) == (name, True, False)


def test_auto_is_for_cpus() -> None:
    with pytest.raises(UsageError, match="it is for CPUs"):
        choose_type('{"kind":"cuda","arch":"sm_80"}')


def test_what_rows_are_scaled_by_is_said(tmp_path: Path) -> None:
    model = imported(dense())
    np.savez(tmp_path / "rows.npz", x=np.stack([3 * normal(6, WIDTH, seed=s) for s in range(3)]))
    said = {
        samples: choose_precision(model, "int8", LLVM, (), samples)
        for samples in (None, "drawn", str(tmp_path / "rows.npz"))
    }
    assert [precision.rows for precision in said.values()] == [
        "rows scaled by the largest number of each tensor",
        "rows scaled by the ranges of 8 drawn inputs",
        f"rows scaled by the ranges of 3 inputs of {tmp_path}/rows.npz",
    ]
    assert [bool(precision.ranges) for precision in said.values()] == [False, True, True]
    for precision in said.values():
        assert precision.error is not None
        assert 0 < precision.error.relative < 0.1
    assert [p.error.inputs for p in said.values() if p.error] == [2, 2, 3], "the user's own"
    with pytest.raises(UsageError, match=r"--calibrate: rows are scaled for int8"):
        choose_precision(model, "bf16", LLVM, (), "drawn")


class TestSamples:
    @pytest.fixture
    def model(self) -> Model:
        return imported(dense("N"), {"N": (1, 4)})

    def saved(self, folder: Path, **arrays: Array) -> Path:
        np.savez(folder / "s.npz", **arrays)  # type: ignore[arg-type]
        return folder / "s.npz"

    def test_are_one_or_several(self, model: Model, tmp_path: Path) -> None:
        x = normal(3, WIDTH)
        (one,) = read_samples(self.saved(tmp_path, x=x), model, ())
        assert np.array_equal(one[0], x)
        several = read_samples(self.saved(tmp_path, x=np.stack([x, 2 * x])), model, ())
        assert np.array_equal(several[1][0], 2 * x)

    @pytest.mark.parametrize(
        ("arrays", "why"),
        [
            ({"y": normal(3, WIDTH)}, "no such input; the model has x"),
            ({"x": normal(3, WIDTH).astype("float64")}, "holds float64 3,64, but .* float32 N,64"),
            ({"x": normal(3, WIDTH + 1)}, "holds float32 3,65"),
            ({}, "holds no array"),
        ],
    )
    def test_that_do_not_fit_are_refused(
        self, model: Model, tmp_path: Path, arrays: dict[str, Array], why: str
    ) -> None:
        with pytest.raises(TunerError, match=f"^--calibrate.*{why}"):
            read_samples(self.saved(tmp_path, **arrays), model, ())

    def test_a_file_that_is_none_is_refused(self, model: Model, tmp_path: Path) -> None:
        (tmp_path / "s.npz").write_bytes(b"nothing")
        with pytest.raises(TunerError, match="cannot read"):
            read_samples(tmp_path / "s.npz", model, ())


def test_a_precision_survives_its_json() -> None:
    from tuner.precision import precision_from_json

    model = imported(language(), DIMS)
    chosen = choose_precision(model, "int8", LLVM, (), "drawn")
    assert precision_from_json(chosen.to_json()) == chosen
    assert replace(chosen, error=None).line in chosen.line
