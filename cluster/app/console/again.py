"""The command that goes on with a run: the one that began it, with another budget."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

_NOT_REPEATED = frozenset(
    {
        *("model", "shapes", "inputs", "arguments", "dims", "weights"),  # the run keeps its model,
        "run",
        *("trials", "time_budget_s", "seeds_from", "details", "as_json", "debug"),
    }
)
_TARGET = "target"
"""The run keeps its target; one that was given whole may be another than this machine's, and is
taken only where it is given again."""

_SAID = "tuner.said"


class Remembering(click.Command):
    """A command that knows what it was called with, see `read_words`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words, and parse them."""
        ctx.meta[_SAID] = tuple(args)
        return super().parse_args(ctx, args)


def read_words(context: click.Context) -> tuple[str, ...]:
    """The words after the name of the command that is being run."""
    words: tuple[str, ...] = context.meta[_SAID]
    return words


def again(command: click.Command, arguments: Sequence[str], run: str, trials: int) -> str:
    """The command line that goes on with a run.

    Flags that the run does not keep, such as its space or its cluster, are said again.

    Args:
        command: `tuner tune`.
        arguments: that it was called with, well formed.
        run: name of the run.
        trials: the run's total of trials, those that were made included.
    """
    words = ["tuner", "tune", "--run", run, "--trials", str(trials)]
    context = click.Context(command)
    values, _, order = command.make_parser(context).parse_args(list(arguments))
    for parameter in dict.fromkeys(order):
        if not isinstance(parameter, click.Option) or parameter.name in _NOT_REPEATED:
            continue
        flag, value = parameter.opts[0], values[parameter.name]
        if parameter.name == _TARGET and not str(value).startswith("{"):
            continue
        if parameter.is_flag:
            words.append(flag)
        else:
            said = value if isinstance(value, list) else [value]
            words += [word for one in said for word in (flag, str(one))]
    return shlex.join(words)
