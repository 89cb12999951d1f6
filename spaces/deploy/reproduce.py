"""A Python file that rebuilds a kernel and times it, with TVM alone.

The file holds the task's program, and the scheduled ones after those of our passes that come before
TVM's; `spaces.deploy.standalone` is the rest of it.
"""

from __future__ import annotations

import json
import pprint
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spaces.check.draws import Argument, arguments, limits, ranges
from spaces.check.output_bounds import relative_tolerance
from spaces.codegen.prepack import COMPUTE, split
from spaces.design_space.realize import realize
from spaces.intrinsics.registration import families_named
from spaces.ir.element_types import is_float
from spaces.ir.schedules import (
    InvalidCandidate,
    code_hash,
    makes_program,
    pack_text,
    replay,
    task_module,
    whole_payload,
)
from spaces.ir.symbolic import specialise
from spaces.passes.cuda.pipeline import is_tvms_own, pass_config
from spaces.passes.pipeline import ahead_of_tvm, keeps_on_stack
from spaces.targets.backends import backend_of, load
from spaces.targets.config import target_cores
from spaces.targets.cores import thread_variables
from tuner.candidate import Candidate, CandidateKind, display_space, library_name
from tuner.errors import TunerError
from tuner.request.target_text import arithmetic_of
from tuner.task import Instance, Task

_WIDTH = 96


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel on a shape, and what the run recorded of it.

    Attributes:
        kernel: place among the kernels.
        latency_s, default_s: its time and the default schedule's; None where the run has none.
    """

    instance: Instance
    kernel: int
    latency_s: float | None
    default_s: float | None


def reproducer(
    task: Task,
    kernels: Sequence[Candidate],
    default: Candidate,
    timed: Sequence[Timed],
    *,
    device: str = "",
    toolchain: str = "",
) -> str:
    """The text of the file.

    Args:
        default: the default schedule.
        device, toolchain: that the times are of.

    Raises:
        TunerError: a kernel calls a library, or cannot be rebuilt; the program has parameters that
            are no tensors.
    """
    import tvm

    names = [f"kernel {n}" if len(kernels) > 1 else "kernel" for n in range(len(kernels))]
    made = [_kernel(task, one, name) for one, name in zip(kernels, names, strict=True)]
    row = backend_of(task.target)
    on_host = row.on_host
    run = {
        "task": task.name,
        "target": task.target,
        "kind": json.loads(task.target)["kind"],
        "on_host": on_host,
        "stack": keeps_on_stack(task.target),
        "environment": {
            **(thread_variables(target_cores(task.target)) if on_host else {}),
            **(load(stock)(task.target) if (stock := row.stock_environment) else {}),
        },
        "config": pass_config(task.target),
        "tvm": tvm.__version__,
        "device": device,
        "cases": [_case(task, one) for one in timed],
        "program": "PROGRAM",
        "kernels": [each.data for each in made],
        "default": _kernel(task, default, "default").data,
    }
    return _text(task, run, made, toolchain)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel as data, and its schedule for people."""

    data: dict[str, Any]
    schedule: str


def _kernel(task: Task, candidate: Candidate, name: str) -> _Kernel:
    if candidate.kind is CandidateKind.LIBRARY:
        raise TunerError(
            f"{task.name} is fastest with {candidate.payload} of {library_name(candidate.space)}, "
            "which TVM alone does not have: there is no kernel to reproduce"
        )
    try:
        schedule = realize(task, candidate)
        parts = split(schedule.mod)
    except (InvalidCandidate, ValueError) as error:
        raise TunerError(f"{task.name}: its schedule cannot be rebuilt: {error}") from error
    module = ahead_of_tvm(schedule.mod if parts is None else parts.module, task.target)
    if not backend_of(task.target).on_host and not is_tvms_own(module, task.target):
        raise TunerError(
            f"{task.name}: its {name} needs what our passes mend (spaces/passes/cuda), which TVM "
            "alone would refuse or compute wrong: there is no kernel to reproduce"
        )
    trace, why = _trace(task, candidate, schedule)
    data = {
        "name": name,
        "hash": code_hash(module),
        "recorded_hash": code_hash(schedule.mod),
        "of": "PROGRAM",
        "trace": None if trace is None else _pack(trace),
        "no_trace": why,
        "packing": None if parts is None else asdict(parts.packing),
        "module": _save(module),
    }
    return _Kernel(data, "\n".join(schedule.trace.as_python()))


