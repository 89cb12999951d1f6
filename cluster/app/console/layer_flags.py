"""The flags that name a user's class for a layer of ours: to tune with it, and later to rebuild
what was tuned with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cluster.app.console.flags import FILE_TEXT

_F = TypeVar("_F", bound=Callable[..., Any])
CLASS = "FILE.py:CLASS|MODULE:CLASS"
_FLAGS = {
    "cost_model": ("--cost-model", "predicts which candidate is faster"),
    "features": ("--features", "describes candidates for the cost model"),
    "allocator": ("--allocator", "chooses the task that gets the next trials"),
    "mutators": ("--mutator", "changes traces, beside those of their space; may be repeated"),
    "postprocs": ("--postproc", "changes or refuses schedules; may be repeated"),
    "builder": ("--builder", "compiles scheduled programs"),
    "runner": ("--runner", "times kernels"),
    "measurer": ("--measurer", "builds and times trials, in the place of all machines"),
    "store": ("--store", "keeps records, beside the run's own store"),
    "observers": ("--observer", "is told of everything; may be repeated"),
    "libraries": ("--library", "has functions for some programs; may be repeated"),
}

library_flag = click.option(
    "--library",
    "libraries",
    metavar=CLASS,
    multiple=True,
    type=FILE_TEXT,
    help="A library that it was tuned with; may be repeated.",
)


def layer_flags(command: _F) -> _F:
    """Add a flag for each layer; the command gets what is named as a tuple by the layer's name."""
    for name, (flag, does) in reversed(_FLAGS.items()):
        what = f"A class of yours that {does}."
        option = click.option(flag, name, metavar=CLASS, type=FILE_TEXT, multiple=True, help=what)
        command = option(command)
    return command


def layers_named(said: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The layers that were named, taken out of a command's arguments."""
    return tuple((name, text) for name in _FLAGS for text in said.pop(name))
