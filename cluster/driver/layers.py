"""The layers that a user replaces: found, and tried before anything else is started."""

from __future__ import annotations

from dataclasses import fields

from tuner.contracts.contracts import CONTRACTS
from tuner.errors import TunerError, UsageError
from tuner.layers import OURS, Layers
from tuner.options import TuneOptions
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Returned
from tuner.source import Source
from tuner.user_code.find import find_layer

_CHILD = "tuner.contracts.contracts:LayersChild"
_START_S = _DEADLINE_S = 120.0
_MEMORY_LIMIT_BYTES = 4 << 30
_MANY = frozenset(f.name for f in fields(Layers) if f.default == ())


def found_layers(options: TuneOptions) -> Layers:
    """The layers that a request names.

    Raises:
        UsageError: one that there can only be one of is named twice.
        TunerError: one cannot be read.
    """
    found: dict[str, tuple[Source, ...]] = {}
    for name, given in options.replaced:
        source = given if isinstance(given, Source) else find_layer(given, name)
        found[name] = (*found.get(name, ()), source)
    for name, sources in found.items():
        if len(sources) > 1 and name not in _MANY:
            raise UsageError(f"{name}: there can be one {CONTRACTS[name].what} only")
    one = {name: sources[0] for name, sources in found.items() if name not in _MANY}
    return Layers(**one, **{name: s for name, s in found.items() if name in _MANY})  # type: ignore[arg-type]


def tried_layers(options: TuneOptions) -> Layers:
    """The layers that a request names, each with all methods of its contract.

    Their files run in a process of their own, as a user's code may do anything.

    Raises:
        TunerError: one cannot be used.
    """
    layers = found_layers(options)
    if not layers:
        return OURS
    outcome = ask_once(
        _CHILD,
        (),
        "why_not",
        layers,
        ready_s=_START_S,
        deadline_s=_DEADLINE_S,
        env={"CUDA_VISIBLE_DEVICES": ""},
        memory_limit_bytes=_MEMORY_LIMIT_BYTES,
    )
    files = ", ".join(sorted({source.file for _, source in layers}))
    if not isinstance(outcome, Returned):
        raise TunerError(f"{files}: {outcome}")
    if outcome.value:
        raise TunerError(outcome.value)
    return layers


def refuse_pickled_layers(options: TuneOptions) -> None:
    """Refuse layers that no file has, which other machines could not read.

    Raises:
        UsageError: there is one.
    """
    for name, source in options.replaced:
        if isinstance(source, Source) and source.pickled:
            raise UsageError(
                f"{name}: on a cluster other machines must be able to find it: put the class at "
                f"the top of a Python file"
            )
