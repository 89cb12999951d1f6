"""The charts of a page as images: for MLflow's pages, a slide, a message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import vl_convert

from tuner.pages.bundle import VEGA_LITE
from tuner.pages.page import Section, compared, sections
from tuner.pages.theme import INK
from tuner.report.run_report import RunReport

_WIDTH = 760
_SCALE = 1.5
_PAPER, _DARK = "white", "#24292f"


def plots(runs: Sequence[RunReport]) -> Iterator[tuple[str, bytes]]:
    """The charts of a run, or those that compare several: names of files, and images as PNG.

    Of several charts with one title the later have their section's in their name, too.
    """
    shown = sections(runs[0]) if len(runs) == 1 else compared(runs)
    for name, title, specification in _named(shown):
        told = json.dumps(_on_paper(specification, title), allow_nan=False)
        image: bytes = vl_convert.vegalite_to_png(
            told, vl_version=VEGA_LITE, scale=_SCALE, allowed_base_urls=[]
        )
        yield name, image


def _named(shown: Iterable[Section]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name of the file, title and specification of each chart."""
    taken: set[str] = set()
    for section in shown:
        for chart in section.charts:
            title = f"{section.title}: {chart.title}" if section.title else chart.title
            names = (_slug(chart.title), _slug(title), *(_slug(f"{title} {n}") for n in range(99)))
            name = next(name for name in names if name not in taken)
            taken.add(name)
            yield f"{name}.png", title, chart.specification


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", "")).strip("-")[:80]


def _on_paper(specification: Mapping[str, Any], title: str) -> dict[str, Any]:
    """A chart with its title, of a width of its own and in colours of its own."""
    inked = json.loads(json.dumps(specification).replace(json.dumps(INK), json.dumps(_DARK)))
    look = {
        **inked["config"],
        "background": _PAPER,
        "title": {"anchor": "start", "fontWeight": "normal", "color": _DARK},
    }
    return {**inked, "width": _WIDTH, "title": title, "config": look}
