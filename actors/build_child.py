"""The child process of a builder: realises candidates and compiles them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from spaces.ir.lean_tvm import import_tvm_lean
from tuner.candidate import Candidate, CandidateKind, family
from tuner.errors import describe_error
from tuner.layers import OURS, Layers
from tuner.record import Status
from tuner.task import DECLARED, Task
from tuner.user_code.faults import LayerFailed

_TASKS_KEPT = 64


@dataclass(frozen=True, slots=True)
class Written:
    """The program that a candidate was realised as.

    Attributes:
        code_hash: structural hash of the scheduled program.
        trace: the trace that wrote it, where the candidate was no trace itself; else empty.
    """

    code_hash: str = ""
    trace: str = ""

    def of(self, candidate: Candidate) -> Candidate:
        """The candidate with its trace."""
        return replace(candidate, trace=self.trace) if self.trace else candidate


NOTHING = Written()
"""Stands for a program that was not built."""


@dataclass(frozen=True, slots=True)
class BuildAnswer:
    """The result of a build.

    Attributes:
        artifact: compiled program; empty where the build failed.
        written: the program before it was compiled.
        status: OK, INVALID or BUILD_FAILED.
        error: why it failed, in one line.
    """

    artifact: bytes = b""
    written: Written = NOTHING
    status: Status = Status.OK
    error: str = ""


class BuildChild:
    """Keeps TVM and the tasks it has seen warm. Made in a process of its own.

    Args:
        layers: of the user's: the builder, and the post-processors.
    """

    def __init__(self, layers: Layers = OURS) -> None:
        import_tvm_lean()
        import tvm  # noqa: F401

        import spaces.codegen.artifact
        import spaces.design_space.realize  # noqa: F401

        self._layers = layers
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._texts: dict[str, str] = {}

    def knows(self, task_key: str, text_hash: str = "") -> tuple[bool, bool]:
        """Whether the child has this task, and the text of its user's file; if not, `learn` sends
        them."""
        if task_key in self._tasks:
            self._tasks.move_to_end(task_key)
        return task_key in self._tasks, text_hash in self._texts

    def learn(self, task: Task, text_hash: str = "") -> None:
        """Remember a task; the one unused for longest is forgotten.

        Args:
            text_hash: of the text of its user's file, which it lacks where the child has that.
        """
        if task.space is not None:
            text = self._texts.setdefault(text_hash, task.space.text)
            task = replace(task, space=replace(task.space, text=text))
        self._tasks[task.key] = task
        while len(self._tasks) > _TASKS_KEPT:
            self._tasks.popitem(last=False)

    def build(self, task_key: str, candidate: Candidate) -> BuildAnswer:
        """Realise and compile one candidate of a known task.

        Raises:
            LayerFailed: the user's builder, or one of their post-processors, is at fault.
        """
        from spaces.codegen.artifact import build_artifact, kernels_of
        from spaces.codegen.cuda.cubin import describe_spills
        from spaces.codegen.theirs import compiler_of
        from spaces.design_space.realize import DEFAULT_SPACE, realize

        task = self._tasks[task_key]
        try:
            schedule = realize(task, candidate, self._layers.postprocs)
        except LayerFailed:
            raise
        except Exception as error:  # TVM raises whatever its C++ side threw
            return BuildAnswer(status=Status.INVALID, error=_complaint(error))
        try:
            artifact = build_artifact(schedule.mod, task.target, compiler_of(self._layers.builder))
            spilled = describe_spills(kernels_of(artifact))
            if spilled and candidate.space != DEFAULT_SPACE:  # others would have to beat that one
                return BuildAnswer(status=Status.BUILD_FAILED, error=spilled)
            return BuildAnswer(artifact, _write(candidate, schedule, self._layers))
        except LayerFailed:
            raise
        except Exception as error:  # TVM raises whatever its C++ side threw
            return BuildAnswer(status=Status.BUILD_FAILED, error=_complaint(error))

    def try_target(self, target: str) -> str:
        """Compile a kernel of one line for a target, where that takes more than TVM; return the
        fingerprint of the toolchain.

        Args:
            target: canonical JSON.

        Raises:
            TunerError: there is no compiler here.
            RuntimeError: it does not compile for the target.
        """
        from spaces.passes.toolchain import toolchain_fingerprint
        from spaces.targets.backends import backend_of, load
        from spaces.targets.target import parse_target

        if name := backend_of(target).try_compiler:
            load(name)(parse_target(target))
        return toolchain_fingerprint(target)

    def build_module(self, module: str, target: str) -> BuildAnswer:
        """Compile a scheduled module as it is.

        Args:
            module: TVM's JSON, with one function called "main".
            target: canonical JSON.
        """
        import tvm

        from spaces.codegen.artifact import build_artifact

        try:
            return BuildAnswer(build_artifact(tvm.ir.load_json(module), target))
        except Exception as error:  # TVM raises whatever its C++ side threw
            return BuildAnswer(status=Status.BUILD_FAILED, error=_complaint(error))


def _write(candidate: Candidate, schedule: Any, layers: Layers) -> Written:
    """What later builds replay: the traces of rules are post-processed anew each time, all others
    are kept as they were written, whatever becomes of the template or of a user's file."""
    from spaces.ir.schedules import canonical_payload, code_hash, makes_program, save_program

    theirs = family(candidate.space) == DECLARED or bool(layers.postprocs)
    new = (candidate.kind is CandidateKind.KNOBS or theirs) and not candidate.trace
    if new and makes_program(candidate, schedule):
        return Written(code_hash(schedule.mod), save_program(schedule.mod))
    trace = canonical_payload(schedule.trace, postprocessed=theirs) if new else ""
    return Written(code_hash(schedule.mod), trace)


def _complaint(error: Exception) -> str:
    """An exception in one line: its class, and the first line of its text that names an error."""
    said = next((line.strip() for line in str(error).splitlines() if "rror" in line), "")
    return f"{type(error).__name__}: {said[:300]}" if said else describe_error(error)
