"""The names of metrics in MLflow, and how exactly the first ones are told.

Its pages show metrics by group, which is what comes before the last slash, and the groups in the
order of their names: so what a run is for comes first, which is the latency and the gain of the
model, and failures last.
"""

from __future__ import annotations

from typing import Final

GAIN: Final = "model/gain"
LATENCY: Final = "model/latency_ms"
LATENCY_BY_TIME: Final = "model/latency_ms_by_time"
UNTUNED: Final = "model/untuned_ms"

COST_MODEL_ACCURACY: Final = "predictions/cost_model_accuracy"
COST_MODEL_FIT: Final = "predictions/cost_model_fit_s"
COST_MODEL_VERSION: Final = "predictions/cost_model_version"
ESTIMATE_ACCURACY: Final = "predictions/estimate_accuracy"
NEXT_GAIN: Final = "predictions/next_gain"

SLOTS_BUSY: Final = "slots_busy/"
SPACE_TRIALS: Final = "space_trials/"
SPACE_WON: Final = "space_won/"

TASK_BEST: Final = "task/best_us"
TASK_BEST_BY_TIME: Final = "task/best_us_by_time"
TASK_GAIN: Final = "task/gain"
TASK_GFLOPS: Final = "task/gflops"
TASK_KERNELS: Final = "task/kernels"
TASK_KERNELS_LOSS: Final = "task/kernels_loss"
TASK_KERNELS_LATENCY: Final = "task/kernels_us"
TASK_LATENCY: Final = "task/latency_us"
TASK_LOSS: Final = "task/loss_by_kernels"
TASK_PREDICTION_ERROR: Final = "task/prediction_error"
TASK_RETIMED: Final = "task/retimed_us"
TASK_SHAPE: Final = "task/shape_us"
TASK_SHAPE_BEST: Final = "task/shape_best_us"
TASK_SHARE: Final = "task/share"
TASK_UNTUNED: Final = "task/untuned_us"

TRIALS: Final = "trials/total"
TRIALS_PER_S: Final = "trials/per_s"
CENSORED: Final = "trials/censored"
DUPLICATES: Final = "trials/duplicates"
FAILED: Final = "trials_failed/"


def round_shown(value: float) -> float:
    """A value of the whole model as a table of runs shows it: with four digits that count."""
    return float(f"{value:.4g}")
