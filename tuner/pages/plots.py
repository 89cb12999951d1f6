"""The charts of a page as images: for MLflow's pages, a slide, a message."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import vl_convert

from tuner.pages.bundle import VEGA_LITE
from tuner.pages.page import Section, compare_runs, sections
from tuner.pages.theme import INK
from tuner.report.run_report import RunReport

_TASKS = 5
_WIDTH = 760
_SCALE = 1.5
_PAPER, _DARK = "white", "#24292f"


def plots(runs: Sequence[RunReport]) -> Iterator[tuple[str, bytes]]:
    """The charts of a run, or those that compare several: names of files, and images as PNG. Of
    tasks with symbolic dimensions only the first few have theirs, with the task in the name.
    """
    shown = sections(runs[0]) if len(runs) == 1 else compare_runs(runs)
    for name, title, specification in _name_charts(_few(shown)):
        told = json.dumps(_on_paper(specification, title), allow_nan=False)
        image: bytes = vl_convert.vegalite_to_png(
            told, vl_version=VEGA_LITE, scale=_SCALE, allowed_base_urls=[]
        )
        yield name, image


def _few(shown: Iterable[Section]) -> Iterator[Section]:
    """The sections, without those of all but the first tasks that have one."""
    left = _TASKS
    for section in shown:
        left -= bool(section.task)
        if not section.task or left >= 0:
            yield section


def _name_charts(shown: Iterable[Section]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name of the file, title and specification of each chart."""
    taken: Counter[str] = Counter()
    for section in shown:
        for chart in section.charts:
            title = f"{section.title}: {chart.title}" if section.title else chart.title
            name = _slug(chart.title) + (f"-of-{_slug(section.task)}" if section.task else "")
            taken[name] += 1
            yield (
                f"{name}.png" if taken[name] == 1 else f"{name}-{taken[name]}.png",
                title,
                chart.specification,
            )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("'", "")).strip("-")[:60]


def _on_paper(specification: Mapping[str, Any], title: str) -> dict[str, Any]:
    """A chart with its title, of a width of its own and in colours of its own."""
    inked = json.loads(json.dumps(specification).replace(json.dumps(INK), json.dumps(_DARK)))
    look = {
        **inked["config"],
        "background": _PAPER,
        "title": {"anchor": "start", "fontWeight": "normal", "color": _DARK},
    }
    return {**inked, "width": _WIDTH, "title": title, "config": look}
