"""Vectors that a cost model learns from: TVM's per-store features, brought to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float32]


class FeatureExtractor:
    """Extracts per-store features."""

    def __init__(self, target_json: str) -> None:
        import json

        from tvm.s_tir import meta_schedule as ms
        from tvm.target import Target
        self._target = Target(json.loads(target_json))
        self._per_store = ms.feature_extractor.PerStoreFeature(
            buffers_per_store=5,
            arith_intensity_curve_num_samples=10,
            cache_line_bytes=64,
            extract_workload=True,
        )

    def stores(self, module: Any, schedules: Sequence[Any]) -> list[Matrix]:
        from tvm.s_tir import meta_schedule as ms
        from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

        context = ms.TuneContext(module, target=self._target, rand_state=1, num_threads=1)
        candidates = [MeasureCandidate(s, []) for s in schedules]
        return [m.numpy() for m in self._per_store.extract_from(context, candidates)]
