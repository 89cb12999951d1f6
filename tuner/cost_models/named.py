"""Cost models by name: ours by module and class, a user's by its file."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tuner.cost_models.base import CostModel
from tuner.process.lean_import import HEAVY_EXTRAS, without
from tuner.source import Source
from tuner.user_code.faults import blame
from tuner.user_code.load import load

XGB_MODEL = "tuner.cost_models.xgb:XgbModel"
"""The default cost model of a learner: `module:class`, made with a seed."""

Named = Source | str
"""What names a cost model."""


def model_class(named: Named) -> Callable[..., CostModel]:
    """The class of a cost model, which is made with a seed.

    Raises:
        LayerFailed: a user's file does not run.
    """
    if isinstance(named, Source):
        with blame(named, "cost model"):
            theirs: Callable[..., CostModel] = load(named)
            return theirs
    module, _, name = named.partition(":")
    ours: Callable[..., CostModel] = getattr(importlib.import_module(module), name)
    return ours


def new_model(named: Named, seed: int) -> CostModel:
    """A cost model that is not fitted yet.

    Raises:
        LayerFailed: a user's class raises.
    """
    with without(*HEAVY_EXTRAS), blame(theirs(named), "cost model"):
        return model_class(named)(seed)


def theirs(named: Named) -> Source | None:
    """The file of a cost model that is a user's."""
    return named if isinstance(named, Source) else None
