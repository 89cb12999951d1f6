"""The drawing libraries (Vega, Vega-Lite, Vega-Embed) as one script for a page.

vl-convert has them all and bundles them without a network, which takes seconds: the result is kept
for later pages.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
import vl_convert

from tuner.files.atomic import write_bytes

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The version that our specifications are of."""
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def bundle(cache: Path) -> str:
    """The script. A cache that cannot be read or written is made do without.

    Args:
        cache: folder that keeps it.
    """
    kept = cache / f"vega-{vl_convert.get_vega_version()}-lite-{VEGA_LITE}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        made: str = vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, made.encode())
    except OSError:
        pass
    return made
