"""A request on unlike devices: which run is whose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.app.driver.devices import Device, some_of_each
from cluster.app.driver.multi_device import parts
from cluster.scaling.scaling_policy import Node
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, open_run

A100 = Device('{"arch":"sm_80","kind":"cuda"}', "cuda NVIDIA A100 cc=8.0")
H200 = Device('{"arch":"sm_90","kind":"cuda"}', "cuda NVIDIA H200 cc=9.0")


def runs(run: Path | str, *devices: Device) -> list[Path | str]:
    return [part.run.named for part in parts("cuda", RunLocation.of(run), devices)]


def begin(run: Path, device: Device) -> None:
    open_run(run, Manifest("model.onnx", "hash", device.target))


def test_one_device_takes_the_run_as_it_is_named(tmp_path: Path) -> None:
    assert runs(tmp_path / "run", A100) == [tmp_path / "run"]


def test_each_of_several_has_its_own_below(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert runs(run, A100, H200) == [run / A100.name, run / H200.name]
    assert (A100.name, H200.name) == ("cuda-nvidia-a100-cc-8-0", "cuda-nvidia-h200-cc-9-0")


def test_below_a_url_too(tmp_path: Path) -> None:
    url = (tmp_path / "shared").as_uri()
    assert runs(url + "/", A100, H200) == [f"{url}/{A100.name}", f"{url}/{H200.name}"]


def test_each_is_asked_for_its_target() -> None:
    found = parts("cuda", RunLocation.of(Path("run")), (A100, H200))
    assert [part.target for part in found] == [A100.target, H200.target]


def test_a_run_that_began_on_one_device_stays_with_it(tmp_path: Path) -> None:
    begin(tmp_path / "run", H200)
    (part,) = parts("cuda", RunLocation.of(tmp_path / "run"), (A100, H200))
    assert part.device == H200
    assert part.run.folder == tmp_path / "run"


def test_runs_below_go_on_where_only_one_of_the_devices_is_left(tmp_path: Path) -> None:
    begin(tmp_path / "run" / A100.name, A100)
    assert runs(tmp_path / "run", A100) == [tmp_path / "run" / A100.name]


def test_a_run_keeps_the_target_that_it_began_with(tmp_path: Path) -> None:
    """An older TVM may have said less of the same machine."""
    zen = Device('{"kind":"llvm","mcpu":"znver3","model":"l1=1"}', "cpu AMD EPYC (znver3 71c9a538)")
    old = replace(zen, target='{"kind":"llvm","mcpu":"znver3"}')
    begin(tmp_path / "run", old)
    (part,) = parts("llvm", RunLocation.of(tmp_path / "run"), (zen,))
    assert (part.run.folder, part.target) == (tmp_path / "run", old.target)
    begin(tmp_path / zen.name, old)
    for devices in ((zen,), (zen, A100)):
        first = parts("llvm", RunLocation.of(tmp_path), devices)[0]
        assert (first.run.folder, first.target) == (tmp_path / zen.name, old.target)


@pytest.mark.parametrize(("leaving", "number"), [(None, 16), (5.0, 0)])
def test_of_machines_that_look_the_same_some_are_asked(leaving: float | None, number: int) -> None:
    alike = [
        Node(f"{n}", {"GPU": 1.0, "accelerator_type:A100": 1.0, f"node:10.0.0.{n}": 1.0}, leaving)
        for n in range(100)
    ]
    other = Node("other", {"GPU": 1.0, "accelerator_type:H200": 1.0})
    found = some_of_each([*alike, other])
    assert len(found) == number + 1
    assert other in found
