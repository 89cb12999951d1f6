"""Winners rebuilt from their records, on this machine: their programs, outputs and times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from actors.builder import Builder, Built
from actors.quiet_lock import PLACE, Quiet
from actors.runner import Runner
from spaces.targets.backends import backend_of
from tuner.candidate import Candidate, library_name, library_space
from tuner.effort import Effort
from tuner.errors import TunerError
from tuner.files.own_folder import own_folder
from tuner.layers import Layers
from tuner.record import Measurement, Status, Trial
from tuner.report.trust.claims import Claim
from tuner.report.trust.verify import Seen
from tuner.task import Instance, Task

_AGAIN = 1
"""The rung whose timing is that of finalists."""
_IN_HASHES = ("tvm", "ffi")
"""The parts of a toolchain that hashes of programs depend on."""
OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Here:
    """This machine.

    Attributes:
        device, toolchain: fingerprints; the device's is empty where there is none.
        lacks: why kernels cannot run here; empty where they can.
    """

    device: str
    toolchain: str
    lacks: str = ""


class Rebuilder:
    """Builds winners and runs them. Used by one thread, which must live as long as it does.

    Args:
        runner: None where kernels cannot run on this machine.
        effort: rules of timing, and the deadlines.
        on_step: is called with what comes next.
    """

    def __init__(
        self, builder: Builder, runner: Runner | None, here: Here, effort: Effort, on_step: OnStep
    ) -> None:
        self.here = here
        self._builder, self._runner = builder, runner
        self._effort, self._on_step = effort, on_step
        self._artifacts: dict[tuple[str, str], bytes] = {}

    def rebuilt(self, claim: Claim, *, hashes: bool) -> Seen:
        """Build a winner, and the default schedule beside it.

        Args:
            hashes: whether hashes of programs mean the same here as where the record was made.
        """
        self._on_step(f"building {claim.task.name}")
        built = self._build(claim.task, claim.candidate)
        if isinstance(built, Measurement):
            return Seen((f"cannot be rebuilt: {built.error}",))
        then, now = claim.record.code_hash, built.written.code_hash
        if hashes and then and now != then:
            said = f"its record is of program {then[:12]}, and rebuilds as {now[:12]}"
            return Seen((said,))
        if claim.default is not None and self._runner is not None:
            self._build(claim.task, claim.default.trial.candidate)
        return Seen(unchecked=self.here.lacks)

    def _build(self, task: Task, candidate: Candidate) -> Built | Measurement:
        built = self._builder.build(task, candidate, self._effort.build_deadline_s)
        if isinstance(built, Built):
            self._artifacts[task.key, candidate.key] = built.artifact
        elif built.fault:
            raise TunerError(built.fault)
        return built

    def timed(self, claim: Claim, seen: Seen) -> Seen:
        """Run a winner, check its output and time it, right after the default schedule."""
        self._on_step(f"timing {claim.task.name}")
        default_s = self._default_s(claim)
        measured = self._run(claim.task, claim.candidate, claim.record.trial.instance)
        match measured.status:
            case Status.OK if measured.latency_s is not None:
                return replace(
                    seen,
                    turns_s=(*seen.turns_s, measured.latency_s),
                    default_s=(*seen.default_s, *default_s),
                )
            case Status.UNCHECKED:
                return replace(seen, unchecked=measured.error)
            case Status.WRONG:
                said = f"its output is wrong: {measured.error}"
            case _:
                said = f"it does not run: {measured.error or measured.status}"
        return replace(seen, differs=(*seen.differs, said))

    def _default_s(self, claim: Claim) -> tuple[float, ...]:
        if claim.default is None:
            return ()
        default = claim.default.trial.candidate
        if (claim.task.key, default.key) not in self._artifacts:
            return ()
        latency_s = self._run(claim.task, default, claim.record.trial.instance).latency_s
        return () if latency_s is None else (latency_s,)

    def _run(self, task: Task, candidate: Candidate, instance: Instance) -> Measurement:
        assert self._runner is not None
        learned = self._runner.learn(task, instance, self._effort.reference_deadline_s)
        if learned.error:
            return Measurement(Status.UNCHECKED, error=f"no reference output: {learned.error}")
        measured = self._runner.run(
            task,
            self._artifacts[task.key, candidate.key],
            timing=self._effort.timing_of(Trial(task.key, candidate, instance, _AGAIN)),
            cutoff_s=None,
            deadline_s=self._effort.run_deadline_s,
            instance=instance,
            library=library_space(candidate),
        )
        if measured.fault:
            raise TunerError(measured.fault)
        return measured


def not_named(claim: Claim, layers: Layers) -> str:
    """Why a winner that calls a library cannot run; empty where it can, or calls none."""
    from spaces.libraries.registration import space_of

    space = library_space(claim.candidate)
    if not space or space in map(space_of, layers.libraries):
        return ""
    return (
        f"it calls {claim.candidate.payload} of {library_name(space)}: name its file with "
        "--library, with the text that it was tuned with"
    )


@contextmanager
def rebuilder(
    target: str, layers: Layers, salt: str, effort: Effort, on_step: OnStep
) -> Iterator[Rebuilder]:
    """A builder and a runner for a target, on this machine, and whatever is left of them removed.

    Args:
        salt: of the inputs.

    Raises:
        TunerError: one of them does not start.
    """
    quiet = Quiet(own_folder() / PLACE) if backend_of(target).quiet else None
    lacks = _lacking(target)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tuner-verify-")))
        builder = Builder(log_dir=folder, quiet=quiet, layers=layers)
        stack.enter_context(closing(builder))
        runner = None
        if not lacks:
            runner = Runner(
                target=target,
                log_dir=folder,
                scratch=folder,
                quiet=quiet,
                layers=layers,
                salt=salt,
            )
            stack.enter_context(closing(runner))
        try:
            builder.ready()
            here = _here(runner, target, lacks)
        except RuntimeError as error:
            raise TunerError(str(error)) from error
        yield Rebuilder(builder, runner, here, effort, on_step)


def _here(runner: Runner | None, target: str, lacks: str) -> Here:
    from spaces.passes.toolchain import toolchain_fingerprint

    device = ""
    if runner is not None:
        runner.ready()
        device = runner.device()
    return Here(device, toolchain_fingerprint(target), lacks)


def _lacking(target: str) -> str:
    """Why kernels for a target cannot run on this machine; empty where they can."""
    from spaces.targets.target import device_of, refuse_other_features

    try:
        refuse_other_features(target)
        device_of(target)
    except TunerError as error:
        return str(error)
    return ""


def find_obstacles(claims: Sequence[Claim], here: Here, target: str) -> Iterator[str]:
    """What speaks against comparing times of the records with times here."""
    if here.lacks:
        yield here.lacks
        return
    devices = {c.record.provenance.device for c in claims} - {"", here.device}
    if devices:
        yield f"measured on {', '.join(sorted(devices))}, and this is {here.device}"
    toolchains = {c.record.provenance.toolchain for c in claims} - {"", here.toolchain}
    if toolchains:
        yield f"compiled with {', '.join(sorted(toolchains))}, and this is {here.toolchain}"


def hashes_alike(one: str, other: str) -> bool:
    """Whether a program has the same hash with both; also where the first is not known."""
    parts = [dict(part.partition("=")[::2] for part in each.split()) for each in (one, other)]
    return not one or all(parts[0].get(name) == parts[1].get(name) for name in _IN_HASHES)
