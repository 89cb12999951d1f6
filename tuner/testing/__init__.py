"""Suites for pytest of what each layer keeps to, for a class of one's own to inherit.

from tuner.testing import StrategyContract

class TestMine(StrategyContract):
    made = Mine
"""

from __future__ import annotations

import pytest

_SUITES = ("cost_model", "loop", "strategy")
pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in _SUITES))
pytest.register_assert_rewrite(
    *(f"spaces.testing.{suite}" for suite in ("library", "measurer", "scheduled"))
)

from spaces.testing.library import LibraryContract  # noqa: E402
from spaces.testing.measurer import MeasurerContract  # noqa: E402
from spaces.testing.scheduled import (  # noqa: E402
    BuilderContract,
    FeaturesContract,
    MutatorContract,
    PostprocContract,
    RunnerContract,
)
from tuner.testing.cost_model import CostModelContract  # noqa: E402
from tuner.testing.loop import AllocatorContract, ObserverContract, StoreContract  # noqa: E402
from tuner.testing.strategy import StrategyContract  # noqa: E402

__all__ = [
    "AllocatorContract",
    "BuilderContract",
    "CostModelContract",
    "FeaturesContract",
    "LibraryContract",
    "MeasurerContract",
    "MutatorContract",
    "ObserverContract",
    "PostprocContract",
    "RunnerContract",
    "StoreContract",
    "StrategyContract",
]
