"""Compares an imported model, compiled without a schedule, with its source."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from spaces.codegen.executable import LoadedModel
from spaces.frontends.model import Model
from spaces.frontends.references import References
from spaces.import_check.answers import Answers, Given, answers_for, plan
from spaces.import_check.bounds import coarsest_step, part, rounds_to_bytes
from spaces.import_check.byte_steps import locate_between_bytes
from spaces.import_check.locate import Fault, Grown, locate, save_fault
from spaces.import_check.plain_code import compile_untuned, target_here
from spaces.import_check.sources import CannotRun, LeftOpen, find_left_open
from spaces.ir.element_types import numpy_dtype
from tuner.errors import TunerError, first_line
from tuner.runs.import_check import FAULT_FOLDER, ImportCheck, Limits
from tuner.task import Instance

Array = npt.NDArray[Any]
_LOCATE_S = 120.0
_NICE = 5
"""How far others go first: a run's first builds do, which this runs beside."""
_SHARE = 0.3
"""The share of the free memory that a model may take: both sides hold its weights, ours twice
while it compiles."""


def check_import(
    model: Model,
    target: str,
    given: Given,
    limits: Limits,
    folder: Path | None = None,
    references: References | None = None,
) -> ImportCheck:
    """Compare a model with its source.

    It is run on two draws of inputs, of open dimensions at several sizes, as long as time is left.

    Args:
        target: canonical JSON; a model for another machine is compiled for this one.
        given: values for inputs.
        folder: of the run, to keep the values of a difference in.
        references: what was recorded of its source, if that is not here.
    """
    if model.kind == "function":
        return ImportCheck("own", "the program is its own source", (), model.content_hash)
    started_s = time.process_time()
    try:
        answers = answers_for(model, given, references, limits.seconds)
    except CannotRun as error:
        return replace(_skip(str(error)), model_hash=model.content_hash)
    until_s, hint = started_s + limits.seconds, _ask_for_values(model, given)
    check = _Comparison(model, target, limits, until_s, folder, hint).run(answers)
    spent_s = round(time.process_time() - started_s, 2)
    return replace(check, model_hash=model.content_hash, seconds=spent_s)


def _ask_for_values(model: Model, given: Given) -> str:
    """The flags with which a user says usual values of those inputs that hold integers."""
    said = {name for name, _ in given}
    left = [i.name for i in model.inputs if numpy_dtype(i.dtype).kind in "iub"]
    flags = [f"--input {name}=int:LO..HI" for name in left if name not in said]
    return f"name usual values: {' '.join(flags)}" if flags else "name usual values with --input"


def _skip(why: str) -> ImportCheck:
    return ImportCheck("skipped", why)


