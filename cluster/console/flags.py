"""Flags that several commands share; their types are made from `cluster.console.parse`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from cluster.console import completion, parse
from tuner import checks
from tuner.checks import L2_POLICIES, MEASURES, TARGET_KINDS
from tuner.errors import UsageError
from tuner.options import ModelSpec
from tuner.run_location import RunLocation

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(slots=True)
class Border:
    """Facts about the command line for the outermost frame. Travels as `click`'s object."""

    debug: bool = False


class Parsed(click.ParamType[Any]):
    """A type of argument that is parsed by a function from `cluster.console.parse`.

    Args:
        complete: what a shell may complete it to, from `cluster.console.completion`.
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
    return Path(parse.nonempty(text))


PATH = Parsed("path", _path, completion.files)


def _library(text: str) -> Path:
    return checks.library_file(_path(text))


LIBRARY_FILE = Parsed("path", _library, completion.files)
RUN = Parsed("run", RunLocation.of, completion.runs)
TASK = Parsed("task", parse.nonempty, completion.tasks)
TEXT = Parsed("text", parse.nonempty)
FILE_TEXT = Parsed("text", parse.nonempty, completion.files)
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
address_flag = click.option(
    "--address",
    metavar="auto|local|HOST:PORT",
    default="auto",
    show_default=True,
    type=Parsed("address", parse.address, completion.words("auto", "local")),
    help="The Ray cluster to use; local starts one on this machine's loopback.",
)
measure_flag = click.option(
    "--measure",
    metavar="|".join(MEASURES),
    default=MEASURES[0],
    show_default=True,
    type=Parsed("measure", checks.measure, completion.words(*MEASURES)),
    help="What to time kernels on; emulated runs a CUDA target's kernels on the CPU, and has times"
    " of a model's.",
)
fast_math_flag = click.option(
    "--fast-math",
    is_flag=True,
    help="Compile CUDA kernels with nvcc's fast math, and judge them by bounds that allow for it.",
)
l2_flag = click.option(
    "--l2",
    metavar="|".join(L2_POLICIES),
    type=Parsed("L2 policy", checks.l2_policy, completion.words(*L2_POLICIES)),
    help="What a timed run finds in a CUDA device's L2 cache: what the run before left there, or"
    " other data. Default: warm, or what the run began with.",
)
run_argument = click.argument("run", metavar="DIR", type=RUN)


model_argument = click.argument("model", metavar="MODEL", type=FILE_TEXT)


def model_flags(command: _F) -> _F:
    """Add the flags for a model's shapes and arguments, its target, and the tasks to tune."""
    for add in (
        click.option(
            "--only",
            metavar="GLOB",
            type=TEXT,
            help="Only the tasks whose name matches, for example 'conv2d*'.",
        ),
        click.option(
            "--target",
            metavar="auto|llvm|cuda|JSON",
            default="auto",
            show_default=True,
            type=Parsed("target", parse.target, completion.words("auto", *TARGET_KINDS)),
            help="What to compile for; auto is what this machine, or the cluster, has.",
        ),
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
            help="Sizes of a symbolic dimension to tune for: T=5,24,43 or M=16..2048:16.",
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
    return ModelSpec(
        source=model,
        shapes=parse.distinct(shapes, parse.shape),
        inputs=parse.distinct(inputs, parse.input_value),
        args=parse.distinct(arguments, parse.argument),
        dims=parse.distinct(dims, parse.dimension),
        weights=weights,
    )
