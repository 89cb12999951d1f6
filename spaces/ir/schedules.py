"""Schedules of a task's program, and the text of their traces."""

from __future__ import annotations

import base64
import json
import zlib
from functools import lru_cache
from typing import Any

from spaces.ir import tvm_compat
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import first_line

_MAX_TVM_SEED = 2**31 - 1
_PROGRAM = "program"


class InvalidCandidate(Exception):
    """A schedule primitive or a post-processor refused the candidate. One line."""


@lru_cache(maxsize=128)
def task_module(module_json: str) -> Any:
    """The IRModule of a task, parsed once for each text."""
    import tvm

    return tvm.ir.load_json(module_json)


def new_schedule(module: Any, seed: int = 1, *, errors: str = "none") -> Any:
    """An untouched schedule of a module, its random choices drawn from `seed`.

    Args:
        errors: how much TVM says where a primitive does not apply: `none`, `fast` (a line) or
            `detail`, which takes long.
    """
    from tvm.s_tir import Schedule

    return Schedule(module, seed=tvm_seed(seed), error_render_level=errors)


def tvm_seed(seed: int) -> int:
    """A seed that TVM takes."""
    return 1 + seed % (_MAX_TVM_SEED - 1)


def replay(module: Any, payload: str) -> Any:
    """A schedule of a module with the instructions of a trace, given as JSON.

    Raises:
        InvalidCandidate: the trace does not apply.
    """
    from tvm.s_tir.schedule import Trace

    schedule = new_schedule(module)
    try:
        Trace.apply_json_to_schedule(json.loads(payload), schedule)
    except Exception as error:  # TVM raises whatever its C++ side threw
        raise InvalidCandidate(f"trace does not apply: {first_line(error)}") from error
    return schedule


def canonical_payload(trace: Any, *, postprocessed: bool = False) -> str:
    """A trace as canonical text: dead code removed, and post-processing unless it is asked for."""
    return whole_payload(trace.simplified(not postprocessed))


def whole_payload(trace: Any) -> str:
    """A trace as text, with all that is in it."""
    return json.dumps(trace.as_json(), separators=(",", ":"), default=_plain)


def save_program(module: Any) -> str:
    """A scheduled module as text, in place of a trace: see `tuner.candidate.Candidate.trace`."""
    import tvm

    return json.dumps({_PROGRAM: pack_text(tvm.ir.save_json(module))})


def load_program(text: str) -> Any:
    """The module that `save_program` saved."""
    import tvm

    data = base64.b85decode(json.loads(text)[_PROGRAM])
    return tvm.ir.load_json(zlib.decompress(data).decode())


def pack_text(text: str) -> str:
    """A text, compressed, in letters that need no escape in JSON."""
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def makes_program(candidate: Candidate, schedule: Any) -> bool:
    """Whether settings stand for a program of its own: no instruction has touched its schedule."""
    return candidate.kind is CandidateKind.KNOBS and not schedule.trace.insts


def code_hash(module: Any) -> str:
    """The structural hash of a candidate's program; equal in every process."""
    return tvm_compat.structural_hash_hex(module)


def _plain(value: Any) -> int | float | str:
    """The plain value of a constant of TVM, which TVM leaves in a trace's JSON."""
    from tvm.tirx import FloatImm, IntImm

    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, FloatImm):
        return float(value.value)
    raise TypeError(f"{type(value).__name__} in the JSON of a trace")
