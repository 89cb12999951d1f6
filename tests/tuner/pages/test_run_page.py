"""A page shows what a run found, needs nothing beside itself, and takes no text for markup."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.tuner.pages.sample_run import MANIFEST, best_in_search, fill, sample
from tuner.pages.model_quality import noise_chart
from tuner.pages.page import page
from tuner.pages.wording import comparison
from tuner.record import Status
from tuner.report.noise import Retiming
from tuner.report.run_report import RunReport, run_report
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.history import History
from tuner.storage.sqlite_store import MemoryStore, SqliteStore
from tuner.view.task_view import TaskView

CACHE = Path(__file__).parents[3] / ".pytest_cache" / "pages"
MOST_BYTES = 5_000_000


class Parsed(HTMLParser):
    """The charts, the texts and the tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.charts: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._within: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = (tag, dict(attrs))
        self.tags.append(self._within)

    def handle_data(self, data: str) -> None:
        tag, attributes = self._within
        if tag == "script" and attributes.get("type") == "application/json" and data.strip():
            self.charts.append(json.loads(data))
        elif tag not in ("script", "style") and data.strip():
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def parsed(*runs: Any) -> Parsed:
    return Parsed(page(runs, made="a test", cache=CACHE))


def titles(found: Parsed) -> set[str]:
    return {label for _, a in found.tags if (label := a.get("aria-label")) is not None}


