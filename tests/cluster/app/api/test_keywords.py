"""`tuner.tune` takes plain Python: dictionaries, ranges, durations as text, models from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from cluster.app.api.keywords import model_spec, tune_options
from cluster.app.api.tune import options_of
from tuner.effort import EFFORTS
from tuner.errors import UsageError
from tuner.request.model_spec import InputArray, IntRange, ModelSpec
from tuner.request.options import TuneOptions

MODEL = ModelSpec("m.onnx")


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({"time_budget": "20m"}, {"time_budget_s": 1200.0}),
        ({"time_budget": 90}, {"time_budget_s": 90}),
        ({"device_wait": "1h"}, {"device_wait_s": 3600.0}),
        ({"effort": "quick"}, {"effort": EFFORTS["quick"]}),
        ({"run": "runs/mine"}, {"run": "runs/mine"}),
        ({"run": "s3://bucket/run1"}, {"run": "s3://bucket/run1"}),
        ({"seeds_from": "runs/a"}, {"seeds_from": ("runs/a",)}),
        ({"seeds_from": ["runs/a", Path("b")]}, {"seeds_from": ("runs/a", Path("b"))}),
        ({"target": {"kind": "llvm"}}, {"target": '{"kind": "llvm"}'}),
        ({"trials": 8, "seed": 3}, {"trials": 8, "seed": 3}),
    ],
    ids=str,
)
def test_keywords_are_the_options_in_plain_words(
    said: dict[str, Any], asked: dict[str, Any]
) -> None:
    assert tune_options(MODEL, said) == TuneOptions(MODEL, **asked)


@pytest.mark.parametrize(
    ("said", "closed"),
    [
        ({"args": {"m": 96, "n": 64}}, {"args": (("m", 96), ("n", 64))}),
        ({"args": (("m", 96),)}, {"args": (("m", 96),)}),
        ({"shapes": {"x": [1, 3]}}, {"shapes": (("x", (1, 3)),)}),
        ({"inputs": {"x": "x.npy"}}, {"inputs": (("x", Path("x.npy")),)}),
        ({"inputs": {"ids": range(9)}}, {"inputs": (("ids", IntRange(0, 8)),)}),
        ({"dims": {"T": range(1, 4)}}, {"dims": (("T", (1, 2, 3)),)}),
        ({"dims": {"T": [5, 3, 5]}}, {"dims": (("T", (3, 5)),)}),
        ({"dims": {"T": 5}}, {"dims": (("T", (5,)),)}),
        ({"dims": {"T": "1..3"}}, {"dims": (("T", (1, 2, 3)),)}),
        ({"dims": {"T": np.arange(2, 4)}}, {"dims": (("T", (2, 3)),)}),
        (
            {"dims": {"T": (5, 3)}, "weights": {3: 1, 5: 0.5}},
            {"dims": (("T", (3, 5)),), "weights": (((("T", 3),), 1.0), ((("T", 5),), 0.5))},
        ),
        (
            {"dims": {"T": (5, 3)}, "weights": [0.5, 1]},
            {"dims": (("T", (3, 5)),), "weights": (((("T", 5),), 0.5), ((("T", 3),), 1.0))},
        ),
        (
            {"dims": {"T": [3], "B": [1]}, "weights": {(3, 1): 2}},
            {"dims": (("T", (3,)), ("B", (1,))), "weights": (((("B", 1), ("T", 3)), 2.0),)},
        ),
        (
            {"dims": {"T": [3]}, "weights": "lengths.json"},
            {"dims": (("T", (3,)),), "weights": Path("lengths.json")},
        ),
    ],
    ids=str,
)
def test_dictionaries_stand_for_pairs(said: dict[str, Any], closed: dict[str, Any]) -> None:
    assert model_spec("m.onnx", said) == ModelSpec("m.onnx", **closed)


def test_an_array_stands_for_the_file_of_it(tmp_path: Path) -> None:
    mask = np.ones((2, 3), "int64")
    np.save(tmp_path / "mask.npy", mask)
    spec = model_spec("m.onnx", {"inputs": {"mask": mask}})
    ((_, value),) = spec.inputs
    assert isinstance(value, InputArray)
    assert value.npy == (tmp_path / "mask.npy").read_bytes()
    again = model_spec("m.onnx", {"inputs": {"mask": mask.tolist()}})
    assert (spec, hash(spec)) == (again, hash(again))
    assert len(repr(spec)) < 200


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"trails": 8}, "trails: no such keyword; did you mean trials?"),
        ({"colour": 8}, "colour: no such keyword; there are address"),
        ({"time_budget": "soon"}, "'soon' is not a duration"),
        ({"time_budget": -1}, "'-1s' is not a duration"),
        ({"effort": "hard"}, "unknown effort 'hard'"),
        ({"trials": "many"}, "trials='many'"),
        ({"run": 7}, "run=7"),
        ({"run": ""}, "run=''"),
        ({"seeds_from": 7}, "seeds_from"),
        ({"target": "rocm"}, "unknown target 'rocm'"),
        ({"args": 7}, "args: '7' is no dictionary"),
        ({"args": [7]}, "args: '7' is no pair"),
        ({"args": {7: 7}}, "args: '(7, 7)' is no pair"),
        ({"shapes": {"x": 7}}, "'x=7' is not a shape"),
        ({"inputs": {"x": [[1], [1, 2]]}}, "'x' is no file, range or array: setting an array"),
        ({"inputs": {"x": None}}, "inputs: 'x' is no file, range or array: Object arrays"),
        ({"inputs": {"x": range(0, 9, 2)}}, "names no .npy file"),
        ({"inputs": {" ": np.ones(3)}}, "inputs: ' =the array' is not an input"),
        ({"inputs": {"x": range(0)}}, "names no .npy file"),
        ({"dims": {"T": range(1, 10**12)}}, "'T' has more than 65536 values"),
        ({"dims": {"T": ["a", 1]}}, "'T=a,1' is no dimension"),
        ({"dims": {"T": "one two"}}, "'T=one two' is no dimension"),
        ({"dims": {"T": True}}, "is no dimension"),
        ({"weights": {5: 1}}, "weights: no dims"),
        ({"dims": {"T": [5]}, "weights": {(5, 1): 1}}, "'(5, 1)' has not a value for each"),
        ({"dims": {"T": [5]}, "weights": {5: -1}}, "'-1' is no weight"),
        ({"dims": {"T": [5, 6]}, "weights": [1]}, "1 of them are not one for each value of T"),
        ({"dims": {"T": [5]}, "weights": 7}, "give a dictionary"),
        ({"example_inputs": ()}, "a torch.nn.Module needs them"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_in_one_line(said: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        options_of("m.onnx", said)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_whole_request_stands_for_itself() -> None:
    request = TuneOptions(MODEL, trials=8)
    assert options_of(request, {}) is request
    with pytest.raises(UsageError, match="trials: a TuneOptions says everything"):
        options_of(request, {"trials": 9})


def test_a_model_or_a_run_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="give a model, or the run"):
        tuner.tune()
    with pytest.raises(tuner.TunerError, match="there is no run folder"):
        tuner.tune(run="runs/nowhere")


@pytest.mark.parametrize("name", tuner.__all__)
def test_what_the_package_names_can_be_imported_from_it(name: str) -> None:
    if name in ("ShapeVar", "DynamicProgram", "lower", "tir_pipeline"):
        pytest.importorskip("tvm")
    assert getattr(tuner, name) is not None
