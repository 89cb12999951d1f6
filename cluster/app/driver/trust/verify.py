"""Verifies the winners of a run: rebuilt, checked on fresh inputs, timed again in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cluster.app.driver.kernel_sets import kernel_set
from cluster.app.driver.layers import try_layers
from cluster.app.driver.trust.rebuild import (
    OnStep,
    Rebuilder,
    find_obstacles,
    hashes_alike,
    not_named,
    rebuilder,
)
from spaces.lowering.extract_tasks import program_hash
from tuner.effort import EFFORTS, Effort
from tuner.errors import TunerError, first_line
from tuner.layers import OURS, Layers, versions
from tuner.report.trust.claims import Claim, claims, count_misfiled
from tuner.report.trust.verify import Seen, Verification, judge, suspects
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.runs.folder import LAYER, Manifest
from tuner.storage.base import RecordStore
from tuner.task import Task, task_key
from tuner.view.folds import find_tasks

_MEASURE = {"builder": "compiled", "runner": "timed", "measurer": "measured"}
"""Layers without which times mean something else, and what they did."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request to verify a run.

    Attributes:
        task: name or key of the only task; None is all of them.
        turns: the number of times that each winner is timed.
        seed: of the inputs, which are never those of the run's own checks.
        anyway: judge times also where device, toolchain or layers are others than the records'.
        layers: as `tuner.request.options.TuneOptions.layers`.
    """

    task: str | None = None
    turns: int = 3
    seed: int = 0
    anyway: bool = False
    layers: tuple[tuple[str, str], ...] = ()


def verify(
    manifest: Manifest,
    store: RecordStore,
    name: object,
    wanted: Wanted,
    on_step: OnStep = lambda what: None,
) -> Verification:
    """Verify the winners of a run.

    Args:
        name: the user's name of the run.
        on_step: is called with what comes next.

    Raises:
        TunerError: the run has no such task, or no results; a layer cannot be used; no process to
            build or run in can be started.
    """
    layers = _layers(manifest, wanted)
    told = _claims(manifest, store, name, wanted.task)
    salt = f"verify{wanted.seed}"
    with rebuilder(manifest.target, layers, salt, _effort(manifest), on_step) as bench:
        broken = dict(_find_broken(manifest, store, told, bench.here.toolchain))
        seen = [_look_at(bench, claim, layers, broken) for claim in told]
        unsure = list(find_obstacles(told, bench.here, manifest.target))
        unsure += [] if bench.here.lacks else _of_layers(manifest, layers)
        unsure = [] if wanted.anyway and not bench.here.lacks else unsure
        places = [place for place, what in enumerate(seen) if not (what.differs or what.unchecked)]
        seen = _in_turns(bench, told, seen, places, wanted.turns)
        # A neighbour on the machine may have made a good kernel slow: it gets as much time again.
        places = [] if unsure else suspects(told, seen)
        seen = _in_turns(bench, told, seen, places, wanted.turns)
    return judge(told, seen, unsure)


def _layers(manifest: Manifest, wanted: Wanted) -> Layers:
    if not wanted.layers:
        return OURS
    return try_layers(TuneOptions(ModelSpec(manifest.model), layers=wanted.layers))


def _effort(manifest: Manifest) -> Effort:
    return EFFORTS.get(str(manifest.options.get("effort")), EFFORTS["normal"])


def _claims(manifest: Manifest, store: RecordStore, name: object, only: str | None) -> list[Claim]:
    tasks = find_tasks(store, only)
    sets = {
        task.key: chosen
        for task in tasks
        if (chosen := kernel_set(store, task, manifest.max_kernels)) is not None
    }
    found = claims(store, sets, {task.key for task in tasks})
    if not found:
        raise TunerError(f"{name} has no results yet: nothing was measured")
    return found


def _find_broken(
    manifest: Manifest, store: RecordStore, told: Sequence[Claim], toolchain: str
) -> Iterator[tuple[str, str]]:
    """Why the records of a task are none of its program's, by task key; only where they are not."""
    for claim in {claim.task.key: claim for claim in told}.values():
        task, why = claim.task, ""
        if task.target != manifest.target:
            why = "its target is not the run's"
        elif hashes_alike(claim.record.provenance.toolchain, toolchain):
            why = _other_program(task)
        if not why and (count := count_misfiled(store, task.key)):
            why = f"{count} of its records hold the schedule of another candidate"
        if why:
            yield task.key, why


def _other_program(task: Task) -> str:
    try:
        key = task_key(program_hash(task), task.target)
    except Exception as error:  # TVM raises whatever its C++ side threw
        return f"its program cannot be read: {first_line(error)}"
    return "" if key == task.key else f"its key is {task.key}, and its program's is {key}"


def _look_at(bench: Rebuilder, claim: Claim, layers: Layers, broken: Mapping[str, str]) -> Seen:
    if claim.task.key in broken:
        return Seen((broken[claim.task.key],))
    seen = bench.rebuilt(
        claim, hashes=hashes_alike(claim.record.provenance.toolchain, bench.here.toolchain)
    )
    if seen.differs or seen.unchecked:
        return seen
    return Seen(unchecked=not_named(claim, layers))


def _in_turns(
    bench: Rebuilder, told: Sequence[Claim], seen: Sequence[Seen], places: Sequence[int], turns: int
) -> list[Seen]:
    """Time some winners, each once in each turn: the machine's drift then affects all of them."""
    now = list(seen)
    for _ in range(turns):
        for place in places:
            if not (now[place].differs or now[place].unchecked):
                now[place] = bench.timed(told[place], now[place])
    return now


def _of_layers(manifest: Manifest, layers: Layers) -> Iterator[str]:
    """What a user's layers have to do with the times of the records, and not with those here."""
    for layer, did in _MEASURE.items():
        begun = str(manifest.options.get(f"{LAYER}{layer}") or "")
        now = versions(layers).get(layer, "")
        if _name_version(begun) == _name_version(now):
            continue
        if layer == "measurer":
            yield f"{did} by the measurer {begun}"
        elif begun:
            yield f"{did} by the {layer} {begun}: name it with --{layer}"
        else:
            yield f"not {did} by the {layer} {now}"


def _name_version(said: str) -> str:
    """The name and the version of a layer, wherever its file lies."""
    return said.rpartition(":")[2]
