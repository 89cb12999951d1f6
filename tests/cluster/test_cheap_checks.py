"""What is wrong with a request is said before a machine is waited for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions

pytestmark = [pytest.mark.tvm, pytest.mark.ray]

ROOT = Path(__file__).resolve().parents[2]
MODELS = "def product(m: int):\n    raise SystemExit('it was called')\n"


class Waited(Exception):
    """Machines were asked for."""


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cluster that has no machine, and would be waited for."""
    from cluster.app.driver import devices
    from cluster.ray_workers import ray_cluster

    def wait(*_: Any) -> None:
        raise Waited

    monkeypatch.chdir(tmp_path)
    Path("models.py").write_text(MODELS)
    Path("there.onnx").write_bytes(b"it is not opened")
    monkeypatch.setattr(ray_cluster, "ray_cluster", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(devices, "devices_on_cluster", wait)


def tuned(model: ModelSpec, **options: Any) -> None:
    from cluster.app.tune import tune

    tune(TuneOptions(model, address="127.0.0.1:1", **options))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (ModelSpec("nosuch.onnx"), "nosuch.onnx: no such file"),
        (ModelSpec("nosuch.pt2"), "nosuch.pt2: no such file"),
        (ModelSpec("nosuch.py:product"), "nosuch.py: no such file"),
        (ModelSpec("nosuch.module:product"), "nosuch.module cannot be imported"),
        (ModelSpec("models.py:produkt"), "has no function produkt"),
        (ModelSpec("models.py:product"), "needs more arguments: --arg m="),
        (ModelSpec("models.py:product", args=(("m", "many"),)), "not of type int"),
        (ModelSpec("models.py:product", args=(("k", 3),)), "no such argument"),
        (ModelSpec("there.onnx", args=(("m", 3),)), "only a function takes arguments"),
        (ModelSpec("there.txt"), "not a model"),
        (ModelSpec("there.onnx", inputs=(("x", Path("nosuch.npy")),)), "nosuch.npy"),
        (
            ModelSpec("there.onnx", dims=(("T", (1, 2)),), weights=Path("nosuch.json")),
            "nosuch.json",
        ),
        (ModelSpec("there.onnx", weights=Path("nosuch.json")), "no --dim"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_that_cannot_be_read(model: ModelSpec, said: str) -> None:
    with pytest.raises(TunerError) as refused:
        tuned(model)
    assert said in str(refused.value)


def test_other_runs_and_models_that_are_named() -> None:
    with pytest.raises(TunerError, match="nosuch"):
        tuned(ModelSpec("there.onnx"), seeds_from=(Path("nosuch"),))
    with pytest.raises(TunerError, match=r"nosuch\.json"):
        tuned(ModelSpec("there.onnx"), base_model="nosuch.json")


def test_what_can_be_read_waits_and_a_function_is_not_called_for_it() -> None:
    with pytest.raises(Waited):
        tuned(ModelSpec("there.onnx"))
    with pytest.raises(Waited):
        tuned(ModelSpec("models.py:product", args=(("m", 4),)))


def test_a_device_that_this_machine_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cluster.app.tune import tune
    from cluster.ray_workers.nodes import NodeWatch
    from cluster.scaling.scaling_policy import Cluster, Node

    monkeypatch.setattr(NodeWatch, "look", lambda _: Cluster((Node("here", {"CPU": 2}),)))
    args = (("m", 16), ("n", 16), ("k", 16))
    model = ModelSpec(f"{ROOT}/examples/gemm.py:gemm", args=args)
    hopper = '{"kind": "cuda", "arch": "sm_90"}'
    with pytest.raises(TunerError, match="has no CUDA device to measure on"):
        tune(TuneOptions(model, target=hopper, trials=4, run=tmp_path / "run"))
