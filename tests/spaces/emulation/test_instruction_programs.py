"""The programs of instructions: they compile, they demand something, and their demands are those of
the definitions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.instructions.compile import compile_programs
from benchmarks.gpu.instructions.saved import (
    ARRAYS,
    KEPT,
    disagreements,
    keys_of,
    reference_of,
    save,
)
from tests.needed import needs_nvcc
from tests.spaces.emulation.instructions.catalogue import programs
from tests.spaces.emulation.instructions.judge import EQUAL, check_definition, is_right, judge
from tests.spaces.emulation.instructions.products import fragments
from tests.spaces.emulation.instructions.products.fragments import Fragment
from tests.spaces.emulation.instructions.products.shared_layouts import by_k, by_rows
from tests.spaces.emulation.instructions.program import Array, Program, run_on
from tests.spaces.emulation.instructions.rounding import (
    BFLOAT,
    HALF,
    SINGLE,
    convert,
    map_bits,
    round_to,
    value_of,
)
from tests.spaces.emulation.instructions.swizzle import swizzle

PROGRAMS = programs()


@needs_nvcc
def test_each_program_compiles_for_the_oldest_architecture_that_has_it(tmp_path: Path) -> None:
    compiled = compile_programs(list(PROGRAMS.values()), tmp_path)
    assert compiled.errors == {}
    assert set(compiled.cubins) == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_names_its_source_and_demands_all_bits(name: str) -> None:
    """What it demands is right, and is wrong with one bit changed in any output."""
    program = PROGRAMS[name]
    assert program.section.startswith(("PTX ISA", "CUDA "))
    assert "KERNEL" not in program.code
    wanted = check_definition(program)
    assert is_right(judge(program, wanted))
    for number in range(len(wanted)):
        changed = [array.copy() for array in wanted]
        change_last(changed[number])
        assert "differs" in judge(program, changed)


def change_last(array: Array) -> None:
    """Change the last element that is a number: in its exponent, if it has one."""
    flat = array.reshape(-1)
    place = int(np.flatnonzero(flat == flat)[-1])
    flat.view(np.uint8)[(place + 1) * array.itemsize - 1] ^= 0x40


def test_a_program_runs_on_whatever_runs_its_kernel() -> None:
    """The seam: a device gets source, launch and all buffers, and gives all of them back."""
    program = PROGRAMS["ldmatrix.x4.trans"]
    seen: dict[str, Any] = {}

    def device(source: str, kernel: str, **launch: object) -> list[Array]:
        seen.update(launch, kernel=kernel)
        assert f"{kernel}(const uint16_t* in" in source
        buffers = launch["buffers"]
        assert isinstance(buffers, list)
        return [*buffers[:2], *program.expect(*buffers[:2])]

    assert judge(program, run_on(device, program)) == EQUAL
    assert seen["kernel"] == "i_ldmatrix_x4_trans"
    assert seen["block"] == (32, 1, 1)
    assert (np.asarray(seen["buffers"][2]).view(np.uint8) == 0xFF).all()


# ---- rounding


def test_rounding_to_half_is_numpys() -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 32, 4000, np.uint32)
    near = (np.arange(0x3F7F0000, 0x3F820000, 37)).astype(np.uint32)
    values = np.concatenate([bits, near, near - np.uint32(0x08800000)]).view(np.float32)
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).view(np.uint16)
    got = map_bits(lambda b: convert(b, SINGLE, HALF), values)
    assert got == want.tolist()


def test_values_of_half_are_numpys() -> None:
    every = np.arange(1 << 16).astype(np.uint16)
    values = np.array([float(value_of(int(b), HALF)) for b in every])
    np.testing.assert_array_equal(values, every.view(np.float16).astype(np.float64))


@pytest.mark.parametrize("format", [HALF, BFLOAT, SINGLE])
def test_a_value_of_a_format_rounds_to_itself_in_all_directions(format: object) -> None:
    assert format in (HALF, BFLOAT, SINGLE)
    of = next(f for f in (HALF, BFLOAT, SINGLE) if f is format)
    for bits in (1, 5, of.infinity // 3, of.infinity - 1, 1 << (of.precision - 1)):
        value = value_of(bits, of)
        assert isinstance(value, Fraction)
        assert {round_to(value, of, m) for m in ("rn", "rz", "rd", "ru", "rna")} == {bits}
        assert round_to(-value, of) == bits | 1 << (of.bits - 1)


def test_directions_are_on_both_sides_of_a_value() -> None:
    third = Fraction(1, 3)
    down, up = round_to(third, HALF, "rd"), round_to(third, HALF, "ru")
    assert up == down + 1
    low, high = (value_of(bits, HALF) for bits in (down, up))
    assert low < third < high
    minus = 1 << 15
    assert round_to(-third, HALF, "rd") == up | minus
    assert round_to(-third, HALF, "rz") == down | minus


def test_ties_and_overflows() -> None:
    half_way = Fraction(2049)  # between 2048 and 2050
    assert round_to(half_way, HALF) == round_to(Fraction(2048), HALF)
    assert round_to(half_way, HALF, "rna") == round_to(Fraction(2050), HALF)
    assert round_to(Fraction(65519), HALF) == 0x7BFF
    assert round_to(Fraction(65520), HALF) == HALF.infinity
    assert round_to(Fraction(65520), HALF, "rz") == 0x7BFF
    assert round_to(Fraction(1, 1 << 25), HALF) == 0
    assert round_to(Fraction(3, 1 << 26), HALF) == 1


# ---- layouts


def fragments_of(*sizes: int) -> list[tuple[str, Fragment]]:
    found = {n: f for n, f in vars(fragments).items() if isinstance(f, Fragment)}
    return [(name, f) for name, f in found.items() if not sizes or 32 * f.elements in sizes]


@pytest.mark.parametrize(("name", "fragment"), fragments_of())
def test_each_element_of_a_matrix_is_held_once(name: str, fragment: Fragment) -> None:
    rows, columns = fragment.places()
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    assert shape[0] * shape[1] == 32 * fragment.elements
    matrix = np.arange(shape[0] * shape[1]).reshape(shape)
    np.testing.assert_array_equal(fragment.gather(fragment.deal(matrix), shape), matrix)


@pytest.mark.parametrize(
    ("name", "thread", "element", "place"),
    [  # read from the figures of the manual
        ("A_M16K16", 0, 2, (8, 0)),
        ("A_M16K16", 0, 4, (0, 8)),
        ("A_M16K16", 31, 7, (15, 15)),
        ("A_M16K16", 5, 1, (1, 3)),
        ("B_K16N8", 4, 0, (0, 1)),
        ("B_K16N8", 3, 2, (14, 0)),
        ("ACCUMULATOR", 1, 3, (8, 3)),
        ("A_M16K8", 3, 2, (8, 6)),
        ("A_M16K8_TF32", 1, 1, (8, 1)),
        ("A_M16K8_TF32", 1, 2, (0, 5)),
        ("B_K8N8_TF32", 7, 1, (7, 1)),
        ("A_M16K32_S8", 0, 4, (8, 0)),
        ("A_M16K32_S8", 0, 8, (0, 16)),
        ("B_K32N8_S8", 2, 4, (24, 0)),
    ],
)
def test_elements_are_where_the_manual_draws_them(
    name: str, thread: int, element: int, place: tuple[int, int]
) -> None:
    rows, columns = vars(fragments)[name].places()
    assert (rows[thread, element], columns[thread, element]) == place


@pytest.mark.parametrize(
    ("swizzle_bytes", "line", "chunks"),
    [  # where the eight chunks of 16 bytes of a line of 128 go
        (128, 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        (128, 1, [1, 0, 3, 2, 5, 4, 7, 6]),
        (128, 7, [7, 6, 5, 4, 3, 2, 1, 0]),
        (128, 9, [1, 0, 3, 2, 5, 4, 7, 6]),
        (64, 1, [1, 0, 3, 2, 5, 4, 7, 6]),
        (64, 2, [2, 3, 0, 1, 6, 7, 4, 5]),
        (64, 4, [0, 1, 2, 3, 4, 5, 6, 7]),
        (32, 1, [1, 0, 3, 2, 5, 4, 7, 6]),
        (32, 2, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_swizzles_exchange_chunks_within_a_line(
    swizzle_bytes: int, line: int, chunks: list[int]
) -> None:
    addresses = 128 * line + 16 * np.arange(8) + 5
    wanted = [128 * line + 16 * chunk + 5 for chunk in chunks]
    assert swizzle(addresses, swizzle_bytes).tolist() == wanted


@pytest.mark.parametrize("swizzle_bytes", [0, 32, 64, 128])
def test_an_operand_is_read_as_it_was_written(swizzle_bytes: int) -> None:
    matrix = np.arange(64 * 16).reshape(64, 16).astype(np.float16)
    for layout in (by_k(64, 32, swizzle_bytes), by_rows(64, 32, swizzle_bytes)):
        np.testing.assert_array_equal(layout.read(layout.write(matrix), matrix.dtype), matrix)


def test_a_descriptor_has_the_fields_of_the_manual() -> None:
    layout = by_k(64, 128, 128)
    bits = layout.descriptor()
    assert bits >> 62 == 1
    assert bits >> 32 & 0x3FFF == 1024 >> 4
    assert bits >> 16 & 0x3FFF == 1
    assert bits & 0x3FFF == 0


# ---- what a device gave


@pytest.mark.skipif(not (KEPT / ARRAYS).exists(), reason="no device has run these programs yet")
def test_a_device_gave_what_the_definitions_say() -> None:
    assert disagreements(KEPT, PROGRAMS) == {}


def make_saved(folder: Path, program: Program, outputs: list[Array]) -> None:
    save(folder, {"programs": {}}, keys_of(program, outputs))


def test_what_a_device_gave_is_the_reference_from_then_on(tmp_path: Path) -> None:
    program = PROGRAMS["ldmatrix.x2"]
    outputs = program.expect(*program.inputs())
    assert judge(program, reference_of(program, tmp_path)) == EQUAL
    outputs[0][0, 0] ^= 4
    make_saved(tmp_path, program, outputs)
    given = reference_of(program, tmp_path)
    assert judge(program, outputs, given) == EQUAL
    assert "differs" in judge(program, given)


def test_a_saved_output_that_differs_is_found(tmp_path: Path) -> None:
    program = PROGRAMS["ldmatrix.x2"]
    outputs = program.expect(*program.inputs())
    make_saved(tmp_path, program, outputs)
    assert disagreements(tmp_path, PROGRAMS) == {}
    outputs[0][3, 1] ^= 1
    make_saved(tmp_path, program, outputs)
    assert list(disagreements(tmp_path, PROGRAMS)) == ["ldmatrix.x2"]
    assert "[3, 1]" in disagreements(tmp_path, PROGRAMS)["ldmatrix.x2"]
