"""torch.compile with our backend: tuned or from a store, right, and PyTorch where it must be."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needed import needed_package
from tuner.errors import UsageError

torch = needed_package("torch")

from cluster.app.api import torch_backend  # noqa: E402
from cluster.app.api.torch_backend import Graph, Wishes  # noqa: E402

ROOT = Path(__file__).parents[4]
pytestmark = [pytest.mark.tvm, pytest.mark.slow]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing was compiled before."""
    torch._dynamo.reset()
    with torch.no_grad():
        yield


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that the backend was given."""
    made: list[Graph] = []
    real = Graph.__init__

    def init(graph: Graph, *arguments: Any) -> None:
        real(graph, *arguments)
        made.append(graph)

    monkeypatch.setattr(Graph, "__init__", init)
    return made


@pytest.fixture(scope="module")
def no_runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of nothing: what is compiled gets its default schedules."""
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    folder = tmp_path_factory.mktemp("database")
    JSONDatabase(work_dir=str(folder))
    return str(folder)


def classifier() -> Any:
    from examples.torch_compile import Classifier

    torch.manual_seed(0)
    return Classifier().eval()


def agree(fast: Any, model: Any, *rows: int) -> None:
    """Whether outputs are PyTorch's, the first time and from the library, for so many rows each."""
    for count in rows:
        x = torch.randn(count, 64)
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))


def compiled(graphs: list[Graph]) -> int:
    """The number of libraries that are used."""
    return sum(made is not None for graph in graphs for made in graph._made.values())


@pytest.mark.ray
@pytest.mark.long
def test_the_example_is_tuned_and_right(
    tmp_path: Path, graphs: list[Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.torch_compile import main

    # Ray keeps how it proves who it is for as long as a process lives: other tests use another way.
    said = {"trials": 4, "strategy": "random", "run": str(tmp_path / "runs")}
    program = f"from examples.torch_compile import main; assert main({said}) < 1e-5"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=280)
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "records.sqlite").exists()

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("what the store has is not tuned again")

    monkeypatch.setattr(torch_backend, "tune", refused)
    torch._dynamo.reset()
    assert main({"store": str(run)}) < 1e-5
    assert compiled(graphs) == 1


def test_each_shape_is_compiled_and_other_weights_are_seen(
    graphs: list[Graph], no_runs: str
) -> None:
    model = classifier()
    fast = torch.compile(model, backend="elastic_tuner", options={"store": no_runs}, dynamic=False)
    agree(fast, model, 16, 5, 16)
    assert compiled(graphs) == 2
    model.out.weight.mul_(2.0)
    agree(fast, model, 16)
    assert compiled(graphs) == 2


@pytest.mark.gpu
def test_on_a_device_tensors_stay_there(graphs: list[Graph], no_runs: str) -> None:
    model = classifier().cuda()
    fast = torch.compile(model, backend="elastic_tuner", options={"store": no_runs}, dynamic=False)
    for rows in (16, 5, 16):
        x = torch.randn(rows, 64, device="cuda")
        got = fast(x)
        assert got.device == x.device
        torch.testing.assert_close(got, model(x), rtol=1e-3, atol=1e-4)
    assert compiled(graphs) == 2


def test_one_graph_of_any_length_is_compiled_for_the_lengths_that_come(
    graphs: list[Graph], no_runs: str
) -> None:
    model = classifier()
    fast = torch.compile(model, backend="elastic_tuner", options={"store": no_runs}, dynamic=True)
    agree(fast, model, 3, 7, 3)
    assert compiled(graphs) == 2


def views(x: Any) -> Any:
    return torch.tanh(x) + 1, torch.relu(x).sum(0)


def test_views_and_several_outputs_are_handed_over(graphs: list[Graph], no_runs: str) -> None:
    fast = torch.compile(views, backend="elastic_tuner", options={"store": no_runs}, dynamic=False)
    whole = torch.randn(9, 40)
    for x in (whole, whole[:, 1:9], whole.T, whole[1:]):
        for _ in range(2):
            for got, want in zip(fast(x), views(x), strict=True):
                torch.testing.assert_close(got, want)
    assert compiled(graphs) >= 2


def in_place(x: Any) -> Any:
    return x.mul_(2.0)


def odd(x: Any) -> Any:
    return torch.linalg.svdvals(x)


def viewed(x: Any) -> Any:
    return torch.tanh(x), x.view(-1)


TABLE = torch.arange(4.0)


def constant(x: Any) -> Any:
    return torch.tanh(x), TABLE * 2


def test_what_a_caller_does_to_a_constant_result_is_not_seen_by_the_next(no_runs: str) -> None:
    fast = torch.compile(constant, backend="elastic_tuner", options={"store": no_runs})
    x = torch.randn(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            _, doubled = fast(x)
            torch.testing.assert_close(doubled, TABLE * 2)
            doubled.add_(100)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (in_place, "changes a tensor in place"),
        (odd, "svd"),
        (viewed, "a view of an input"),
    ],
)
def test_what_cannot_be_compiled_runs_in_pytorch_and_says_why_once(
    function: Any, why: str, graphs: list[Graph], no_runs: str
) -> None:
    fast = torch.compile(function, backend="elastic_tuner", options={"store": no_runs})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            x = torch.randn(4, 4)
            torch.testing.assert_close(fast(x.clone()), function(x.clone()))
    assert compiled(graphs) == 0
    said = [str(w.message) for w in told if "elastic_tuner" in str(w.message)]
    assert len(said) == 1
    assert why in said[0]


def test_gradients_are_left_to_pytorch(graphs: list[Graph], no_runs: str) -> None:
    model = classifier()
    fast = torch.compile(model, backend="elastic_tuner", options={"store": no_runs})
    with torch.enable_grad(), pytest.warns(UserWarning, match=r"use torch\.no_grad"):
        fast(torch.randn(4, 64)).sum().backward()
    assert model.out.weight.grad is not None
    assert compiled(graphs) == 0


def test_an_output_that_differs_is_not_used(
    graphs: list[Graph], no_runs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cluster.app.api.torch_graph.callable_of", lambda *_: lambda *given: [given[0] + 0.5]
    )
    fast = torch.compile(torch.tanh, backend="elastic_tuner", options={"store": no_runs})
    x = torch.randn(4, 4)
    with pytest.warns(UserWarning, match="output 0 is off by"):
        torch.testing.assert_close(fast(x), torch.tanh(x))
    torch.testing.assert_close(fast(x), torch.tanh(x))


def test_options_are_those_of_tune_and_a_few_of_its_own() -> None:
    assert Wishes.of(None).of_run == {"time_budget": "2m"}
    assert Wishes.of({"store": "runs/mine"}).run is None
    both = Wishes.of({"store": "runs/mine", "trials": 64})
    assert both.run is not None
    assert both.of_run == {"trials": 64}
    with pytest.raises(UsageError, match="did you mean trials"):
        Wishes.of({"trails": 3})
