"""Write the tables of flags in `docs/reference.md` from the commands: `python docs/flag_tables.py`.

What a table cannot say of a flag stands below it.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from cluster.app.console.layer_flags import CLASS

REFERENCE = Path(__file__).parent / "reference.md"
HEADER = "| flag | value | meaning |\n|---|---|---|\n"
_OF_ALL = {"--debug", "--help"}
"""Flags of every command, which are said once."""
_TABLE = re.compile(
    r"(?P<before>^### `tuner (?P<name>[a-z]+)[^`]*`\n(?:(?!^#).*\n)*?)"
    r"\| flag \| value \| meaning \|\n\|---\|---\|---\|\n(?:\|.*\n)*",
    re.MULTILINE,
)


def render_table(command: click.Command) -> str:
    """The table of a command's flags, in the order of its help."""
    options = [p for p in command.params if isinstance(p, click.Option)]
    return HEADER + "".join(_render_row(p) for p in options if not _OF_ALL & {*p.opts})


def _render_row(option: click.Option) -> str:
    flags = ", ".join(f"`{name}`" for name in option.opts)
    values = [] if option.is_flag else _name_value(option).split("|")
    text = (option.help or "").replace("|", "\\|")
    text += f" Default: `{option.default}`." if option.show_default else ""
    # A class that there may be several of says so; of the others one is taken.
    text += " May be repeated." if option.multiple and option.metavar != CLASS else ""
    return f"| {flags} | {', '.join(f'`{value}`' for value in values)} | {text} |\n"


def _name_value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return option.metavar or str(option.type.name).upper()


def renew(text: str, commands: dict[str, click.Command]) -> str:
    """The reference with the tables of today's commands."""
    return _TABLE.sub(lambda m: m["before"] + render_table(commands[m["name"]]), text)


if __name__ == "__main__":
    from cluster.app.cli import cli

    REFERENCE.write_text(renew(REFERENCE.read_text(), cli.commands))