def _trace(task: Task, candidate: Candidate, schedule: Any) -> tuple[str | None, str]:
    """The trace that TVM alone rebuilds a scheduled program from; or None, and why."""
    if candidate.kind is CandidateKind.SPECIALISED:
        return None, "compiled for this shape alone"
    if makes_program(candidate, schedule):
        return None, f"which {display_space(candidate.space)} makes of {candidate.payload}"
    trace = whole_payload(schedule.trace.simplified(False))
    if families := families_named(trace):
        return None, f"whose trace names TVM's intrinsics for {families[0]}, which load slowly"
    try:
        again = replay(task_module(task.module), trace)
    except InvalidCandidate:
        return None, "whose trace TVM does not apply as it is"
    if code_hash(again.mod) != code_hash(schedule.mod):
        return None, "whose trace holds not all that post-processing did"
    return trace, ""


def _case(task: Task, timed: Timed) -> dict[str, Any]:
    module = specialise(task_module(task.module), dict(timed.instance))
    function = module[COMPUTE]
    try:
        args = arguments(function)
    except ValueError as error:
        raise TunerError(f"{task.name} cannot be run by itself: {error}") from error
    written = [place for place, arg in enumerate(args) if arg.written]
    tolerance = relative_tolerance(function, written, arithmetic=arithmetic_of(task.target))
    return {
        "shape": dict(timed.instance),
        "kernel": timed.kernel,
        "latency_s": timed.latency_s,
        "default_s": timed.default_s,
        "arguments": [_argument(function, arg, tolerance, args) for arg in args],
    }


def _argument(
    function: Any, arg: Argument, tolerance: float, args: Sequence[Argument]
) -> dict[str, Any]:
    # Integers that floats were rounded to may be off by one step where floats were by a little.
    rounded = any(is_float(other.dtype) for other in args) or tolerance > 0
    return {
        "name": arg.name,
        "shape": list(arg.shape),
        "dtype": arg.dtype,
        "limits": [list(limits(arg, values)) for values in ranges(function)[1]],
        "tolerance": tolerance if arg.written else 0.0,
        "steps": int(rounded and arg.written),
    }


def _text(task: Task, run: Mapping[str, Any], made: Sequence[_Kernel], toolchain: str) -> str:
    schedules = "\n\n".join(
        f"# Schedule of {each.data['name']}:\n{_comment(each.schedule)}" for each in made
    )
    shown = pprint.pformat(dict(run), width=_WIDTH, sort_dicts=False)
    return "\n".join(
        (
            f'"""{_plain(task.name)}: its fastest kernel, rebuilt and timed with TVM alone.',
            "",
            f"Written by `tuner reproduce`. It needs Python, NumPy and apache-tvm {run['tvm']}.",
            "`--help` lists what it takes.",
            "",
            f"target     {_plain(task.target)}",
            f"measured   on {_plain(run['device'] or 'an unknown device')}",
            f"compiled   with {_plain(toolchain or 'an unknown toolchain')}",
            '"""',
            "",
            schedules,
            "",
            _body(),
            "",
            f'PROGRAM = """\n{_save(task_module(task.module))}"""',
            "# Its name stands for it below; kernels are kept after the passes that precede TVM's.",
            f"RUN = {re.sub(_PROGRAM, 'PROGRAM', shown)}",
            "",
            'if __name__ == "__main__":',
            "    raise SystemExit(main(RUN))",
            "",
        )
    )


_PROGRAM = "'PROGRAM'"


def _body() -> str:
    """The code that is the same in all such files."""
    text = (Path(__file__).parent / "standalone.py").read_text(encoding="utf-8")
    return text[text.index("from __future__") :].rstrip()


def _plain(text: str) -> str:
    """A text that may stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''")


def _comment(text: str) -> str:
    return "\n".join(f"#   {line}" for line in text.splitlines() or ["(as it is)"])


def _save(module: Any) -> str:
    import tvm

    return _pack(tvm.ir.save_json(module))


def _pack(text: str) -> str:
    """A text, compressed, in lines."""
    data = pack_text(text)
    return "\n".join(data[at : at + _WIDTH] for at in range(0, len(data), _WIDTH))
