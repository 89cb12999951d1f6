"""What a library's functions are called with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.artifact import build_artifact, load_artifact
from spaces.ir import tvm_compat
from spaces.ir.element_types import numpy_dtype
from spaces.ir.schedules import InvalidCandidate
from spaces.libraries.calls import candidate_of, make_call
from spaces.libraries.offers import offers
from spaces.libraries.registration import register
from spaces.lowering.extract_tasks import task_of
from tests.spaces.libraries.cumsum import Sums, cumsum
from tuner.errors import UsageError
from tuner.source import Source

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","num-cores":1}'
HERE = Path(__file__).parent


def added(dtype: str) -> Any:
    from tvm import te

    x = te.placeholder((3, 5), dtype, "x")
    return te.create_prim_func([x, te.compute((3, 5), lambda i, j: x[i, j] + x[i, j], "y")])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8"])
def test_a_python_function_gets_arrays_on_the_kernels_memory(dtype: str) -> None:
    import tvm

    told: list[tuple[str, tuple[int, ...]]] = []

    class Adds:
        def functions(self) -> Any:
            def add(x: Any, y: Any) -> None:
                told.append((str(x.dtype), x.shape))
                y[:] = x + x

            return {"test.add": add}

    register(Adds)
    call = make_call(added(dtype), candidate_of("test.add", "library:Adds@1"))
    kernel = load_artifact(build_artifact(tvm_compat.normalize(call), TARGET))["main"]
    x, y = tvm.runtime.empty((3, 5), dtype), tvm.runtime.empty((3, 5), dtype)
    x.copyfrom(np.arange(15).reshape(3, 5).astype(numpy_dtype(dtype)))
    kernel(x, y)
    np.testing.assert_array_equal(y.numpy().astype(np.float64), 2 * np.arange(15).reshape(3, 5))
    assert told == [(dtype, (3, 5))]


def test_an_offset_into_a_tensors_memory_counts() -> None:
    """As in a graph whose tensors share one block of memory."""
    import tvm
    from tvm import te

    class Copies:
        def functions(self) -> Any:
            return {"test.copy": lambda x, y: np.copyto(y, x)}

    register(Copies)
    x = te.placeholder((4,), "float32", "x")
    call = make_call(
        te.create_prim_func([x, te.compute((4,), lambda i: x[i], "y")]),
        candidate_of("test.copy", "library:Copies@1"),
    )
    kernel = load_artifact(build_artifact(tvm_compat.normalize(call), TARGET))["main"]
    whole = tvm.runtime.tensor(np.arange(32, dtype=np.float32))
    part = whole._create_view((4,), "float32", relative_byte_offset=64)
    y = tvm.runtime.empty((4,), "float32")
    kernel(part, y)
    np.testing.assert_array_equal(y.numpy(), [16, 17, 18, 19])


def test_a_call_keeps_the_programs_parameters_and_says_what_it_calls() -> None:
    program = cumsum(4, 32).with_attr("mine", 7)
    call = make_call(program, candidate_of("sums.cumsum", "library:Sums@0123"))
    said = json.loads(str(tvm_compat.attribute(call, "tuner.calls")))
    assert said == ["sums.cumsum", "library:Sums@0123"]
    assert tvm_compat.attribute(program, "tuner.calls") is None
    assert tvm_compat.attribute(call, "mine") == 7
    assert [tvm_compat.param_shape(p) for p in call.params] == [[4, 32], [4, 32]]
    other = make_call(program, candidate_of("sums.cumsum", "library:Sums@4567"))
    hashes = {tvm_compat.structural_hash_hex(each) for each in (call, other)}
    assert len(hashes) == 2, "another text of the library is another candidate"


def test_a_program_that_cannot_be_handed_over_is_no_call() -> None:
    from tvm import te

    zeros = te.create_prim_func([te.compute((4,), lambda i: te.const(0.0, "float32"), "y")])
    with pytest.raises(InvalidCandidate, match="only writes"):
        make_call(zeros, candidate_of("test.zeros", "library:Zeros@1"))
    for dtype in ("bfloat16", "float8_e4m3fn"):
        with pytest.raises(InvalidCandidate, match=f"{dtype} cannot"):
            make_call(added(dtype), candidate_of("test.add", "library:Adds@1"))


def test_a_library_offers_what_it_has_and_says_where_that_is_nothing() -> None:
    sums = Source("cumsum.py", (HERE / "cumsum.py").read_text(), "Sums")
    tasks = [
        task_of(cumsum(4, 32), TARGET, name="sums"),
        task_of(added("float32"), TARGET, name="added"),
    ]
    found = offers([sums], tasks)
    assert (found.error, found.notes) == ("", ())
    (candidate,) = found.candidates[tasks[0].key]
    assert found.candidates.keys() == {tasks[0].key}
    assert candidate.payload == "sums.cumsum"
    assert candidate.space == f"library:Sums@{sums.version}"
    assert offers([sums], tasks[1:]).notes == ("Sums has none of these programs",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Odd:\n    def symbol(self, program):\n        return 3", "Odd.py:3|symbol gave 3"),
        ("class Odd:\n    def symbol(self, program):\n        return oh", r"Odd\.py:3: NameError"),
        ("class Odd:\n    def __init__(self):\n        oh", r"Odd\.py:3: NameError"),
    ],
)
def test_a_library_at_fault_is_told_with_its_line(text: str, said: str) -> None:
    import re

    found = offers([Source("Odd.py", text, "Odd")], [task_of(cumsum(4, 32), TARGET, name="s")])
    assert re.search(said, found.error), found.error


def test_what_is_no_function_is_refused() -> None:
    class Odd(Sums):
        def functions(self) -> Any:
            return {"test.odd": 3}

    with pytest.raises(UsageError, match=r"test\.odd: 3 is no function"):
        register(Odd)


def test_a_program_that_a_library_cannot_be_called_for_is_left_to_kernels() -> None:
    text = "class All:\n    def symbol(self, program): return 'all.f'\n"
    tasks = [task_of(added(dtype), TARGET, name=dtype) for dtype in ("bfloat16", "float32")]
    found = offers([Source("all.py", text, "All")] * 2, tasks)
    assert found.error == ""
    assert (
        found.notes[0]
        == "All is not called for bfloat16: all.f: tensors of bfloat16 cannot be handed over"
    )
    assert found.candidates.keys() == {tasks[1].key}
    assert len(found.candidates[tasks[1].key]) == 1, "named twice, it is tried once"
