"""Small ONNX models: imported, compiled, and compared with what another runtime makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from spaces.codegen.executable import compile_module, compile_plainly
from spaces.deploy.apply import apply_best
from spaces.design_space.task_space import TaskSpace
from spaces.frontends.declared import resolve, tie
from spaces.frontends.onnx.model import read_onnx_proto
from spaces.import_check.unsigned_weights import drop_signs
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from tuner.candidate import Draft
from tuner.dynamic.shapes import Domain
from tuner.errors import TunerError

TARGET = '{"kind":"llvm","num-cores":1}'
Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
Runtime = Callable[[Any, Feeds], Sequence[Array]]


def parsed(text: str, **weights: Array) -> Any:
    """A model in ONNX's text format, with weights by name."""
    proto = onnx.parser.parse_model(text)
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    proto.graph.initializer.extend(tensors)
    return proto


def lowered(proto: Any, target: str = TARGET, ties: Sequence[tuple[str, str]] = ()) -> Any:
    """Its tensor programs, open dimensions kept open, but for those that are tied to others."""
    source = read_onnx_proto(proto, "small")
    declared = tie(source.declared, tuple(ties))
    domain = Domain(tuple((dim, (1, 2, 8)) for dim in declared.symbols))
    return lower(source.imported(resolve(declared, (), domain), domain), target)


def number_of_programs(module: Any) -> int:
    return len([*tvm_compat.prim_funcs(module)])


def refusal(proto: Any) -> str:
    """Why it is not imported: one line."""
    with pytest.raises(TunerError) as caught:
        lowered(proto)
    said = str(caught.value)
    assert "\n" not in said
    return said


def by_onnxruntime(proto: Any, feeds: Feeds) -> Sequence[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Where the CPU has no VNNI, sums of bytes are cut off without these.
    options.add_session_config_entry("session.x64quantprecision", "1")
    given = drop_signs(proto).SerializeToString()
    try:
        session = onnxruntime.InferenceSession(given, options)
    except Exception:  # it does not take weights that several products share so: then node by node
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(given, options)
    found: Sequence[Array] = session.run(None, dict(feeds))
    return found


def by_reference(proto: Any, feeds: Feeds) -> Sequence[Array]:
    from onnx.reference import ReferenceEvaluator

    found: Sequence[Array] = ReferenceEvaluator(proto).run(None, dict(feeds))
    return found


def compare(
    proto: Any,
    *fed: Feeds,
    peer: Runtime = by_onnxruntime,
    within: float = 1e-5,
    steps: int = 0,
) -> Any:
    """Have a model compute what another runtime does, for each of these inputs.

    Args:
        within: how far apart results may be; `steps` is for integers.

    Returns:
        Its tensor programs.
    """
    import tvm

    module = lowered(proto)
    library = compile_plainly(module, TARGET).library
    machine = tvm.relax.VirtualMachine(library, tvm.cpu())
    for feeds in fed:
        wanted = peer(proto, feeds)
        result = machine["main"](*map(tvm.runtime.tensor, feeds.values()))
        found = [result] if hasattr(result, "numpy") else [*result]
        for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
            said = f"output {place} of {[array.shape for array in feeds.values()]}"
            array = got.numpy()
            assert (array.dtype, array.shape) == (want.dtype, want.shape), said
            if np.issubdtype(want.dtype, np.floating):
                np.testing.assert_allclose(array, want, rtol=within, atol=within, err_msg=said)
            else:
                apart = np.abs(array.astype("int64") - want.astype("int64"))
                assert apart.max(initial=0) <= steps, f"{said}: {array} for {want}"
    return module


def run_scheduled(module: Any, feeds: Feeds, seed: int) -> Sequence[Array]:
    """Run a lowered model with a random schedule in each of its programs that takes one."""
    import tvm

    best = {}
    for task in extract(module, TARGET):
        for number in range(20):
            with contextlib.suppress(InvalidCandidate):
                point = TaskSpace(task).realize_draft(Draft(task.key, number, 100 * seed + number))
                best[task.key] = point.candidate
                break
    library = compile_module(apply_best(best, TARGET)(module), TARGET).library
    result = tvm.relax.VirtualMachine(library, tvm.cpu())["main"](
        *map(tvm.runtime.tensor, feeds.values())
    )
    return [t.numpy() for t in ([result] if hasattr(result, "numpy") else result)]
