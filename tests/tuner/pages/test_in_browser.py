"""The page in a browser: it draws all charts, by itself, at any width, in either scheme."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.pages.browser import look
from tests.tuner.pages.sample_run import sample
from tuner.pages.page import page

pytestmark = [pytest.mark.debian, pytest.mark.long]
CACHE = Path(__file__).parents[3] / ".pytest_cache" / "pages"
CHARTS = 12


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = sample(symbolic=True, bench=True)
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page([run], made="a test", cache=CACHE))
    return file


@pytest.mark.parametrize("width", [500, 1280])
def test_every_chart_is_drawn_without_a_word_of_complaint(written: Path, width: int) -> None:
    seen = look(written, width=width)
    assert seen.errors == []
    assert seen.console == []
    assert seen.svgs == CHARTS
    assert seen.overflow <= 0, "nothing sticks out of the page"
    assert {"conv", "runner-1", "untuned", "n ≤ 40"} <= set(seen.labels)


def test_text_is_light_where_the_user_likes_it_dark(written: Path) -> None:
    light, dark = (look(written, width=1280, dark=dark).ink for dark in (False, True))
    assert light == "rgb(28, 33, 38)"
    assert dark == "rgb(228, 231, 234)"


def test_runs_side_by_side_are_drawn_too(tmp_path: Path) -> None:
    runs = [sample(name=f"run {n}", seed=n) for n in range(3)]
    file = tmp_path / "comparison.html"
    file.write_text(page(runs, made="a test", cache=CACHE))
    seen = look(file, width=1280)
    assert (seen.errors, seen.console) == ([], [])
    assert {"run 0", "run 1", "run 2"} <= set(seen.labels)


def test_a_chart_that_cannot_be_drawn_is_found_by_this_test(tmp_path: Path, written: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(written.read_text().replace('"mark":{"type":"bar"', '"mark":{"type":"nope"'))
    seen = look(file, width=1280)
    assert seen.errors or seen.console
