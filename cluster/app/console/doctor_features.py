"""What each feature takes that this machine lacks, and the command that brings it.

Nothing is imported and no service is asked: packages are looked up in their metadata, in the
versions that this package's own metadata asks for, and programs on the path.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.app.console.doctor_checks import (
    DISTRIBUTION,
    NO_DEVICE,
    Finding,
    find_version,
    is_required,
    read_requirements,
    render,
)

if TYPE_CHECKING:
    from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that people use, and whether it can be used here.

    Attributes:
        name: in the words of the docs.
        ok: whether nothing is missing.
        found: what there is of it, or what is missing, in one line.
        command: brings what is missing; empty where nothing is, or no command can.
    """

    name: str
    ok: bool
    found: str
    command: str = ""

    def text(self) -> str:
        """A line for people, and a second one with the command."""
        return render("ok" if self.ok else "-", self.name, self.found, self.command)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a feature takes.

    Attributes:
        extra: the extra of this package whose requirements it takes.
        stands_in: name of a finding that, where it is good, stands in for the extra.
        packages: more packages, by name.
        programs: any of these on the path will do.
        install: the command that brings such a program; empty where none does.
        source: where such a program comes from, where no command brings it.
        checks: names of findings that must be good, and for where one is not what is missing and
            the command that brings it.
    """

    name: str
    extra: str = ""
    stands_in: str = ""
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    install: str = ""
    source: str = ""
    checks: tuple[tuple[str, str, str], ...] = ()


FEATURES = (
    Needs("tune ONNX models", packages=("onnx",)),
    Needs("tune PyTorch models, torch.compile", extra="torch"),
    Needs(
        "tune CUDA kernels",
        extra="cuda",
        stands_in="nvcc",
        checks=(("cuda", "an NVIDIA GPU with its driver", ""),),
    ),
    Needs(
        "export libraries",
        checks=(("compiler", "a C compiler that links", "apt-get install gcc libc6-dev"),),
    ),
    Needs("libraries as contestants", packages=("numpy",)),
    Needs("compare with onnxruntime in tuner bench", extra="onnxruntime"),
    Needs("track in MLflow", packages=("mlflow-skinny", "sqlalchemy", "alembic")),
    Needs("see runs in MLflow's page", extra="ui"),
    Needs("reports", packages=("altair", "vl-convert-python", "jinja2")),
    Needs("runs at s3://", extra="s3"),
    Needs("runs at gs://", extra="gs"),
    Needs("runs at abfs://", extra="abfs"),
    Needs("run on a cluster", packages=("ray",)),
    Needs("a fleet on AWS", packages=("ray", "boto3")),
    Needs(
        "a fleet on Google Cloud",
        packages=("ray", "google-api-python-client", "google-auth-httplib2", "cryptography"),
    ),
    Needs(
        "a fleet on Kubernetes", programs=("kubectl",), install="apt-get install kubernetes-client"
    ),
    Needs("metrics in Prometheus", programs=("prometheus",), install="apt-get install prometheus"),
    Needs("dashboards in Grafana", programs=("grafana", "grafana-server"), source="grafana.com"),
    Needs("build the docs", extra="docs"),
)


def features(findings: Iterable[Finding]) -> Iterator[Feature]:
    """What can be used here, feature by feature.

    Args:
        findings: those of `doctor_checks.examine`, some of which a feature needs.
    """
    found, requirements = list(findings), read_requirements() or []
    for needs in FEATURES:
        yield _feature(needs, found, requirements)


def _feature(needs: Needs, findings: list[Finding], requirements: list[Requirement]) -> Feature:
    wanted = _wanted(needs, requirements)
    there, missing, commands = [], [], []
    if needs.stands_in and (good := _good(needs.stands_in, findings)):
        wanted, there = [], [good]
    elif needs.extra and not wanted:
        unknown = f"unknown: the {DISTRIBUTION} that is installed has no extra {needs.extra}"
        return Feature(needs.name, False, unknown, "python -m pip install -e .")
    lacking = []
    for requirement in wanted:
        has, text = find_version(requirement.name), str(requirement).partition(";")[0].strip()
        if has and requirement.specifier.contains(has, prereleases=True):
            there.append(f"{requirement.name} {has}")
        else:
            missing.append(f"{text} (it is {has})" if has else text)
            lacking.append(text)
    if lacking:
        commands.append(f"python -m pip install {shlex.join(lacking)}")
    for name, what, brings in needs.checks:
        if good := _good(name, findings):
            there.append(good)
        else:
            missing.append(what)
            commands.append(brings)
    if program := next(filter(None, map(shutil.which, needs.programs)), None):
        there.append(program)
    elif needs.programs:
        source = f" (from {needs.source})" if needs.source else ""
        missing.append(f"{needs.programs[0]}{source}")
        commands.append(needs.install)
    if missing:
        command = " && ".join(filter(None, commands))
        return Feature(needs.name, False, f"missing: {', '.join(missing)}", command)
    return Feature(needs.name, True, ", ".join(there))


def _wanted(needs: Needs, requirements: list[Requirement]) -> list[Requirement]:
    """The requirements of a feature's extra, and its packages in the versions that this package
    asks for, if it does."""
    from packaging.requirements import Requirement

    always = {each.name: each for each in requirements if is_required(each)}
    extra = [r for r in requirements if is_required(r, needs.extra) and not is_required(r)]
    return [*extra, *(always.get(name) or Requirement(name) for name in needs.packages)]


def _good(name: str, findings: list[Finding]) -> str:
    """What a check found; empty unless it was made and good, and there is what it is about."""
    found = [f for f in findings if f.name == name and not f.found.startswith(NO_DEVICE)]
    return found[0].found if found and all(f.level == "ok" for f in found) else ""