class _Comparison:
    def __init__(
        self,
        model: Model,
        target: str,
        limits: Limits,
        until_s: float,
        folder: Path | None,
        hint: str,
    ) -> None:
        self._target = target_here(target)
        self._model = model
        self._limits = limits
        self._until_s = until_s
        self._folder = folder
        self._hint = hint
        self._notes: list[str] = []
        self._proto = _proto_of(model)
        self._step = 0.0 if self._proto is None else coarsest_step(self._proto)
        self._open = LeftOpen() if self._proto is None else find_left_open(self._proto)
        self._has_bytes = self._proto is not None and rounds_to_bytes(self._proto)
        self._bytes_compared = False

    def run(self, answers: Answers) -> ImportCheck:
        """Compare as much as the limits allow."""
        if self._open.nodes:
            nodes = ", ".join(self._open.nodes)
            self._notes.append(f"{nodes}: what ONNX leaves open is not compared")
        executable = compile_untuned(self._model.module, self._target)
        compared, longest_s = list[str](), 0.0
        for instance, number in plan(self._model.shapes):
            before_s = time.process_time()
            if compared and before_s + longest_s > self._until_s:
                self._notes.append(
                    f"{self._limits.seconds:g} s of processor time were spent, so no other draw or "
                    "size was compared"
                )
                break
            try:
                feeds, want = answers.of(instance, number)
            except CannotRun as error:
                if not compared and not instance:
                    return _skip(f"{error}; {self._hint}")
                self._notes.append(f"{_show(instance, number)}: {error}")
                continue
            said = self._compare(executable, feeds, want) or self._compare_bytes(feeds)
            if said is not None:
                return said
            compared.append(_show(instance, number))
            longest_s = max(longest_s, time.process_time() - before_s)
        if not compared:
            return _skip("; ".join([*self._notes, self._hint]))
        said_of = f"as {answers.name} on {len(compared)} inputs"
        return ImportCheck("passed", said_of, tuple(dict.fromkeys(self._notes)))

    def _compare(
        self, executable: Any, feeds: Sequence[Array], want: Sequence[Array]
    ) -> ImportCheck | None:
        """The outcome where outputs differ; None where they do not."""
        try:
            got = LoadedModel(executable, feeds).outputs()
        except Exception as error:  # whatever a program raises while it runs
            return ImportCheck("differs", f"it does not run: {first_line(error)}")
        if len(got) != len(want):
            return ImportCheck("differs", f"it has {len(got)} outputs, and {len(want)} there")
        for place, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            if place not in self._open.outputs and (said := part(mine, theirs, step=self._step)):
                return self._explain(place, said, feeds)
        return None

    def _compare_bytes(self, feeds: Sequence[Array]) -> ImportCheck | None:
        """As `_compare`, of a graph that rounds to bytes: its outputs are allowed more than a wrong
        node may change them by, what lies between bytes is not. Once, since it is compiled anew."""
        if not self._has_bytes or self._bytes_compared or self._open.nodes:
            return None
        found = self._locate(feeds)
        if not isinstance(found, Fault):
            return None
        return self._name(f"{', '.join(found.got)}: {found.said}", found)

    def _explain(self, place: int, said: str, feeds: Sequence[Array]) -> ImportCheck | None:
        """What is behind a difference of an output; None where it is rounding that has grown."""
        if self._proto is None:
            return ImportCheck("differs", f"output {place}: {said}")
        output = f"output {self._proto.graph.output[place].name}"
        found = self._locate(feeds)
        if isinstance(found, Fault):
            return self._name(f"{output}: {said}", found)
        if isinstance(found, Grown) and found.nodes:
            self._notes.append(f"{output}: rounding grows in {', '.join(found.nodes[:3])}")
            return None
        why = found if isinstance(found, str) else "no part of the graph differs by itself"
        if self._has_bytes:
            return _skip(f"{output}: {said}; bytes next to ties may grow so; {why}")
        return ImportCheck("differs", f"{output}: {said}", (why,))

    def _locate(self, feeds: Sequence[Array]) -> Fault | Grown | str:
        names = [spec.name for spec in self._model.inputs]
        if not self._has_bytes:
            return locate(self._proto, names, feeds, self._target, _LOCATE_S, self._step)
        self._bytes_compared = True
        return locate_between_bytes(self._proto, names, feeds, self._target, _LOCATE_S)

    def _name(self, said: str, fault: Fault) -> ImportCheck:
        notes = (f"{fault.node} is the first that differs", *self._keep(fault))
        return ImportCheck("differs", said, notes)

    def _keep(self, fault: Fault) -> tuple[str, ...]:
        if self._folder is None:
            return ()
        kept = self._folder / FAULT_FOLDER
        try:
            save_fault(fault, kept)
        except OSError as error:
            return (f"its values could not be kept: {error}",)
        return (f"its values are in {kept}",)


def _proto_of(model: Model) -> Any:
    """A fresh protobuf of a model of ONNX; None of any other."""
    if model.kind != "onnx":
        return None
    from spaces.frontends.onnx.model import read_onnx

    if model.path is not None:
        return read_onnx(model.path)
    copy = type(model.proto)()
    copy.CopyFrom(model.proto)
    return copy


def _show(instance: Instance, number: int) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in instance)
    return f"draw {number + 1}" + (f" at {sizes}" if sizes else "")


class ImportCheckChild:
    """Runs in a child process, since a program that is wrong may crash."""

    def check(
        self,
        model_dir: Path,
        model_hash: str,
        target: str,
        limits: Limits,
        run: Path | None,
    ) -> ImportCheck:
        """Compare the copy of a model that a run keeps.

        Raises:
            TunerError: the copy is damaged.
        """
        from spaces.frontends.model_copy import load_input_values, load_model_copy
        from spaces.frontends.references import load_references

        os.nice(_NICE)
        size = sum(file.stat().st_size for file in model_dir.iterdir())
        if size > limits.bytes_free * _SHARE:
            free = f"{_SHARE:.0%} of the {limits.bytes_free >> 20} MB that are free"
            return _skip(f"the model takes {size >> 20} MB, more than {free}")
        model = load_model_copy(model_dir, model_hash)
        given, references = load_input_values(model_dir), load_references(model_dir)
        try:
            return check_import(model, target, given, limits, run, references)
        except TunerError as error:
            return replace(_skip(str(error)), model_hash=model_hash)
