"""The program that `benchmarks.gpu.hopper` measures on a device, on the emulated one."""

from __future__ import annotations

import pytest

from tests.spaces.emulation.programs import product_of

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize(
    ("sizes", "columns"), [((128, 256, 512), 256), ((256, 512, 256), 256), ((136, 88, 72), 64)]
)
def test_a_product_of_any_size_is_right(sizes: tuple[int, int, int], columns: int) -> None:
    program = product_of(*sizes, columns=columns)
    assert program.is_right(program.output())
