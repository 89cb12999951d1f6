"""A graph of PyTorch's as a library of TVM's that takes and gives PyTorch's tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.codegen.executable import compile_module, flat
from spaces.deploy.bench import errors
from spaces.frontends.memory_model import model_in_memory
from spaces.frontends.model import Model
from spaces.targets.backends import backend_of
from spaces.targets.target import device_of
from tuner.errors import TunerError, first_line
from tuner.request.model_spec import ModelSpec

_STATIC = "_dynamo_static_input_type"
"""Mark of tensors that a module owns, which are handed over as inputs."""
_ALLOWED = {"float32": 1e-3, "float64": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}
"""The largest difference to PyTorch's output, over its largest value."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A graph with its weights as constants, for inputs of fixed shapes.

    Attributes:
        program: what `torch.export` makes of it.
        places: positions of the tensors that are no weights.
        weights: by position, each with its version when it was taken.
    """

    program: Any
    places: tuple[int, ...]
    weights: tuple[tuple[int, Any, int], ...]

    def holds(self, arguments: Sequence[Any]) -> bool:
        """Whether the weights are still those."""
        return all(arguments[i] is w and w._version == version for i, w, version in self.weights)


def frozen(graph: Any, arguments: Sequence[Any]) -> Frozen:
    """Export a graph.

    Raises:
        TunerError: it cannot be exported, or changes what it is given.
    """
    import torch

    weights = {i: a for i, a in enumerate(arguments) if _is_weight(a)}
    numbers = {i: a.item() for i, a in enumerate(arguments) if is_number(a)}
    fixed = {*weights, *numbers}
    places = tuple(i for i, a in enumerate(arguments) if torch.is_tensor(a) and i not in fixed)

    class Bound(torch.nn.Module):  # type: ignore[misc]
        """The graph, of the arguments that vary."""

        def __init__(self) -> None:
            super().__init__()
            for i, weight in weights.items():
                self.register_buffer(f"weight_{i}", weight.detach())

        def forward(self, *varying: Any) -> Any:
            given = list(arguments)
            for i in weights:
                given[i] = getattr(self, f"weight_{i}")
            for i, number in numbers.items():
                given[i] = torch.tensor(number, dtype=torch.float64)
            for i, value in zip(places, varying, strict=True):
                given[i] = value
            return graph(*given)

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's of PyTorch's own names
            program = torch.export.export(Bound().eval(), tuple(arguments[i] for i in places))
            signature = program.run_decompositions({}).graph_signature  # only then it is known
    except Exception as error:  # it raises many kinds on what it cannot trace
        raise TunerError(f"torch.export cannot export it: {first_line(error)}") from error
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise TunerError("it changes a tensor in place that it was given")
    versions = tuple((i, weight, weight._version) for i, weight in weights.items())
    return Frozen(program, places, versions)


def is_number(argument: Any) -> bool:
    """Whether it is a number of the program's, which a graph of any shape gets as a tensor."""
    import torch

    return bool(
        torch.is_tensor(argument)
        and argument.dim() == 0
        and argument.dtype == torch.float64
        and argument.device.type == "cpu"
    )


def _is_weight(argument: Any) -> bool:
    import torch

    return isinstance(argument, torch.nn.Parameter) or hasattr(argument, _STATIC)


def import_program(program: Any) -> Model:
    """The model of an exported program, whose weights are taken to the host: compilers read them.

    Raises:
        TunerError: TVM cannot take it.
    """
    import torch

    for kept in (program.state_dict, program.constants):
        for name, value in kept.items():
            if torch.is_tensor(value):
                kept[name] = value.cpu()
    return model_in_memory(program, ModelSpec("graph"))


def callable_of(scheduled: Any, target: str, places: Sequence[int]) -> Callable[..., Any]:
    """A function of PyTorch's tensors that runs a lowered module, its weights packed.

    On a GPU it runs on PyTorch's current stream, as PyTorch's own operators do: tensors stay where
    they are, and nothing waits for the device.

    Args:
        target: canonical JSON.
        places: positions of the arguments that the module takes.

    Raises:
        TunerError: it does not compile, or there is no such device.
    """
    import torch
    from tvm import relax

    built, device = compile_module(scheduled, target), device_of(target)
    main, on_host = relax.VirtualMachine(built.library, device)["main"], backend_of(target).on_host

    def run(*arguments: Any) -> list[Any]:
        given = [_hand_over(arguments[i]) for i in places]
        if not on_host:
            device.set_raw_stream(torch.cuda.current_stream().cuda_stream)
        return [torch.from_dlpack(tensor) for tensor in flat(main(*given))]

    return run


def _hand_over(tensor: Any) -> Any:
    """A tensor of TVM's on the memory of one of PyTorch's; on a copy of it where that is not in
    one piece, or does not begin where TVM's kernels expect it."""
    from tvm.runtime import from_dlpack

    whole = tensor.detach().contiguous()
    return from_dlpack(whole if whole.data_ptr() % 64 == 0 else whole.clone())


def refuse_views(results: Sequence[Any], others: Sequence[Any]) -> None:
    """Refuse results on the memory of other tensors: a library gives tensors of their own, or hands
    out its constants, which callers may change.

    Raises:
        TunerError: there is one.
    """
    import torch

    places = {t.untyped_storage().data_ptr() for t in others if torch.is_tensor(t)}
    for result in results:
        if not torch.is_tensor(result):
            raise TunerError("it gives something that is no tensor")
        if result.numel() and result.untyped_storage().data_ptr() in places:
            raise TunerError("it gives a view of an input, or a constant")


def difference(got: Sequence[Any], wanted: Sequence[Any]) -> str:
    """How outputs differ from PyTorch's own by more than rounding; empty if they do not."""
    if len(got) != len(wanted):
        return f"it gives {len(got)} outputs, PyTorch {len(wanted)}"
    for place, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        dtype = str(theirs.dtype).removeprefix("torch.")
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"output {place} is {ours.dtype} {tuple(ours.shape)}, PyTorch's is {dtype}"
        pair = ([_array(ours)], [_array(theirs)])
        _, relative = errors(*pair)
        if relative > _ALLOWED.get(dtype, 0.0):
            return f"output {place} is off by {relative:.2g} of its largest value"
    return ""


def _array(tensor: Any) -> Any:
    import torch

    wide = tensor.detach().cpu()
    return (wide.to(torch.float64) if wide.is_floating_point() else wide).numpy()
