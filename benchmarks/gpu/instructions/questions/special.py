"""What matrix instructions do with special values, and with bits that they need not look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu.instructions.questions.question import Question, ask
from benchmarks.gpu.instructions.questions.sums import SUMS, mma_source, to_bits
from tests.spaces.emulation.instructions.products import fragments as f
from tests.spaces.emulation.instructions.program import Arrays


def _special() -> Question:
    """Row r of A against a B of which every column is the same; all of bfloat16."""
    form = SUMS[1]
    tiny, big, one = 2.0**-100, 2.0**100, 1.0
    nan, inf = float("nan"), float("inf")
    cases: dict[str, tuple[list[float], list[float], float]] = {
        "a subnormal result of normal factors, 2**-135": ([tiny], [2.0**-35], 0.0),
        "a subnormal factor, 2**-133 times 2**100": ([2.0**-133], [big], 0.0),
        "a subnormal accumulator, 2**-140": ([0.0], [one], 2.0**-140),
        "a subnormal accumulator and 1 - 1": ([one, -one], [one, one], 2.0**-140),
        "infinity times zero": ([inf], [0.0], 0.0),
        "infinity minus infinity": ([inf, -inf], [one, one], 0.0),
        "NaN": ([nan], [one], 0.0),
        "2**100 times 2**100": ([big], [big], 0.0),
        "an overflow that cancels: 2**127 + 2**127 - 2**127": (
            [2.0**127, 2.0**127, -(2.0**127)],
            [one, one, one],
            0.0,
        ),
        "the largest float and half of its last place": (
            [2.0**103],
            [one],
            float(np.finfo("f4").max),
        ),
        "-0 and products of -0": ([-0.0], [one], -0.0),
        "1 - 1": ([one, -one], [one, one], 0.0),
        "-1 + 1 and -0": ([-one, one], [one, one], -0.0),
    }

    def make(rng: np.random.Generator) -> Arrays:
        a, b, c = [], [], []
        for left, right, start in cases.values():
            rows, columns = np.zeros((16, 16)), np.zeros((16, 8))
            rows[:, : len(left)] = left
            columns[: len(right)] = np.array(right)[:, None]
            if start == 0 and np.signbit(start):
                rows[:] = np.where(rows == 0, -0.0, rows)
                columns[len(right) :] = 1.0
            a.append(f.A_M16K16.deal(to_bits(rows, form)).view(np.uint32))
            b.append(f.B_K16N8.deal(to_bits(columns, form)).view(np.uint32))
            c.append(f.ACCUMULATOR.deal(np.full((16, 8), start, np.float32)))
        return [np.stack(a), np.stack(b), np.stack(c)]

    def answer(_inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        values = outputs[0][:, 0, 0]
        return {
            name: f"{value!s} (0x{value.view(np.uint32):08x})"
            for name, value in zip(cases, values, strict=True)
        }

    return Question(
        "what mma.sync m16n8k16 of bfloat16 does with special values",
        ask(
            "special.bf16",
            mma_source(form.shape, (4, 2, 4), "float"),
            make,
            [np.zeros((len(cases), 32, 4), np.float32)],
            grid=(len(cases), 1, 1),
        ),
        answer,
    )


def _low_bits() -> Question:
    """D = A times the identity: what of a float32 the instruction looks at."""
    form = SUMS[4]

    def make(rng: np.random.Generator) -> Arrays:
        rows = rng.standard_normal((16, 8)).astype(np.float32)
        a = form.a.deal(rows).view(np.uint32)
        b = form.b.deal(np.eye(8, dtype=np.float32)).view(np.uint32)
        return [a, b, np.zeros((32, 4), np.float32)]

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        given = form.a.gather(inputs[0], (16, 8))
        got = f.ACCUMULATOR.gather(outputs[0].view(np.uint32), (16, 8))
        cut = given & np.uint32(0xFFFFE000)
        away = (given + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return {
            "elements": int(got.size),
            "cut to 10 bits": int((got == cut).sum()),
            "rounded to 10 bits": int((got == away).sum()),
            "taken whole": int((got == given).sum()),
        }

    return Question(
        "what mma.sync of tf32 does with the lower 13 bits of its factors",
        ask(
            "tf32.low-bits",
            mma_source(form.shape, (4, 2, 4), "float"),
            make,
            [np.zeros((32, 4), np.float32)],
        ),
        answer,
    )


def _integer_overflow() -> Question:
    def make(rng: np.random.Generator) -> Arrays:
        ones = np.full((32, 4), 0x7F7F7F7F, np.uint32)
        return [ones, ones[:, :2].copy(), np.full((32, 4), 2**31 - 5, np.uint32)]

    def answer(_inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        exact = 2**31 - 5 + 32 * 127 * 127
        wrapped = (exact + 2**31) % 2**32 - 2**31
        got = int(outputs[0].view(np.int32)[0, 0])
        return {"got": got, "wraps": got == wrapped, "saturates": got == 2**31 - 1}

    return Question(
        "what mma.sync of s8 does where its sum is too large",
        ask(
            "overflow.s8",
            mma_source("m16n8k32.row.col.s32.s8.s8.s32", (4, 2, 4), "uint32_t"),
            make,
            [np.zeros((32, 4), np.uint32)],
        ),
        answer,
    )


def questions() -> list[Question]:
    """All of them."""
    return [_special(), _low_bits(), _integer_overflow()]
