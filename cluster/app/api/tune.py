"""`tuner.tune`: tunes a model that a program has, with keywords for options."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.app.api.keywords import FIELDS, LAYERS, model_spec, tune_options
from cluster.app.driver.kept_model import check_kept, load_kept_model
from cluster.app.driver.tune_result import TuneResult
from tuner.errors import UsageError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from cluster.app.tune import Watch

_OF_THE_MODEL = ("args", "shapes", "inputs", "dims", "weights", "example_inputs")
_OPTIONS = {*FIELDS, *LAYERS}


def tune(
    model: Any = None,
    *,
    target: Any = None,
    trials: int | None = None,
    time_budget: str | float | None = None,
    run: Path | str | None = None,
    args: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    weights: Any = None,
    example_inputs: Any = None,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
    tracking_uri: str | None = None,
    **more: Any,
) -> TuneResult:
    """Tune a model until its budget is spent. Defaults are those of the command.

    Args:
        model: a path, `path.py:function`, an IRModule, a PrimFunc, a list of `te.Tensor`s, an
            `onnx.ModelProto`, a `torch.export.ExportedProgram`, or a `torch.nn.Module`; None goes
            on with the model that `run` keeps. A `TuneOptions` is a whole request.
        target: `llvm`, `cuda`, or a TVM target, as an object, JSON or a dictionary.
        trials: total number of trials of the run.
        time_budget: seconds, or a text like `20m`.
        run: the run folder, or a URL; name an existing run to go on with it.
        args: arguments of the function that makes the model, `{"m": 96}`.
        shapes: shapes of inputs that are dynamic, `{"x": (1, 3, 224, 224)}`.
        inputs: values of inputs: files, arrays, or ranges of integers to draw from,
            `{"x": "x.npy", "mask": numpy.ones((1, 128), "int64"), "ids": range(30522)}`.
        dims: sizes of symbolic dimensions, `{"T": range(1, 129)}`, or what follows from others,
            `{"all": "past+new"}`.
        weights: weights of these: by size, `{5: 0.2, 24: 1}`, a list in their order, or a file.
        example_inputs: arguments that a `torch.nn.Module` is called with.
        watch: called with the run's progress about twice a second, on the calling thread.
        stop: set it to end the run in order.
        tracking_uri: URI of an MLflow server; None keeps a database in the run folder.
        more: any other field of `TuneOptions`, such as `effort="quick"` or `device_wait="10m"`; any
            layer of `tuner.layers.Layers`, by its name or as a class: `cost_model="mine.py:Trees"`,
            `strategy=Mine`, `observers=[Mine]`.

    Raises:
        UsageError: a value is invalid.
        TunerError: the request cannot be met; the text says why, in one line.
    """
    said = {
        "target": target,
        "trials": trials,
        "time_budget": time_budget,
        "run": run,
        "args": args,
        "shapes": shapes,
        "inputs": inputs,
        "dims": dims,
        "weights": weights,
        "example_inputs": example_inputs,
        **more,
    }
    options = options_of(model, {name: v for name, v in said.items() if v is not None})
    from cluster.app.tune import tune as tune_model

    return tune_model(options, watch=watch, stop=stop, tracking_uri=tracking_uri)


def options_of(model: Any, said: Mapping[str, Any]) -> TuneOptions:
    """The request that a model and some keywords make; a model in memory is imported.

    Raises:
        UsageError: a keyword is unknown, or a value is invalid.
        TunerError: the model cannot be imported.
    """
    if isinstance(model, TuneOptions):
        if said:
            raise UsageError(f"{next(iter(said))}: a TuneOptions says everything: put it in there")
        return model
    known = (*_OF_THE_MODEL, *_OPTIONS)
    for name in said:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise UsageError(f"{name}: no such keyword; {hint}")
    of_model = {name: value for name, value in said.items() if name in _OF_THE_MODEL}
    of_run = {name: value for name, value in said.items() if name in _OPTIONS}
    # Cheap refusals first: reading a model may take long.
    tune_options(ModelSpec("model"), of_run)
    return tune_options(_spec(model, of_model, of_run.get("run")), of_run)


def _spec(model: Any, said: Mapping[str, Any], run: Any) -> ModelSpec:
    if model is None:
        check_kept(run, said)
        return load_kept_model(RunLocation.of(run))
    if isinstance(model, ModelSpec):
        for name in said:
            raise UsageError(f"{name}: a ModelSpec says it all, so nothing can be said beside it")
        return model
    from spaces.frontends.memory_model import check_examples, model_in_memory

    examples = said.get("example_inputs")
    check_examples(model, examples)
    if isinstance(model, str | Path):
        return model_spec(str(model), said)
    spec = model_spec("model", said)
    made = model_in_memory(model, spec, examples)
    return ModelSpec(made.name, inputs=spec.inputs, program=made)
