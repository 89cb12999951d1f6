"""Whether a program's outputs are what its definition says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program

EQUAL = "equal"


def judge(program: Program, got: Sequence[Array], wanted: Sequence[Array] = ()) -> str:
    """`equal`, `within the bounds ...`, or `differs ...` with the first difference.

    Args:
        wanted: what a device gave, if that is the reference; otherwise what the definition says.
    """
    inputs = program.inputs()
    wanted = wanted or program.expect(*inputs)
    if len(got) != len(wanted):
        return f"differs: {len(got)} outputs of {len(wanted)}"
    allowed = [None] * len(wanted) if program.allow is None else program.allow(*inputs)
    worst = 0.0
    for number, (have, want, allow) in enumerate(zip(got, wanted, allowed, strict=True)):
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"differs: output {number} is {have.dtype}{have.shape}"
        wrong = _bits_differ(have, want) if allow is None else _too_far(have, want, allow)
        if wrong.any():
            return _first(number, wrong, have, want)
        if allow is not None:
            worst = max(worst, _share(have, want, allow))
    return EQUAL if program.allow is None else f"within the bounds ({worst:.2f} of them)"


def is_right(verdict: str) -> bool:
    """Whether `judge` found no difference."""
    return not verdict.startswith("differs")


def _bits_differ(have: Array, want: Array) -> Array:
    bits = np.dtype(f"u{have.dtype.itemsize}")
    differ = np.ascontiguousarray(have).view(bits) != np.ascontiguousarray(want).view(bits)
    if have.dtype.kind == "f":
        differ &= ~(np.isnan(have) & np.isnan(want))
    return np.asarray(differ)


def _too_far(have: Array, want: Array, allow: Array) -> Array:
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        near = np.abs(have.astype(np.float64) - want) <= allow
    return np.asarray(~(same | near))


def _share(have: Array, want: Array, allow: Array) -> float:
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.abs(have.astype(np.float64) - want) / allow
    share = share[np.isfinite(share)]
    return float(share.max()) if share.size else 0.0


def _first(number: int, wrong: Array, have: Array, want: Array) -> str:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    bits = np.dtype(f"u{have.dtype.itemsize}")
    seen = [np.ascontiguousarray(a)[place] for a in (have, want)]
    got, wanted = (f"{value!s} (0x{value.view(bits):x})" for value in seen)
    return (
        f"differs in {int(wrong.sum())} of {wrong.size} at output {number} {list(place)}:"
        f" got {got} want {wanted}"
    )


def check_definition(program: Program) -> Arrays:
    """The wanted outputs, if the program demands something: not all of them untouched.

    Raises:
        AssertionError: An output that stays as it was filled proves nothing.
    """
    wanted = program.expect(*program.inputs())
    for before, after in zip(program.outputs(), wanted, strict=True):
        assert before.tobytes() != after.tobytes(), f"{program.name} demands nothing"
    return wanted
