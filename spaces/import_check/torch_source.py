"""PyTorch as the source of a model that was exported from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.frontends.quiet_import import hush
from spaces.import_check.sources import CannotRun
from tuner.errors import first_line

Array = npt.NDArray[Any]


class TorchSource:
    """A program of `torch.export` as a `spaces.import_check.sources.Source`.

    Raises:
        CannotRun: PyTorch makes no module of it.
    """

    def __init__(self, program: Any) -> None:
        import torch

        self.name = f"torch {torch.__version__}"
        self._program = program
        try:
            with hush():
                self._module = program.module()
        except Exception as error:  # it raises whatever it meets
            raise CannotRun(f"{self.name} does not take it: {first_line(error)}") from error

    def outputs(self, feeds: Sequence[Array]) -> list[Array]:
        """See `Source`."""
        import torch
        import tvm
        from torch.utils import _pytree

        # By way of TVM, which has all types of elements; NumPy's own export has its own only.
        tensors = (torch.from_dlpack(tvm.runtime.tensor(np.array(feed))) for feed in feeds)
        args, kwargs = _pytree.tree_unflatten(
            [*_leaves(self._program, tensors)], self._program.call_spec.in_spec
        )
        try:
            with torch.no_grad(), hush(), _settle_open_rows():
                found, _ = _pytree.tree_flatten(self._module(*args, **kwargs))
        except Exception as error:  # it raises whatever it meets
            raise CannotRun(f"{self.name} does not run it: {first_line(error)}") from error
        results = [tensor for tensor in found if isinstance(tensor, torch.Tensor)]
        return [tvm.runtime.from_dlpack(one.detach().contiguous()).numpy() for one in results]


def _settle_open_rows() -> Any:
    """A mode of PyTorch's in which rows beyond the last group of a grouped product are zeros, as
    here. PyTorch leaves them as it finds them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Settled(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = operator(*args, **(kwargs or {}))
            if operator is torch.ops.aten._grouped_mm.default:
                ends = (kwargs or {}).get("offs", args[2] if len(args) > 2 else None)
                if ends is not None and found.dim() == args[0].dim() == 2:
                    found[int(ends[-1]) :] = 0
            return found

    return Settled()


def _leaves(program: Any, tensors: Iterator[Any]) -> Iterator[Any]:
    """The arguments of a program: its tensors, and what was fixed when it was exported."""
    from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument

    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, TensorArgument):
            yield next(tensors)
        elif isinstance(spec.arg, ConstantArgument):
            yield spec.arg.value
        else:
            raise CannotRun(f"its argument {spec.arg.name} is no tensor")