def rows(chart: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All rows of data that a chart has."""
    for data in chart.get("datasets", {}).values():
        yield from data
    for part in (chart, *chart.get("layer", ())):
        yield from part.get("data", {}).get("values", ())


def test_everything_that_the_run_has_is_shown() -> None:
    found = parsed(sample(symbolic=True, bench=True))
    assert titles(found) == {
        "Over time",
        "Over trials",
        "Each task's share of the model's time",
        "What fewer kernels would cost",
        "Latency over n",
        "Which shape takes which kernel",
        "All sessions together",
        "Timeline",
        "The model's ranking",
        "Predicted and measured",
        "Estimated and measured",
        "Re-timings of the finalists",
    }
    assert len(found.charts) == 12
    for said in ("no registers left", "build failed", "onnxruntime", "a desk", "kernel:product"):
        assert said in found.text
    assert "at line 3" not in found.text, "only first lines"


def test_the_curve_falls_to_what_the_search_found() -> None:
    run = sample()
    chart = parsed(run).charts[0]
    drawn = [row["latency"] for row in rows(chart) if "x" in row]
    assert drawn == sorted(drawn, reverse=True)
    found_ms = best_in_search()
    best_ms = sum(task.weight * found_ms[task.name] for task in run.view.tasks)
    assert drawn[-1] == pytest.approx(best_ms, rel=1e-6)


def test_charts_are_vega_lite_by_its_own_schema() -> None:
    import altair

    schema = json.loads(
        (Path(altair.__file__).parent / "vegalite/v6/schema/vega-lite-schema.json").read_text()
    )
    validator = jsonschema.Draft7Validator(schema)
    for runs in ([sample(symbolic=True, bench=True)], [sample(), sample(name="other", seed=1)]):
        for chart in parsed(*runs).charts:
            validator.validate(chart)


def test_a_run_without_results_says_so_and_draws_nothing_empty() -> None:
    store = MemoryStore()
    told = run_report(store, MANIFEST, name="new", place="runs/new", kernel_sets={})
    found = parsed(told)
    assert found.charts == []
    assert "no kernel has a time yet" in found.text


def test_runs_are_compared_on_one_page() -> None:
    one, other = sample(name="one"), sample(("conv", "pool"), name="other", seed=1)
    found = parsed(one, other)
    assert {"Latency over time", "Latency over trials"} <= titles(found)
    both = next(c for c in found.charts if {r.get("run") for r in rows(c)} >= {"one", "other"})
    assert both["layer" if "layer" in both else "mark"]
    assert "2 runs compared" in found.text
    assert "Tasks that several have" in found.text
    other = replace(other, programs={**other.programs, "conv": "another program of that name"})
    assert "Tasks that several have" not in parsed(one, other).text
    assert found.text.count("Design spaces") == 2


def test_each_curve_of_a_comparison_ends_at_what_was_timed_again() -> None:
    runs = [sample(name="one"), sample(("conv", "pool"), name="other", seed=1)]
    found = parsed(*runs)
    assert found.text.count("points are the winners, timed again") == 2
    for chart in found.charts[:2]:
        ends = {row["run"]: row for row in chart["datasets"]["ends"]}
        for run in runs:
            drawn = [row for row in chart["datasets"]["rows"] if row["run"] == run.name]
            assert ends[run.name]["x"] == drawn[-1]["x"]
            assert ends[run.name]["latency"] == pytest.approx(run.view.tuned_s * 1e3)
        line, points = chart["layer"]
        assert line["encoding"]["color"] == points["encoding"]["color"]
    colors = found.charts[0]["layer"][1]["encoding"]["color"]
    assert colors["sort"] == ["one", "other"]


def showing(run: RunReport, *tasks: TaskView) -> RunReport:
    return replace(run, view=replace(run.view, tasks=tasks))


def slower(run: RunReport, times: float) -> RunReport:
    """A run whose winners take so many times what its search measured when they are timed again."""
    best_ms = best_in_search()
    tasks = [replace(t, best_s=best_ms[t.name] * times / 1e3) for t in run.view.tasks]
    return showing(run, *tasks)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (1.19, None),
        (1.25, "take 1.25 times what the search measured: some of its times were luck, or the"),
        (0.85, None),
        (0.8, "take 0.80 times what the search measured: the machine was busier then."),
    ],
)
def test_re_timings_far_from_the_curve_are_said_in_words(times: float, said: str | None) -> None:
    text = parsed(slower(sample(), times)).text
    assert (said or "from the first moment") in text
    assert ("Timed again, the winners" in text) == (said is not None)


def test_what_was_timed_again_is_of_the_tasks_of_the_curve() -> None:
    """Also of those whose default has no time, which the gain leaves out."""
    run = sample()
    first, *rest = run.view.tasks
    without = showing(run, replace(first, default_s=None), *rest)
    assert without.view.uncompared == (first.name,)
    assert without.again_s == pytest.approx(run.again_s)


def test_trials_that_were_cut_off_are_not_said_to_have_given_a_time() -> None:
    run = sample()
    assert "cut off" not in parsed(run).text
    first, *rest = run.view.tasks
    cut = showing(run, replace(first, statuses={**first.statuses, Status.CENSORED: 2}), *rest)
    assert "2 cut off early" in parsed(cut).text
    said = parsed(replace(cut, failures=())).text
    assert "every candidate that was measured gave a time, but for 2 cut off early" in said


def test_what_more_trials_would_bring_is_said_where_it_was_predicted() -> None:
    run = sample()
    assert "2.1% less is predicted with twice as many trials" in parsed(run).text
    assert "is predicted" not in parsed(replace(run, next_gain=None)).text


def test_one_task_is_not_many() -> None:
    text = parsed(sample(("conv",))).text
    assert "trials on 1 task " in text
    assert "The only task" in text


@pytest.mark.parametrize(("spread", "decimals"), [(0.3, 0), (0.02, 1), (0.002, 2), (0.0, 1)])
def test_percents_of_noise_have_the_decimals_that_tell_them_apart(
    spread: float, decimals: int
) -> None:
    told = [Retiming("conv", n, 1.0 + spread * (n - 2) / 2, True) for n in (1, 2, 3)]
    chart = noise_chart(told)
    assert chart["encoding"]["x"]["axis"]["format"] == f"+.{decimals}%"


def test_only_finalists_that_are_there_are_in_the_legend_of_noise() -> None:
    alone = [Retiming("conv", n, 1.0, True) for n in (1, 2)]
    both = [*alone, Retiming("conv", 1, 1.0, False)]
    names = [noise_chart(told)["encoding"]["color"]["scale"]["domain"] for told in (alone, both)]
    assert names == [["winner"], ["winner", "other finalists"]]


def test_no_run_is_the_best_where_the_best_two_are_shown_alike() -> None:
    one, other, third = (sample(name=name) for name in ("one", "other", "third"))

    def marked(*latencies_ms: float) -> int | None:
        runs = [
            showing(run, replace(run.view.tasks[0], best_s=ms / 1e3))
            for run, ms in zip((one, other, third), latencies_ms, strict=True)
        ]
        ((_, _, best),) = comparison(runs).tasks
        return best

    assert marked(2.0, 1.0, 3.0) == 1
    assert marked(2.0, 1.0, 1.0001) is None
    assert marked(2.0001, 1.0, 2.0) == 1


def test_names_that_look_like_markup_stay_text() -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    found = parsed(sample((evil, "dense"), name=evil))
    assert not any(tag == "img" for tag, _ in found.tags)
    assert evil in found.text
    assert any(row.get("task") == evil for chart in found.charts for row in rows(chart))


def test_nothing_is_fetched_from_elsewhere() -> None:
    found = parsed(sample(symbolic=True))
    links = [a[key] for _, a in found.tags for key in ("src", "href", "action") if a.get(key)]
    assert links == ["data:,"]


def test_a_long_run_with_many_tasks_stays_below_five_megabytes(tmp_path: Path) -> None:
    filled = MemoryStore()
    fill(filled, [f"fused_conv2d_add_relu_{n}" for n in range(300)], 40)
    with closing(SqliteStore(tmp_path / "records.sqlite")) as store:
        store.put(Tasks(filled.tasks()), Defaults(filled.get(Defaults).by_task))
        store.append_many([(record, None) for record in filled.scan()])
        store.put(filled.get(History))
        run = run_report(store, MANIFEST, name="long", place="runs/long", kernel_sets={})
    assert run.view.trials > 9000
    html = page([run], made="a test", cache=CACHE)
    assert len(html.encode()) < MOST_BYTES
