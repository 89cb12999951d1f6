"""Flags that several commands share; their types are made from `cluster.app.console.parse`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from cluster.app.console import completion, parse
from tuner import checks
from tuner.errors import UsageError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import SETTINGS, TuneOptions
from tuner.run_location import RunLocation

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(slots=True)
class Border:
    """Facts about the command line for the outermost frame. Travels as `click`'s object."""

    debug: bool = False


class Parsed(click.ParamType[Any]):
    """A type of argument that is parsed by a function from `cluster.app.console.parse`.

    Args:
        complete: what a shell may complete it to, from `cluster.app.console.completion`.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[str], Any],
        complete: completion.Complete | None = None,
    ) -> None:
        self.name, self._function, self._complete = name, function, complete

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What a shell may complete the text to."""
        return self._complete(ctx, incomplete) if self._complete else []

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text; a value that is parsed already stays."""
        if not isinstance(value, str):
            return value
        try:
            return self._function(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


def _path(text: str) -> Path:
    return Path(checks.nonempty(text))


PATH = Parsed("path", _path, completion.files)


def _library(text: str) -> Path:
    return checks.library_file(_path(text))


LIBRARY_FILE = Parsed("path", _library, completion.files)
RUN = Parsed("run", RunLocation.of, completion.runs)
TASK = Parsed("task", checks.nonempty, completion.tasks)
TEXT = Parsed("text", checks.nonempty)
FILE_TEXT = Parsed("text", checks.nonempty, completion.files)
"""Text that mostly begins with the name of a file, as a model or a class does."""


def _set_debug(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.ensure_object(Border).debug = True
        warnings.simplefilter("default")
        logging.getLogger().setLevel(logging.INFO)


debug_flag = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_debug,
    help="Show tracebacks, warnings and what the libraries log.",
)
json_flag = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output."
)


def setting_flag(name: str) -> Callable[[_F], _F]:
    """The flag of a setting of `TuneOptions`."""
    known = SETTINGS[name]
    default = known.default or TuneOptions.__dataclass_fields__[name].default
    if known.read is None:
        switch = not default
        return click.option(
            known.flag, name, is_flag=True, flag_value=switch, default=default, help=known.help
        )
    complete = completion.words(*known.words) if known.words else None
    if known.files:
        complete = completion.files
    elif known.read == RunLocation.of:
        complete = completion.runs
    return click.option(
        known.flag,
        name,
        metavar=known.metavar or "|".join(known.words),
        type=Parsed(name, known.read, complete),
        multiple=known.repeated,
        default=default,
        show_default=default not in (None, "", ()),
        help=known.help,
    )


address_flag = setting_flag("address")
_WITH_MODEL = ("only", "target")
"""Settings that are flags of all that take a model."""


def tune_flags(command: _F) -> _F:
    """Add the flags of all settings of a request, but for those in `model_flags`."""
    for name in reversed([*SETTINGS]):
        if name not in _WITH_MODEL:
            command = setting_flag(name)(command)
    return command


run_argument = click.argument("run", metavar="DIR", type=RUN)


model_argument = click.argument("model", metavar="MODEL", type=FILE_TEXT)


def model_flags(command: _F) -> _F:
    """Add the flags for a model's shapes and arguments, its target, and the tasks to tune."""
    for add in (
        *map(setting_flag, _WITH_MODEL),
        click.option(
            "--arg",
            "arguments",
            metavar="m=512",
            multiple=True,
            help="Argument of a function that makes the model.",
        ),
        click.option(
            "--input",
            "inputs",
            metavar="NAME=FILE.npy|int:LO..HI",
            multiple=True,
            help="Value of an input, or the range to draw its integers from.",
        ),
        click.option(
            "--weights",
            metavar="FILE.json",
            type=PATH,
            help="How often each shape occurs; without it all count alike.",
        ),
        click.option(
            "--dim",
            "dims",
            metavar="T=1..128",
            multiple=True,
            help="Sizes of a symbolic dimension to tune for: T=5,24,43 or M=16..2048:16; or "
            "what it is, where it follows from others: all=past+new.",
        ),
        click.option(
            "--shape",
            "shapes",
            metavar="INPUT=1,3,224,224",
            multiple=True,
            help="Shape of an input that the model leaves dynamic.",
        ),
    ):
        command = add(command)
    return command


def model_spec(
    model: str,
    shapes: tuple[str, ...],
    inputs: tuple[str, ...],
    arguments: tuple[str, ...],
    dims: tuple[str, ...] = (),
    weights: Path | None = None,
) -> ModelSpec:
    """The model that `model_flags` were given for.

    Raises:
        UsageError: one of them is malformed, or a name is given twice.
    """
    sizes, ties = parse.split_ties(parse.distinct(dims, parse.dimension_or_tie))
    return ModelSpec(
        source=model,
        shapes=parse.distinct(shapes, parse.shape),
        inputs=parse.distinct(inputs, parse.input_value),
        args=parse.distinct(arguments, parse.argument),
        dims=sizes,
        ties=ties,
        weights=weights,
    )
