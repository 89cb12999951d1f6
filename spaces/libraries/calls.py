"""Calls of a library's functions: PrimFuncs with the parameters of the programs they stand for."""

from __future__ import annotations

import json
from typing import Any

from spaces.check.draws import arguments
from spaces.ir import tvm_compat
from spaces.ir.element_types import is_small_float
from spaces.ir.schedules import InvalidCandidate
from tuner.candidate import Candidate, CandidateKind

_CALLS = "tuner.calls"
"""Attribute of a function that calls a packed function: the symbol, and the library's space. By it
functions of one name are different programs where the library's text is another."""


def candidate_of(symbol: str, space: str) -> Candidate:
    """The candidate that calls a function of the library of a space."""
    return Candidate(CandidateKind.LIBRARY, symbol, space)


def make_call(program: Any, candidate: Candidate) -> Any:
    """A PrimFunc with a program's parameters and attributes that hands them, in their order, to a
    packed function.

    Raises:
        InvalidCandidate: the program only writes or only reads, or it has parameters of a type that
            TVM hands over as another.
    """
    from tvm import te, tirx

    try:
        args = arguments(program)
    except ValueError as error:  # a number among its parameters
        raise InvalidCandidate(f"{candidate.payload}: {error}") from error
    if len({arg.written for arg in args}) != 2:
        raise InvalidCandidate(f"{candidate.payload}: a program that only writes is no call")
    if widened := [arg.dtype for arg in args if is_small_float(arg.dtype)]:
        # TVM's passes say that the tensor of a call is float32, and leave its memory as it was.
        raise InvalidCandidate(
            f"{candidate.payload}: tensors of {widened[0]} cannot be handed over"
        )
    inputs = [
        te.placeholder(arg.shape, arg.dtype, name=_letters(arg.name, i))
        for i, arg in enumerate(args)
        if not arg.written
    ]
    outputs = [arg for arg in args if arg.written]

    def body(ins: Any, outs: Any) -> Any:
        given, made = iter(ins), iter(outs)
        ordered = [next(made) if arg.written else next(given) for arg in args]
        return tirx.call_packed(candidate.payload, *ordered)

    made = te.extern(
        [arg.shape for arg in outputs],
        inputs,
        body,
        name="call",
        dtype=[arg.dtype for arg in outputs],
    )
    results = iter(made if len(outputs) > 1 else [made])
    given = iter(inputs)
    function = te.create_prim_func([next(results) if a.written else next(given) for a in args])
    said = json.dumps([candidate.payload, candidate.space])
    return tvm_compat.with_attrs_of(function, program).with_attr(_CALLS, said)


def _letters(name: str, number: int) -> str:
    return name if name.isidentifier() else f"p{number}"
