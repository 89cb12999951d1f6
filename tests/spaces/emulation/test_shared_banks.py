"""The best predicted kernels use the banks of shared memory without conflicts.

Each is written for a smaller program with the same remainders, so that its tiles and the widths of
its copies are those of the large one, and runs on the emulated device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.emulation.library import SharedUse
from spaces.templates.registry import templates_of
from tests.spaces.emulation.watched import watch_program
from tests.spaces.templates.attention import test_attention_template as attention
from tests.spaces.templates.attention.attentions import Sizes as HeadSizes
from tests.spaces.templates.attention.attentions import task_for as attention_task
from tests.spaces.templates.few_rows.few_row_programs import matmul, space_for
from tests.spaces.templates.gpu_memory.test_gpu_memory_template import LARGE as MEMORY
from tests.spaces.templates.gpu_memory.test_gpu_memory_template import TRANSPOSE
from tests.spaces.templates.gpu_memory.test_gpu_memory_template import space_of as memory_space
from tests.spaces.templates.tensor_cores import byte_products
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER, Sizes, task_for, task_with
from tests.spaces.templates.tensor_cores.test_hopper_template import LARGE
from tuner.candidate import of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm

AS_ODD = 128
"""What the sizes of a smaller product are the remainders by."""
TARGETS = {"sm_80": AMPERE, "sm_90a": HOPPER}
HEADS = {  # of each the large one, and the small one
    "short": (attention.SHORT, HeadSizes(2, 96, 96, 64, 64, 2, 1)),
    "prompt": (attention.PROMPT, HeadSizes(2, 256, 256, 128, 128, 1)),
    "decode": (attention.DECODE, HeadSizes(2, 1, 512, 128, 128, 2)),
}
ROWS = {
    "transpose": (TRANSPOSE, [(256, 256)]),
    "transpose in halves": (replace(TRANSPOSE, kinds=["float16"]), [(256, 256)]),
    "odd transpose": (replace(TRANSPOSE, dims=[(4095, 4097)]), [(255, 257)]),
    "softmax in halves": (MEMORY["softmax in halves"], [(8, 4096)]),
    "long softmax": (MEMORY["long softmax"], [(2, 32768)]),
}


def first(task: Task) -> KnobSpace:
    template, *_ = templates_of(task)
    return KnobSpace(task, template)


def watch_best(large: KnobSpace, small: KnobSpace, target: str) -> list[SharedUse]:
    """What the best predicted setting of a large program does in a small one."""
    return watch_program(small.write(of_knobs(large.ranked[0], small.name)).mod, target)


def check_free(uses: Sequence[SharedUse], *kinds: str) -> None:
    """There are accesses of these kinds at least, and no bank is gone to twice for one."""
    assert {*kinds} <= {use.what for use in uses}
    assert [use for use in uses if use.wavefronts != use.least] == []


def long_but(name: str, *quick: str) -> object:
    return pytest.param(name, marks=() if name in quick else pytest.mark.long)


@pytest.mark.parametrize("order", ["NT", "NN"])
@pytest.mark.parametrize(
    "sizes", [LARGE[0], *(pytest.param(s, marks=pytest.mark.long) for s in LARGE[1:])], ids=str
)
def test_products_from_ampere_on(order: str, sizes: Sizes) -> None:
    left = Sizes(*(size % AS_ODD + AS_ODD for size in (int(sizes.m), sizes.n, sizes.k)))
    large, small = (first(task_for(order, each, AMPERE)) for each in (sizes, left))
    copied = "cp.async" if sizes.k % 8 == 0 or (order == "NN" and sizes.n % 8 == 0) else "element"
    check_free(watch_best(large, small, AMPERE), "ldmatrix", copied)


@pytest.mark.long
@pytest.mark.parametrize("order", ["NT", "NN"])
@pytest.mark.parametrize("sizes", LARGE, ids=str)
def test_what_threads_of_hopper_copy_and_store_themselves(order: str, sizes: Sizes) -> None:
    """Tensor copies and wgmma are the device's own, and agree on an order of 128 bytes."""
    left = Sizes(*(size % AS_ODD + AS_ODD for size in (int(sizes.m), sizes.n, sizes.k)))
    large, small = (first(task_for(order, each, HOPPER)) for each in (sizes, left))
    check_free(watch_best(large, small, HOPPER))


@pytest.mark.parametrize("swap", [0, 1])
@pytest.mark.parametrize("columns", [long_but(str(number), "128") for number in (8, 16, 48, 128)])
def test_results_of_words_that_leave_as_tiles(columns: str, swap: int) -> None:
    """Of lines as short as a tile's columns, too."""
    space = first(
        task_with(lambda s: byte_products.matmul(s, nt=True), Sizes(192, 192, 128), HOPPER)
    )
    wanted = {"bulk_stores": 1, "columns": int(columns), "swap": swap, "splits": 1}
    knobs = next(each for each in space.ranked if wanted.items() <= each.items())
    uses = watch_program(space.write(of_knobs(knobs, space.name)).mod, HOPPER)
    check_free(uses, "element")


@pytest.mark.parametrize("arch", [long_but(arch, "sm_80") for arch in TARGETS])
@pytest.mark.parametrize("name", [long_but(name, "short") for name in HEADS])
def test_attention(name: str, arch: str) -> None:
    target, ((program, sizes), left) = TARGETS[arch], HEADS[name]
    large, small = (first(attention_task(program, each, target)) for each in (sizes, left))
    check_free(watch_best(large, small, target), "ldmatrix", "cp.async")


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_products_with_few_rows(kind: str) -> None:
    from spaces.lowering.extract_tasks import task_of

    large, small = (
        space_for(task_of(matmul(8, columns, 4096, nt=True, kind=kind), AMPERE, name="product"))
        for columns in (4096, 128)
    )
    check_free(watch_best(large, small, AMPERE), "element")


@pytest.mark.parametrize("name", ROWS)
def test_programs_bound_by_memory(name: str) -> None:
    source, dims = ROWS[name]
    left = replace(source, dims=dims)
    large, small = (memory_space(each, HOPPER) for each in (source, left))
    check_free(watch_best(large, small, HOPPER), "element")
