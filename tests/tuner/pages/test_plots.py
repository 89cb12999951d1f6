"""The charts of a page as images: each there, with its title, drawn, dark on white."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from PIL import Image

from tests.tuner.pages.sample_run import sample
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
        "what-fewer-kernels-would-cost.png",
        "latency-over-n.png",
        "which-shape-takes-which-kernel.png",
        "all-sessions-together.png",
        "timeline.png",
        "the-models-ranking.png",
        "predicted-and-measured.png",
        "estimated-and-measured.png",
        "re-timings-of-the-finalists.png",
    ]


def test_something_is_drawn_below_a_title_on_white(images: dict[str, Image.Image]) -> None:
    for name, image in images.items():
        assert image.getpixel((0, image.height - 1)) == (255, 255, 255), name
        title = image.crop((0, 0, image.width // 2, 30))
        chart = image.crop((0, 60, image.width, image.height))
        assert min(title.convert("L").getextrema()) < 100, f"{name}: dark letters"
        drawn = sum(count for count, colour in chart.getcolors(1 << 24) if min(colour) < 200)
        assert drawn > 300, name


def test_charts_of_one_title_have_their_sections_in_their_names(run: RunReport) -> None:
    (chosen,) = run.kernel_sets.values()
    two = replace(run, kernel_sets={"conv": chosen, "a/b": chosen})
    names = [name for name, _ in plots([two])]
    assert {"latency-over-n.png", "shapes-of-a-b-latency-over-n.png"} <= set(names)
    assert len(set(names)) == len(names)


def test_of_several_runs_there_are_those_that_compare_them() -> None:
    one, other = sample(name="one"), sample(("conv", "pool"), name="other", seed=1)
    assert [name for name, _ in plots([one, other])] == [
        "latency-over-time.png",
        "latency-over-trials.png",
        "ranking-of-unseen-candidates.png",
    ]
