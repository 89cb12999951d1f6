"""An elastic auto-tuner for tensor programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.version import VERSION

__version__ = VERSION
__all__ = [
    "EFFORTS",
    "DynamicProgram",
    "IntRange",
    "ModelSpec",
    "ShapeVar",
    "TuneOptions",
    "TuneResult",
    "TunerError",
    "UsageError",
    "__version__",
    "lower",
    "passes",
    "tir_pipeline",
    "tune",
]

if TYPE_CHECKING:
    from cluster.app import passes
    from cluster.app.api.tune import tune
    from cluster.app.driver.tune_result import TuneResult
    from spaces.frontends.shape_var import DynamicProgram, ShapeVar
    from spaces.lowering.lower import lower
    from spaces.passes.pipeline import tir_pipeline
    from tuner.effort import EFFORTS
    from tuner.errors import TunerError, UsageError
    from tuner.request.model_spec import IntRange, ModelSpec
    from tuner.request.options import TuneOptions

# Resolved when first used, so that `import tuner` stays light and the packages to the right of
# this one are not its dependencies: the two doors are the layering test's named exceptions.
_LAZY = {
    "tune": "cluster.app.api.tune",
    "TuneResult": "cluster.app.driver.tune_result",
    "TuneOptions": "tuner.request.options",
    "ModelSpec": "tuner.request.model_spec",
    "IntRange": "tuner.request.model_spec",
    "EFFORTS": "tuner.effort",
    "lower": "spaces.lowering.lower",
    "tir_pipeline": "spaces.passes.pipeline",
    "ShapeVar": "spaces.frontends.shape_var",
    "DynamicProgram": "spaces.frontends.shape_var",
    "TunerError": "tuner.errors",
    "UsageError": "tuner.errors",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "passes":
        return importlib.import_module("cluster.app.passes")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
