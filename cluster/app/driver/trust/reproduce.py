"""The file that reproduces a task's winner: which kernels it has, and on which shapes."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.app.driver.kernel_sets import kernel_set
from cluster.app.driver.trust.rebuild import hashes_alike
from spaces.deploy.reproduce import Timed, reproducer
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.realize import realize
from spaces.ir.schedules import InvalidCandidate, code_hash
from spaces.passes.toolchain import toolchain_fingerprint
from tuner.candidate import Candidate
from tuner.dynamic.derived_names import bases_of, derive, text_of_name
from tuner.dynamic.dispatch_tree import pick
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.shapes import Dims
from tuner.errors import TunerError
from tuner.report.trust.claims import Claim, claims
from tuner.runs.folder import Manifest
from tuner.storage.base import RecordStore
from tuner.task import Instance, Task
from tuner.view.folds import find_tasks

_FEW, _ALL = 2, 1 << 20
"""Shapes of a kernel where the user names none; as many as there are."""


def reproduce(
    manifest: Manifest, store: RecordStore, run: object, name: str, shape: Dims = ()
) -> str:
    """The text of a file that rebuilds the winner of a task, and times it, with TVM alone.

    Args:
        run: the user's name of the run.
        name: of the task, or its key.
        shape: sizes of its symbolic dimensions; empty are some shapes that were measured.

    Raises:
        TunerError: the run has no such task, or no results for it; the task has no such dimension;
            its winner calls a library, or is not what its record says.
    """
    task = find_tasks(store, name)[0]
    chosen = kernel_set(store, task, manifest.max_kernels)
    sets = {} if chosen is None else {task.key: chosen}
    told = claims(store, sets, {task.key}, _ALL if shape else _FEW)
    if not told:
        raise TunerError(f"{run} has no results for {task.name} yet: nothing was measured")
    pairs: list[tuple[Candidate, Instance, Claim | None]]
    if shape:
        pairs = [_on(task, chosen, told, shape)]
    else:
        pairs = [(claim.candidate, claim.record.trial.instance, claim) for claim in told]
    first, default = told[0], told[0].default
    kernels = list(dict.fromkeys(candidate for candidate, _, _ in pairs))
    written = {candidate.key for candidate in kernels}
    _refuse_others([claim for claim in told if claim.candidate.key in written])
    return reproducer(
        task,
        kernels,
        default.trial.candidate if default else default_candidate(task),
        [_time(kernels.index(candidate), instance, known) for candidate, instance, known in pairs],
        device=first.record.provenance.device,
        toolchain=first.record.provenance.toolchain,
    )


def _time(kernel: int, instance: Instance, known: Claim | None) -> Timed:
    if known is None:
        return Timed(instance, kernel, None, None)
    return Timed(instance, kernel, known.latency_s, known.default_s)


def _on(
    task: Task, chosen: KernelSet | None, told: Sequence[Claim], shape: Dims
) -> tuple[Candidate, Instance, Claim | None]:
    """The kernel that serves a shape, and what is known of it there."""
    given = {dim: sizes[0] for dim, sizes in shape}
    dims = [dim for dim, _ in task.shapes[0][0]] if task.shapes else []
    found = [(dim, size) for dim in dims if (size := derive(dim, given)) is not None]
    bases = dict.fromkeys(base for dim in dims for base in bases_of(dim))
    strange = given.keys() - {*dims, *bases}
    if chosen is None or len(found) < len(dims) or strange:
        names = ", ".join(map(text_of_name, dims)) or "no symbolic dimension"
        of = ", ".join(bases)
        each = f": give one size of each of {of}" if of else ""
        raise TunerError(f"--shape: {task.name} has {names}{each}")
    wanted = tuple(sorted(found))
    for claim in told:
        if claim.record.trial.instance == wanted:
            return claim.candidate, wanted, claim
    return chosen.kernels[pick(chosen.tree, dict(wanted))], wanted, None


def _refuse_others(told: Sequence[Claim]) -> None:
    """Refuse winners that are not what their records say; each is rebuilt once.

    Raises:
        TunerError: there is one.
    """
    here = toolchain_fingerprint()
    said = {
        (claim.candidate.key, claim.record.code_hash): claim
        for claim in told
        if claim.record.code_hash and hashes_alike(claim.record.provenance.toolchain, here)
    }
    for claim in said.values():
        try:
            now = code_hash(realize(claim.task, claim.candidate).mod)
        except InvalidCandidate as error:
            raise TunerError(f"{claim.task.name} cannot be rebuilt: {error}") from error
        if now != claim.record.code_hash:
            raise TunerError(
                f"the record of {claim.task.name} is of program {claim.record.code_hash}, and "
                f"rebuilds as {now}: `tuner verify` says more"
            )
