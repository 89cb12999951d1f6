"""Checks for what would spoil a run on this machine, made without relying on this process.

Checks that may crash (as TVM does with the wrong ffi) or hang run in a child with a deadline. Each
check gives findings: values with a level, the facts found, and advice.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cluster.app.console.doctor_probes import Ask, ask_probe
from spaces.targets.cores import count_allowed_cores
from tuner.errors import TunerError
from tuner.process.outcome import Returned

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "elastic-tuner"
NO_DEVICE = "no device here"
"""How the finding about a GPU begins where there is none, which is no fault."""
LEAST_FREE_BYTES = 200 * 2**20
COMFORTABLE_BYTES = 2 * 2**30
_DEADLINE_S = 60.0
_VECTORS = ("amx-", "avx", "f16c", "fma", "neon", "sse4.2", "sve")
"""The prefixes of the names of CPU features that tell the widths and types of vectors."""
_RAY_DEADLINE_S = 120.0
_DRIVER = "see that NVIDIA's driver library can be loaded by this process"

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: name of the check.
        level: `ok`, `warn` (a run works, but not as well) or `fail` (a run will not work).
        found: the facts, in one line.
        advice: the remedy; empty where none is needed.
    """

    name: str
    level: Level
    found: str
    advice: str = ""

    def text(self) -> str:
        """A line for people, and a second one with the advice."""
        return render(self.level, self.name, self.found, self.advice)


def render(mark: str, name: str, found: str, remedy: str) -> str:
    """A line of the doctor's for people, and a second one with the remedy where there is one."""
    line = f"{mark:<5} {name}: {found}"
    return f"{line}\n      {remedy}" if remedy else line


def examine(
    *,
    tracking_uri: str | None = None,
    folder: Path = Path(),
    full: bool = False,
    ask: Ask = ask_probe,
) -> Iterator[Finding]:
    """Check everything; yield each finding as soon as it is known.

    Args:
        tracking_uri: URI of MLflow that a run would use; None is SQLite in the run folder.
        folder: where runs would be kept.
        full: start a Ray cluster on loopback too.
        ask: asks a process of its own; a parameter for tests.
    """
    yield python_version()
    yield from pins()
    yield pickling(ask)
    yield from target(ask)
    yield host_compiler()
    yield from disk(folder)
    yield ray(ask, full=full)
    yield tracking(tracking_uri)


