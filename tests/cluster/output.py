"""What commands print, run in this process: one of their own would import all anew."""

from __future__ import annotations

import contextlib
import io

from cluster.app.cli import run


def output_of(*words: str) -> str:
    """What a command prints that ends well."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run([*words]) == 0
    return said.getvalue()
