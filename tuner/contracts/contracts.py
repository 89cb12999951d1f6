"""The contract of each layer: its protocol, and what an object is made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.contracts.seams import (
    Compiles,
    Extracts,
    KeepsRecords,
    Mutates,
    PostProcesses,
    Provides,
    Times,
)
from tuner.cost_models.base import CostModel
from tuner.errors import TunerError, UsageError
from tuner.layers import Layers
from tuner.measure import Measurer
from tuner.search.base import Search
from tuner.session.allocator import Allocator
from tuner.session.observer import Observer
from tuner.user_code.contract import check
from tuner.user_code.load import complaint, load


@dataclass(frozen=True, slots=True)
class Contract:
    """What a layer must be able to do.

    Attributes:
        what: it is called so in messages.
        protocol: its methods.
        made_with: what its class is called with, in words.
    """

    what: str
    protocol: type
    made_with: str = "nothing"


CONTRACTS: Mapping[str, Contract] = {
    "strategy": Contract("search strategy", Search, "a task and a seed"),
    "cost_model": Contract("cost model", CostModel, "a seed"),
    "features": Contract("feature extractor", Extracts, "a target"),
    "allocator": Contract("allocator", Allocator),
    "builder": Contract("builder", Compiles),
    "runner": Contract("runner", Times),
    "measurer": Contract("measurer", Measurer, "the tasks"),
    "store": Contract("store", KeepsRecords, "a folder"),
    "mutators": Contract("mutator", Mutates),
    "postprocs": Contract("post-processor", PostProcesses),
    "observers": Contract("observer", Observer, "a folder"),
    "libraries": Contract("library", Provides),
}
"""By the names of the fields of `Layers`."""


def why_not(layers: Layers) -> str:
    """Why layers cannot be used, in one line; empty if they can."""
    for name, source in layers:
        contract = CONTRACTS[name]
        try:
            check(load(source), contract.protocol, contract.what)
        except UsageError as error:
            return f"{source.file}: {error}"
        except TunerError as error:
            return str(error)
        except Exception as error:  # a user's code may raise anything
            return complaint(error, source.file)
    return ""


class LayersChild:
    """`why_not`, in a process of its own, as a user's code may do anything."""

    def why_not(self, layers: Layers) -> str:
        """See `why_not`."""
        return why_not(layers)
