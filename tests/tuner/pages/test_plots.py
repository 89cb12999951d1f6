"""The charts of a page as images: each there, with its title, drawn, dark on white."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image, ImageChops

from tests.tuner.pages.sample_run import sample
from tuner.pages import plots as module
from tuner.pages.plots import plots
from tuner.report.run_report import RunReport


@pytest.fixture(scope="module")
def run() -> RunReport:
    return sample(symbolic=True, bench=True)


@pytest.fixture(scope="module")
def images(run: RunReport) -> dict[str, Image.Image]:
    return {name: Image.open(io.BytesIO(data)).convert("RGB") for name, data in plots([run])}


def test_each_chart_has_an_image(images: dict[str, Image.Image]) -> None:
    assert list(images) == [
        "over-time.png",
        "over-trials.png",
        "each-tasks-share-of-the-models-time.png",
        "what-fewer-kernels-would-cost-of-conv.png",
        "latency-over-n-of-conv.png",
        "which-shape-takes-which-kernel-of-conv.png",
        "all-sessions-together.png",
        "timeline.png",
        "the-models-ranking.png",
        "predicted-and-measured.png",
        "estimated-and-measured.png",
        "re-timings-of-the-finalists.png",
    ]


def without(charts: Iterable[tuple[str, str, Any]], part: str) -> Iterator[tuple[str, str, Any]]:
    """Charts without their titles, or without anything drawn."""
    for name, title, specification in charts:
        told = json.loads(json.dumps(specification))
        if part == "marks":
            told["datasets"] = {data: [] for data in told["datasets"]}
        yield name, "" if part == "title" else title, told


@pytest.mark.parametrize("part", ["title", "marks"])
def test_its_title_and_what_it_is_about_are_drawn(
    run: RunReport,
    images: dict[str, Image.Image],
    part: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each image would be another without them."""
    named = module._name_charts
    monkeypatch.setattr(module, "_name_charts", lambda shown: without(named(shown), part))
    for name, data in plots([run]):
        bare = Image.open(io.BytesIO(data)).convert("RGB")
        assert (
            bare.size != images[name].size or ImageChops.difference(bare, images[name]).getbbox()
        ), name


def test_they_are_dark_on_white(images: dict[str, Image.Image]) -> None:
    for name, image in images.items():
        assert image.getpixel((0, image.height - 1)) == (255, 255, 255), name
        assert image.convert("L").getextrema()[0] < 100, name


def test_charts_of_tasks_have_the_task_in_their_name_and_a_few_tasks_are_enough(
    run: RunReport,
) -> None:
    (chosen,) = run.kernel_sets.values()
    long = "fused_matmul_add_gelu_multiply_add1_silu_divide_subtract_tanh_multiply"
    many = dict.fromkeys(("a/b", f"{long}1", f"{long}2", *(f"task{n}" for n in range(9))), chosen)
    names = [name for name, _ in plots([replace(run, kernel_sets=many)])]
    assert "latency-over-n-of-a-b.png" in names
    assert len(set(names)) == len(names)
    assert sum(name.startswith("latency-over-n-of") for name in names) == 5


def test_of_several_runs_there_are_those_that_compare_them() -> None:
    one, other = sample(name="one"), sample(("conv", "pool"), name="other", seed=1)
    assert [name for name, _ in plots([one, other])] == [
        "latency-over-time.png",
        "latency-over-trials.png",
        "ranking-of-unseen-candidates.png",
    ]
