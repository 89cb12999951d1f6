"""Networks as exporters write them, with open dimensions: imported for the model's own symbols, and
right at every size. The files are made by `tests/golden/exported/make.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from spaces.codegen.executable import compile_plainly
from spaces.frontends.inputs import InputSpec
from spaces.frontends.model import Model, load_model
from spaces.lowering.extract_tasks import call_counts, extract
from spaces.lowering.lower import lower
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","num-cores":1}'
FILES = Path(__file__).parents[3] / "golden" / "exported"
LENGTHS = {"sequence": range(1, 33)}
IMAGES = {"h": range(2, 9), "w": range(2, 9)}
NETWORKS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "bert-dynamo": LENGTHS,
    "bert-tracing": LENGTHS,
    "bert_batch-dynamo": {"batch": (1, 2, 4), "sequence": (1, 8, 32)},
    "bert_batch-tracing": {"batch": (1, 2, 4), "sequence": (1, 8, 32)},
    "t5-tracing": LENGTHS,
    "gpt2-dynamo": LENGTHS,
    "llama-dynamo": LENGTHS,
    "gpt2_step-dynamo": {"past": range(1, 33)},
    "llama_step-dynamo": {"past": range(1, 33)},
    "unet-dynamo": IMAGES,
    "unet-tracing": {"height": range(8, 33, 8), "width": range(8, 33, 8)},
}
OF_BOTH_EXPORTERS = {"bert-tracing", "bert_batch-dynamo", "unet-dynamo"}
"""Those of which the other exporter's file is tested each time."""
SIZES = (1, 2, 3, 5, 7, 8, 13, 31, 39)
"""Ends, primes, and one that is not tuned for."""
VOCABULARY = 50


def loaded(file: Path, dims: Mapping[str, Sequence[int]]) -> Model:
    given = tuple((dim, tuple(sizes)) for dim, sizes in dims.items())
    return load_model(ModelSpec(str(file), dims=given))


def file_of(name: str) -> Path:
    return FILES / f"{name}.onnx"


@dataclass(frozen=True)
class Compiled:
    """A file at the sizes of its network, open dimensions kept open."""

    model: Model
    lowered: Any
    library: Any

    def machine(self) -> Any:
        import tvm

        return tvm.relax.VirtualMachine(self.library, tvm.cpu())


@lru_cache
def compiled(file: Path) -> Compiled:
    model = loaded(file, NETWORKS[file.stem])
    lowered = lower(model.module, TARGET)
    return Compiled(model, lowered, compile_plainly(lowered, TARGET).library)


def sizes_of(dims: Mapping[str, Any], number: int) -> dict[str, int]:
    """A size for each dimension, unlike where there are several."""
    values = {dim: number + place for place, dim in enumerate(dims)}
    return {d: 4 * v if d in ("height", "width") else v for d, v in values.items()}


def fed(spec: InputSpec, sizes: Mapping[str, int], rng: np.random.Generator) -> npt.NDArray[Any]:
    shape = spec.at(sizes).shape
    if spec.dtype != "int64":
        return rng.normal(size=shape).astype(spec.dtype)
    if "mask" not in spec.name:
        return rng.integers(0, VOCABULARY, shape)
    mask = np.ones(shape, dtype="int64")
    mask[:, : shape[1] // 3] = 0
    return mask


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long) if n in OF_BOTH_EXPORTERS else n for n in NETWORKS],
)
def test_an_exported_network_is_right_at_every_size(name: str) -> None:
    check(file_of(name))


def check(file: Path) -> None:
    """Compare a file with onnxruntime at many sizes."""
    import onnxruntime
    import tvm

    dims, network = NETWORKS[file.stem], compiled(file)
    model, machine = network.model, network.machine()
    assert any(task.shapes for task in extract(network.lowered, TARGET, None, model.shapes))
    peer = onnxruntime.InferenceSession(str(file))
    names = [value.name for value in peer.get_inputs()]
    rng = np.random.default_rng(0)
    for number in SIZES:
        sizes = sizes_of(dims, number)
        feeds = [fed(spec, sizes, rng) for spec in model.inputs]
        wanted = peer.run(None, dict(zip(names, feeds, strict=True)))
        found = machine["main"](*map(tvm.runtime.tensor, feeds))
        outputs = [found] if hasattr(found, "numpy") else [*found]
        for got, want in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


def test_a_dimension_that_is_an_expression_is_given_by_its_symbol() -> None:
    model = loaded(file_of("unet-dynamo"), IMAGES)
    assert model.inputs[0].dims == (1, 3, "h_x4", "w_x4")
    assert model.inputs[0].shape == (1, 3, 32, 32)


def test_programs_that_only_write_sizes_are_no_tasks() -> None:
    model = loaded(file_of("bert-tracing"), LENGTHS)
    lowered = lower(model.module, TARGET)
    assert "shape_to_tensor" in call_counts(lowered)
    tasks = extract(lowered, TARGET, None, model.shapes)
    assert "shape_to_tensor" not in {task.name for task in tasks}


def test_a_length_follows_from_another_one() -> None:
    model = loaded(file_of("llama_step-dynamo"), {"past": range(1, 33)})
    assert [spec.dims for spec in model.inputs] == [
        (),
        (1, "past_x1_p1"),
        (1, 2, "past", 4),
        (1, 2, "past", 4),
    ]


def test_sizes_beyond_what_a_model_has_tables_for_are_refused_before_it_is_tuned() -> None:
    with pytest.raises(TunerError, match=r"with sequence=60, operator Slice .* reaches 20 too far"):
        loaded(file_of("bert-dynamo"), {"sequence": range(1, 61)})


def test_a_library_refuses_sizes_that_its_model_has_no_tables_for() -> None:
    """Nothing is read beyond the table's end."""
    import tvm

    machine = compiled(file_of("bert-dynamo")).machine()
    tokens = tvm.runtime.tensor(np.ones((1, 41), dtype="int64"))
    with pytest.raises(Exception, match=r"1 vs\. 0"):
        machine["main"](tokens, tokens)


def test_sizes_without_the_divisor_that_a_network_needs_are_refused_in_one_line() -> None:
    with pytest.raises(TunerError, match="a common divisor may help") as caught:
        loaded(file_of("unet-tracing"), {"height": (16, 19, 32), "width": (16, 32)})
    assert "operator Concat" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_size_that_is_no_multiple_ends_the_library_with_an_error() -> None:
    import tvm

    machine = compiled(file_of("unet-tracing")).machine()
    image = np.zeros((1, 3, 18, 16), dtype="float32")
    with pytest.raises(Exception, match="match_cast"):
        machine["main"](tvm.runtime.tensor(image))


def test_every_file_is_tested_and_small() -> None:
    files = sorted(FILES.glob("*.onnx"))
    assert {file.stem for file in files} == set(NETWORKS)
    assert max(file.stat().st_size for file in files) < 100_000
