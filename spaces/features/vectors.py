"""Vectors that a cost model learns from, one for each scheduled program, all of one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.features.knob_features import KNOB_LENGTH
from spaces.features.loop_nest import heaviest_nest
from spaces.features.nest_features import NEST_LENGTH, nest_vector
from spaces.ir.guard import note

Vector = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float32]

_STORE_LENGTH = 172
_FLOAT_OPS = 7
"""TVM's first columns: floating point operations of a store by kind, as log2(1 + n)."""

PROGRAM_LENGTH = 2 * _STORE_LENGTH + 1 + NEST_LENGTH
FEATURE_LENGTH = PROGRAM_LENGTH + KNOB_LENGTH

FEATURE_VERSION = f"2-{FEATURE_LENGTH}"
"""Version of the vectors. Count it up whenever a column changes its meaning: cost models that were
trained on another version are refused."""


class FeatureExtractor:
    """Describes scheduled programs for a cost model.

    A vector holds TVM's features of the store that computes most, the sum of the features of all
    stores, their number, and the loop nest of the heaviest block. Its last part is for the knobs
    of templates (see `beside_programs`).

    Args:
        target_json: canonical JSON of the target.
    """

    def __init__(self, target_json: str) -> None:
        from spaces.intrinsics.registration import stub_intrinsics
        from spaces.targets.config import target_cores
        from spaces.targets.target import parse_target

        stub_intrinsics()
        from tvm.s_tir import meta_schedule as ms

        self._target = parse_target(target_json)
        self._cores = max(1, target_cores(target_json))
        self._per_store = ms.feature_extractor.PerStoreFeature(
            buffers_per_store=5,
            arith_intensity_curve_num_samples=10,
            cache_line_bytes=64,
            extract_workload=True,
        )

    def extract(self, module_json: str, schedules: Sequence[Any]) -> list[Vector]:
        """One vector of `FEATURE_LENGTH` for each schedule, in order.

        A program that TVM cannot lower far enough to describe gets zeros.

        Args:
            module_json: the task's unscheduled module, as TVM JSON.
            schedules: `tvm.s_tir.Schedule`s of it, post-processing included.
        """
        stores = self._stores(module_json, schedules)
        return [
            describe(m, nest_vector(heaviest_nest(s.mod["main"]), self._cores))
            for m, s in zip(stores, schedules, strict=True)
        ]

    def _stores(self, module_json: str, schedules: Sequence[Any]) -> list[Matrix]:
        """TVM's features: a row for each store of each program; no rows where it refused."""
        from tvm.s_tir import meta_schedule as ms

        from spaces.ir.schedules import task_module

        context = ms.TuneContext(
            task_module(module_json), target=self._target, rand_state=1, num_threads=1
        )
        try:
            return self._extract_together(context, schedules)
        except Exception as error:  # TVM raises whatever its C++ side threw, for all if one is bad
            note(error, "features of a program")
            if len(schedules) == 1:
                return [np.zeros((0, _STORE_LENGTH), dtype=np.float32)]
        return [m for s in schedules for m in self._stores(module_json, [s])]

    def _extract_together(self, context: Any, schedules: Sequence[Any]) -> list[Matrix]:
        from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

        candidates = [MeasureCandidate(schedule, []) for schedule in schedules]
        return [array.numpy() for array in self._per_store.extract_from(context, candidates)]


def beside_programs(knobs: Vector) -> Vector:
    """The vector of a template's setting as long as that of a program, for a cost model that ranks
    both: zeros, and last the setting's own (`spaces.features.knob_features`)."""
    return np.concatenate([np.zeros(PROGRAM_LENGTH, dtype=np.float32), knobs])


def describe(stores: Matrix, nest: Vector) -> Vector:
    """Bring the features of any number of stores to one length, and add those of the nest.

    Args:
        stores: one row for each store.
        nest: a vector of `nest_vector`.
    """
    if len(stores) == 0:
        return np.zeros(FEATURE_LENGTH, dtype=np.float32)
    float_ops = np.exp2(stores[:, :_FLOAT_OPS].astype(np.float64)).sum(axis=1)
    heaviest = stores[int(np.argmax(float_ops))]
    none = np.zeros(KNOB_LENGTH)
    parts = [heaviest, stores.sum(axis=0), np.array([len(stores)]), nest, none]
    return np.nan_to_num(np.concatenate(parts).astype(np.float32))
