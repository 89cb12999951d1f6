"""The layers that a user replaces: found, and tried before anything else is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from spaces.libraries.offers import Offers
from tuner.contracts.contracts import CONTRACTS
from tuner.errors import TunerError, UsageError
from tuner.layers import OURS, Layers
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Returned
from tuner.request.options import TuneOptions
from tuner.source import Source
from tuner.task import Task
from tuner.user_code.find import find_layer

_CHILD = "tuner.contracts.contracts:LayersChild"
_OFFERS_CHILD = "spaces.libraries.offers:OffersChild"
_START_S = _DEADLINE_S = 120.0
_MEMORY_LIMIT_BYTES = 4 << 30
_MANY = frozenset(f.name for f in fields(Layers) if f.default == ())


def find_layers(options: TuneOptions) -> Layers:
    """The layers that a request names.

    Raises:
        UsageError: one that there can only be one of is named twice.
        TunerError: one cannot be read.
    """
    found: dict[str, tuple[Source, ...]] = {}
    for name, given in options.own_layers:
        source = given if isinstance(given, Source) else find_layer(given, name)
        found[name] = (*found.get(name, ()), source)
    for name, sources in found.items():
        if len(sources) > 1 and name not in _MANY:
            raise UsageError(f"{name}: there can be one {CONTRACTS[name].what} only")
    one = {name: sources[0] for name, sources in found.items() if name not in _MANY}
    return Layers(**one, **{name: s for name, s in found.items() if name in _MANY})  # type: ignore[arg-type]


def try_layers(options: TuneOptions) -> Layers:
    """The layers that a request names, each with all methods of its contract.

    Their files run in a process of their own, as a user's code may do anything.

    Raises:
        TunerError: one cannot be used.
    """
    layers = find_layers(options)
    if not layers:
        return OURS
    if error := _ask(_CHILD, "why_not", layers, layers):
        raise TunerError(error)
    return layers


def collect_offers(layers: Layers, tasks: Sequence[Task]) -> Offers:
    """What a user's libraries have for the tasks of a model.

    Raises:
        TunerError: one cannot be used.
    """
    if not layers.libraries:
        return Offers({})
    found = _ask(_OFFERS_CHILD, "offers", layers, layers.libraries, tasks)
    assert isinstance(found, Offers)
    if found.error:
        raise TunerError(found.error)
    return found


def _ask(child: str, method: str, layers: Layers, *arguments: Any) -> Any:
    """Ask a process of its own, which runs the files of layers.

    Raises:
        TunerError: it did not answer.
    """
    outcome = ask_once(
        child,
        (),
        method,
        *arguments,
        ready_s=_START_S,
        deadline_s=_DEADLINE_S,
        env={"CUDA_VISIBLE_DEVICES": ""},
        memory_limit_bytes=_MEMORY_LIMIT_BYTES,
    )
    if not isinstance(outcome, Returned):
        files = ", ".join(sorted({source.file for _, source in layers}))
        raise TunerError(f"{files}: {outcome}")
    return outcome.value


def refuse_pickled_layers(options: TuneOptions) -> None:
    """Refuse layers that no file has, which other machines could not read.

    Raises:
        UsageError: there is one.
    """
    for name, source in options.own_layers:
        if isinstance(source, Source) and source.pickled:
            raise UsageError(
                f"{name}: on a cluster other machines must be able to find it: put the class at "
                f"the top of a Python file"
            )
