"""The transformer layer that is compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.encoder import encoder

SMALL = {"sequence": 4, "width": 8, "heads": 2, "inner": 16}


def test_its_output_has_the_size_of_its_input_and_every_position_is_normalised() -> None:
    model = encoder(**SMALL)
    scale, shift = (numpy_helper.to_array(w) for w in model.graph.initializer[-2:])
    x = np.random.default_rng(0).standard_normal((1, 4, 8)).astype(np.float32)
    (out,) = ReferenceEvaluator(model).run(None, {"x": x})
    normal = (out - shift) / scale
    assert out.shape == x.shape
    assert normal.mean(axis=-1) == pytest.approx(0.0, abs=1e-5)
    assert normal.std(axis=-1) == pytest.approx(1.0, abs=1e-4)


def test_positions_attend_to_each_other() -> None:
    model = ReferenceEvaluator(encoder(**SMALL))
    x = np.random.default_rng(0).standard_normal((1, 4, 8)).astype(np.float32)
    changed = x.copy()
    changed[0, 3] += 1.0
    (before,), (after,) = model.run(None, {"x": x}), model.run(None, {"x": changed})
    assert np.abs(before[0, 0] - after[0, 0]).max() > 1e-4


def test_weights_come_from_the_seed() -> None:
    same = encoder(**SMALL).SerializeToString()
    assert encoder(**SMALL).SerializeToString() == same
    assert encoder(**SMALL, seed=1).SerializeToString() != same
