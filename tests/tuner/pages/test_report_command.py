"""`tuner report`: where the page is written, what it is called, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.app.cli import run as command
from tests.tuner.pages.sample_run import BENCH, MANIFEST, START_S, fill
from tuner.report.bench import keep_bench
from tuner.run_location import RunLocation
from tuner.runs.folder import open_run
from tuner.runs.remote import open_store
from tuner.storage.facts import Defaults
from tuner.view.model_curve import model_curve


def run_at(path: Path, seed: int = 0) -> str:
    folder, _ = open_run(path, MANIFEST)
    store = open_store(RunLocation.of(folder.root), folder)
    fill(store, ["conv", "dense"], 20, seed)
    assert model_curve(
        store.tasks(), store.get(Defaults).by_task, list(store.scan()), store.sessions()
    ).points
    store.close()
    return str(path)


@pytest.fixture
def plain_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images with nothing drawn, for tests that look at none: to draw them takes long."""

    def draw(specification: str, **_: object) -> bytes:
        return b"\x89PNG" + specification.encode()

    monkeypatch.setattr("tuner.pages.plots.vl_convert.vegalite_to_png", draw)


def test_a_run_has_its_page_in_its_folder_and_the_path_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_at(tmp_path / "mine")
    keep_bench(tmp_path / "mine" / "bench.json", [BENCH], START_S)
    assert command(["report", run]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed == f"{run}/report.html"
    html = Path(printed).read_text()
    assert "<h1>mine</h1>" in html
    assert "onnxruntime, whole model" in html
    assert "timed on 2023-11-14 22:13 UTC; the run went on since then" in html


def test_charts_are_written_as_images_where_one_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run_at(tmp_path / name, seed) for seed, name in enumerate(("one", "other"))]
    assert command(["report", runs[0], "--plots", str(tmp_path / "images")]) == 0
    assert {"over-time.png", "timeline.png"} <= {f.name for f in (tmp_path / "images").iterdir()}
    assert command(["report", *runs, "--plots", str(tmp_path / "both")]) == 0
    assert (tmp_path / "both" / "latency-over-time.png").stat().st_size > 0
    capsys.readouterr()
    assert command(["report", runs[0], "--plots", str(tmp_path / "one" / "run.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("plain_images")
def test_the_folder_of_the_images_is_printed_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, images = run_at(tmp_path / "mine"), tmp_path / "images"
    assert command(["report", run, "--plots", str(images)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{run}/report.html", str(images)]


@pytest.mark.usefixtures("plain_images")
def test_images_of_an_earlier_report_go_and_those_of_others_stay(tmp_path: Path) -> None:
    runs = [run_at(tmp_path / name, seed) for seed, name in enumerate(("one", "other"))]
    images, page = tmp_path / "images", ["-o", str(tmp_path / "page.html")]
    images.mkdir()
    (images / "mine.png").write_bytes(b"a user's own")
    assert command(["report", runs[0], *page, "--plots", str(images)]) == 0
    (images / "timeline.png").write_bytes(b"changed by a user")
    assert command(["report", *runs, *page, "--plots", str(images)]) == 0
    assert {file.name for file in images.glob("[!.]*")} == {
        "latency-over-time.png",
        "latency-over-trials.png",
        "ranking-of-unseen-candidates.png",
        "mine.png",
        "timeline.png",
    }


@pytest.mark.usefixtures("plain_images")
@pytest.mark.parametrize("damage", ["{", "[1]", '{"../precious.png": "x", "gone.png": "y"}', "7"])
def test_a_list_of_images_that_is_damaged_removes_nothing(tmp_path: Path, damage: str) -> None:
    run, images = run_at(tmp_path / "mine"), tmp_path / "images"
    images.mkdir()
    (images / ".plots.json").write_text(damage)
    (tmp_path / "precious.png").write_bytes(b"precious")
    assert command(["report", run, "--plots", str(images)]) == 0
    assert (tmp_path / "precious.png").exists()


def test_a_page_in_the_runs_own_place_has_its_images_there_renewed(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    run_at(run)
    assert command(["report", str(run), "-o", str(tmp_path / "elsewhere.html")]) == 0
    assert not (run / "plots").exists()
    (run / "plots").mkdir()
    (run / "plots" / "over-time.png").write_bytes(b"of the end of the run")
    assert command(["report", str(run)]) == 0
    image, page = run / "plots" / "over-time.png", run / "report.html"
    assert image.read_bytes().startswith(b"\x89PNG")
    assert image.stat().st_mtime_ns <= page.stat().st_mtime_ns, "tracking waits for the page"


def test_a_broken_bench_is_as_none(tmp_path: Path) -> None:
    run = run_at(tmp_path / "mine")
    (tmp_path / "mine" / "bench.json").write_text('[{"tuned')
    assert command(["report", run]) == 0
    assert "onnxruntime" not in (tmp_path / "mine" / "report.html").read_text().split("<script")[0]


def test_runs_of_one_name_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run_at(tmp_path / place / "run", seed) for seed, place in enumerate(("a", "b"))]
    assert command(["report", *runs]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == tmp_path / "a" / "run" / "comparison.html"
    html = page.read_text()
    assert all(f"<h2>{run}</h2>" in html for run in runs)


def test_a_folder_of_runs_for_several_devices_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, device in enumerate(("one-cpu", "other-cpu")):
        run_at(tmp_path / "fleet" / device, seed)
    file = tmp_path / "out.html"
    assert command(["report", str(tmp_path / "fleet"), "-o", str(file)]) == 0
    assert "2 runs compared" in file.read_text()
    capsys.readouterr()
    assert command(["report", str(tmp_path / "fleet")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "fleet" / "comparison.html")


def test_a_run_is_not_compared_with_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_at(tmp_path / "fleet" / "one")
    run_at(tmp_path / "fleet" / "other", 1)
    monkeypatch.chdir(tmp_path)
    for again in ("fleet/one", "fleet/../fleet/one", str(tmp_path / "fleet" / "one"), "fleet"):
        capsys.readouterr()
        assert command(["report", "fleet/one", again]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("tuner: ")
        assert err.endswith("fleet/one is named twice: a run is compared with others alone\n")
    assert not (tmp_path / "fleet" / "one" / "comparison.html").exists()


def test_a_timeline_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_at(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert command(["export", run, "--timeline", "mine.pftrace"]) == 0
    assert (tmp_path / "mine.pftrace").stat().st_size > 1000


def test_what_cannot_be_met_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["report", str(tmp_path / "nowhere")]) == 1
    assert command(["report"]) == 2
    run = run_at(tmp_path / "mine")
    assert command(["report", run, "-o", str(tmp_path)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("tuner: there is no run folder")
    assert told[-1] == f"tuner: cannot write {tmp_path}: Is a directory"
