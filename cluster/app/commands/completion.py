"""`tuner completion SHELL`: the script with which a shell completes commands of `tuner`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cluster.app.console.flags import debug_flag
from tuner.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


class _Shell(click.Choice[str]):
    """One of the shells; where it is missing, one line names them all."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """The end of what is said where none is given."""
        *most, last = SHELLS
        return f"Name {', '.join(most)} or {last}."


@click.command(short_help="The script that makes a shell complete this.")
@click.argument("shell", metavar="SHELL", type=_Shell(SHELLS))
@debug_flag
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for SHELL (bash, zsh or fish), which completes commands, flags and runs.

    In bash: eval "$(tuner completion bash)"
    """
    made = get_completion_class(shell)
    if made is None:
        raise UsageError(f"the installed click knows no {shell}")
    program = context.find_root()
    name = str(program.info_name)
    click.echo(made(program.command, {}, name, f"_{name}_COMPLETE".upper()).source())