def python_version(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    """Check that wheels exist for this Python."""
    found = ".".join(map(str, version))
    if version < (3, 11):
        return Finding("python", "fail", found, "use Python 3.11 or newer: make env PYTHON=...")
    return Finding("python", "ok", found)


def pins(distribution: str = DISTRIBUTION) -> Iterator[Finding]:
    """Check that each requirement of this package is installed in an allowed version."""
    wanted = read_requirements(distribution)
    if wanted is None:
        advice = "run make env, or python -m pip install -e ."
        yield Finding("pins", "fail", f"{distribution} is not installed", advice)
        return
    wrong = 0
    for requirement in wanted:
        if not is_required(requirement):
            continue
        there = find_version(requirement.name)
        if there and requirement.specifier.contains(there, prereleases=True):
            continue
        wrong += 1
        needed = f"{requirement.name}{requirement.specifier}"
        found = f"{requirement.name} is {there or 'missing'}, {needed} is needed"
        yield Finding("pins", "fail", found, f"python -m pip install '{needed}'")
    if not wrong:
        yield Finding("pins", "ok", f"all {len(wanted)} requirements are met, extras not counted")


def read_requirements(distribution: str = DISTRIBUTION) -> list[Requirement] | None:
    """What a package requires, its extras included; None where it is not installed."""
    from packaging.requirements import Requirement

    try:
        return [*map(Requirement, importlib.metadata.requires(distribution) or [])]
    except importlib.metadata.PackageNotFoundError:
        return None


def is_required(requirement: Requirement, extra: str = "") -> bool:
    """Whether a package requires this here, or with an extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def find_version(package: str) -> str:
    """The version of a package; empty where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def pickling(ask: Ask) -> Finding:
    """Check that a module survives pickling: with a wrong apache-tvm-ffi the process crashes."""
    outcome = ask("pickle_module", _DEADLINE_S)
    if not isinstance(outcome, Returned):
        advice = "install the pair that pyproject.toml pins: apache-tvm and apache-tvm-ffi"
        return Finding("pickling", "fail", f"of a TVM module: {outcome}", advice)
    return Finding("pickling", "ok", f"of a TVM {outcome.value} module")


def target(ask: Ask) -> Iterator[Finding]:
    """Check the target against this CPU and the cores this process may use; look for a GPU."""
    outcome = ask("describe_target", _DEADLINE_S)
    if not isinstance(outcome, Returned):
        yield Finding("target", "fail", str(outcome), "tuner --debug doctor may show more")
        return
    yield cpu_target(outcome.value, allowed=count_allowed_cores())
    yield from cuda(str(outcome.value["why_absent"]), str(outcome.value["mend"]))


def cpu_target(facts: dict[str, Any], *, allowed: int) -> Finding:
    """Compare the target made for this machine with its CPU and the cores allowed here."""
    mcpu, cores = facts["target"].get("mcpu"), facts["target"].get("num-cores")
    found = f"llvm {mcpu}{_about_cpu(facts)}, {cores} cores; this process may use {allowed}"
    if mcpu in (None, "", "generic", "x86-64"):
        advice = (
            'LLVM does not know this CPU: give its name, --target \'{"kind":"llvm","mcpu":...}\''
        )
        return Finding("target", "warn", found, advice)
    if mcpu != facts["host"]:
        return Finding("target", "warn", f"{found}; this CPU has the features of {facts['host']}")
    if not isinstance(cores, int) or cores > allowed:
        advice = "kernels would be timed on cores that are not ours; set num-cores in --target"
        return Finding("target", "fail", found, advice)
    return Finding("target", "ok", found)


def _about_cpu(facts: dict[str, Any]) -> str:
    """The facts about a CPU beyond its name: features, LLVM's guess if another, vectors, model."""
    target, guess = facts["target"], facts.get("guess", facts["host"])
    said = [*target.get("mattr", ())]
    if guess != facts["host"]:
        said.append(f"by its features, LLVM guesses {guess}")
    said += [name for name in facts.get("features", ()) if name.startswith(_VECTORS)]
    said += [target["model"]] if "model" in target else []
    return f" ({', '.join(said)})" if said else ""


def cuda(why_absent: str, mend: str = "") -> Iterator[Finding]:
    """Check that the driver and TVM agree on a device, and that kernels can be compiled for it.

    Args:
        why_absent, mend: why TVM can use none, and what helps; see `spaces.targets.cuda`.
    """
    names = ", ".join(_devices())
    if why_absent and not names and not mend:
        found = f"{NO_DEVICE} ({why_absent}); --target llvm is what auto means"
        yield Finding("cuda", "ok", found)
        return
    if why_absent:
        found = f"{names or 'a device'}: TVM cannot use it: {why_absent}"
        yield Finding("cuda", "warn", found, mend or _DRIVER)
        return
    yield Finding("cuda", "ok", names or "TVM sees a device")
    yield compiler()


def compiler() -> Finding:
    """Look for the compiler of CUDA kernels."""
    from spaces.codegen.cuda.nvcc import find_nvcc, nvcc_version

    try:
        nvcc = find_nvcc()
        return Finding("nvcc", "ok", f"{nvcc} {nvcc_version(nvcc)}")
    except TunerError as error:
        found, _, advice = str(error).partition(": ")
        return Finding("nvcc", "warn", found, advice)


def _devices() -> list[str]:
    """Names of the GPUs that the driver lists; empty where it does not answer."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    command = [smi, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def host_compiler() -> Finding:
    """Check that a shared library can be linked, as exporting a model does."""
    name = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), "")
    advice = "install a C compiler (gcc or clang), or set CC"
    if not name:
        return Finding("compiler", "fail", "no C compiler found", advice)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "a.c"), Path(folder, "a.so")
        source.write_text("int answer(void) { return 42; }\n")
        command = [*name.split(), "-shared", "-fPIC", "-o", str(library), str(source)]
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            reason = said.strip().splitlines()[-1]
            return Finding("compiler", "fail", f"{name} cannot link a library: {reason}", advice)
    return Finding("compiler", "ok", f"{name} links shared libraries")


def disk(folder: Path) -> Iterator[Finding]:
    """Check that a run can be kept in `folder`, with room for it and for temporary files."""
    places = {"disk": folder.resolve(), "temporary": Path(tempfile.gettempdir())}
    shared = Path("/dev/shm")
    if shared.is_dir():
        places["shared memory"] = shared
    for name, place in places.items():
        yield _room(name, place)


def _room(name: str, place: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=place) as probe:
            probe.write(b"x" * 4096)
            probe.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        advice = "work in a folder that can be written"
        return Finding(name, "fail", f"{place}: {error.strerror or error}", advice)
    found = f"{place} has {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Finding(name, "fail", found, f"free at least {LEAST_FREE_BYTES / 2**20:.0f} MiB")
    if free < COMFORTABLE_BYTES:
        return Finding(name, "warn", found, "a long run may fill it")
    return Finding(name, "ok", found)


def ray(ask: Ask, *, full: bool = False) -> Finding:
    """Check that Ray can be imported; with `full`, that a cluster of its own starts and works."""
    outcome = ask("start_ray", _RAY_DEADLINE_S) if full else ask("import_ray", _DEADLINE_S)
    if not isinstance(outcome, Returned):
        return Finding("ray", "fail", str(outcome), "see that /tmp and /dev/shm can be written")
    return Finding("ray", "ok", str(outcome.value))


def tracking(uri: str | None) -> Finding:
    """Check that MLflow's server answers. A run goes on without it, so this only warns."""
    from tuner.tracking.mlflow_uris import redact
    from tuner.tracking.tracker import check_uri

    if not uri:
        return Finding("mlflow", "ok", "kept in the run folder (MLFLOW_TRACKING_URI is not set)")
    warning = check_uri(uri)
    if warning:
        return Finding("mlflow", "warn", warning, "mend or unset MLFLOW_TRACKING_URI")
    return Finding("mlflow", "ok", f"MLFLOW_TRACKING_URI is {redact(uri)}")
