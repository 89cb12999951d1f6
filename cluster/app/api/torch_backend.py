"""`torch.compile(model, backend="elastic_tuner")`: graphs of PyTorch's, tuned and run by TVM."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.app.api.tune import options_of, tune
from cluster.app.passes.apply_best import ApplyBest
from cluster.app.passes.defaults import Defaults
from cluster.app.passes.library_dispatch import library_source
from spaces.deploy.provenance import open_functions
from spaces.libraries.registration import register_source
from spaces.lowering.lower import lower
from spaces.targets.target import resolve_target
from tuner.errors import TunerError, UsageError, first_line

_RUNS = "runs/torch"
_BUDGET = "2m"
_BUDGETS = ("trials", "time_budget", "effort")
_MOST_SHAPES = 8
"""Of one graph, each compiled for itself; any further runs in PyTorch."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of `torch.compile`.

    Attributes:
        stores: runs and databases whose schedules are used.
        run: the folder for the runs of the graphs, each under its own name; None tunes nothing.
        target: as `tuner.tune` takes it; None is the device of the graph's inputs.
        of_run: any other keyword of `tuner.tune`.
    """

    stores: tuple[Any, ...]
    run: Path | None
    target: Any
    of_run: Mapping[str, Any]

    @staticmethod
    def of(options: Mapping[str, Any] | None) -> Wishes:
        """Read the options.

        Raises:
            UsageError: there is no such option, or its value is invalid.
        """
        said = dict(options or {})
        stores = said.pop("store", ())
        stores = tuple(stores) if isinstance(stores, list | tuple) else (stores,)
        run, target = Path(said.pop("run", _RUNS)), said.pop("target", None)
        tunes = not stores or any(name in said for name in _BUDGETS)
        if tunes and not any(name in said for name in _BUDGETS):
            said["time_budget"] = _BUDGET
        options_of("model.onnx", said)  # refuses what there is not
        return Wishes(stores, run if tunes else None, target, said)


def elastic_tuner(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend: compiles a graph the first time that it is called with some shapes.

    Weights become constants. What cannot be compiled runs in PyTorch, and a warning says why, once:
    a graph with gradients, with an operator that TVM does not take, that changes what it is given,
    or whose output would differ from PyTorch's.

    Args:
        example_inputs: are not looked at: they may be without values.
        options: `store`, runs or databases whose schedules are taken, without tuning unless a
            budget is named; `run`, the folder for runs; `target`; and any keyword of `tuner.tune`.

    Raises:
        UsageError: there is no such option.
    """
    return Graph(graph, Wishes.of(options))


class Graph:
    """A graph, compiled for the shapes that it was called with."""

    def __init__(self, graph: Any, wishes: Wishes) -> None:
        self._graph, self._wishes = graph, wishes
        self._made: dict[Any, tuple[Callable[..., Any], Any] | None] = {}
        self._results: list[Any] = []  # schedules outlive a change of weights
        self._noted: set[str] = set()

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        import torch

        if torch.is_grad_enabled() and any(getattr(a, "requires_grad", False) for a in arguments):
            self._note("it is called with gradients: use torch.no_grad()")
            return self._graph(*arguments)
        key = tuple(_shape(argument) for argument in arguments)
        if key in self._made and (made := self._made[key]) is not None:
            run, kept = made
            if kept.holds(arguments):
                return run(*arguments)
            del self._made[key]  # weights were changed in place, or exchanged
        if key not in self._made:
            if len(self._made) >= _MOST_SHAPES:
                self._note(f"it was compiled for {_MOST_SHAPES} shapes already")
                return self._graph(*arguments)
            return self._first(key, arguments)
        return self._graph(*arguments)

    def _first(self, key: Any, arguments: Sequence[Any]) -> Any:
        """Run it in PyTorch, and compile it for the next time."""
        from cluster.app.api.torch_graph import difference, frozen, refuse_views

        self._made[key] = None
        try:
            kept = frozen(self._graph, arguments)
            wanted = self._graph(*arguments)
            refuse_views(wanted, arguments)
            run = self._compile(kept, arguments)
            first, again = run(*arguments), run(*arguments)
            if wrong := difference(first, list(wanted)):
                raise TunerError(wrong)
            refuse_views(first, again)
            self._made[key] = run, kept
        except UsageError:
            raise
        except Exception as error:  # TVM and PyTorch raise whatever their C++ sides threw
            self._note(first_line(error))
            return self._graph(*arguments)
        return wanted

    def _compile(self, kept: Any, arguments: Sequence[Any]) -> Callable[..., Any]:
        from cluster.app.api.torch_graph import callable_of, import_program

        wishes = self._wishes
        on_gpu = any(getattr(a, "is_cuda", False) for a in arguments)
        target = resolve_target(str(wishes.target or ("cuda" if on_gpu else "llvm")))
        model = import_program(kept.program)
        module = lower(model.module, target)
        if known := (*wishes.stores, *self._results):
            module = ApplyBest(*known, target=target)(module)
        if wishes.run is not None and open_functions(module):
            module = self._tune(module, target, wishes.run / model.content_hash[:12])
        for library in wishes.of_run.get("libraries", ()):
            register_source(library_source(library))
        return callable_of(Defaults(target)(module), target, kept.places)

    def _tune(self, module: Any, target: str, run: Path) -> Any:
        """A module with what tuning finds; as it is where there is nothing to tune or no time."""
        try:
            result = tune(module, target=target, run=run, **self._wishes.of_run)
            done = ApplyBest(result, target=target)(module)
        except UsageError:
            raise
        except TunerError as error:
            self._note(f"it has default schedules: {error}", "a graph is not tuned")
            return module
        self._results.append(result)
        return done

    def _note(self, why: str, what: str = "a graph runs in PyTorch") -> None:
        if why not in self._noted:
            self._noted.add(why)
            warnings.warn(f"elastic_tuner: {what}: {why}", stacklevel=3)


def _shape(argument: Any) -> Any:
    """What a library is compiled for."""
    from cluster.app.api.torch_graph import is_number

    if is_number(argument):
        return argument.item()
    if hasattr(argument, "shape"):
        return tuple(map(int, argument.shape)), str(argument.dtype), str(argument.device)
    return argument
