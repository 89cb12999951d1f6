"""The doctor says of each feature what it lacks here, and the command that brings exactly that."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cluster.app.console import doctor_checks
from cluster.app.console.doctor_checks import Finding
from cluster.app.console.doctor_features import FEATURES, Feature, features
from tuner.process.outcome import Returned

PROJECT = tomllib.loads((Path(__file__).resolve().parents[4] / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GOOD = [Finding("cuda", "ok", "H100"), Finding("compiler", "ok", "cc links")]
LINES = [
    "onnx>=1.17",
    "ray[default]==2.60.0",
    'torch>=2.6; extra == "torch"',
    'onnxscript>=0.7; extra == "torch"',
    "s3fs>=2025.2; extra == 's3'",
    'nvidia-cuda-nvcc<14,>=13; sys_platform == "linux" and extra == "cuda"',
    'boto3>=99; extra == "other"',
]

GONE = "libcuda.so.1: cannot open shared object file"


def examined(
    monkeypatch: pytest.MonkeyPatch,
    versions: dict[str, str],
    programs: set[str] = frozenset(),  # type: ignore[assignment]
    findings: list[Finding] = GOOD,
) -> dict[str, Feature]:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    def which(name: str) -> str | None:
        return f"/bin/{name}" if name in programs else None

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: LINES)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(shutil, "which", which)
    return {f.name: f for f in features(findings)}


def test_a_package_of_an_extra_that_is_missing_or_too_old_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = "tune PyTorch models, torch.compile"
    found = examined(monkeypatch, {"torch": "2.5.1"})[torch]
    assert asdict(found) == {
        "name": torch,
        "ok": False,
        "found": "missing: torch>=2.6 (it is 2.5.1), onnxscript>=0.7",
        "command": "python -m pip install 'torch>=2.6' 'onnxscript>=0.7'",
    }
    assert found.text() == f"-     {torch}: {found.found}\n      {found.command}"
    found = examined(monkeypatch, {"torch": "2.6.0", "onnxscript": "0.7"})[torch]
    assert found == Feature(torch, True, "torch 2.6.0, onnxscript 0.7")
    assert found.text() == f"ok    {torch}: torch 2.6.0, onnxscript 0.7"


def test_a_package_of_a_feature_is_asked_for_in_the_versions_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = examined(monkeypatch, {"ray": "2.59.0"})
    assert found["run on a cluster"].command == "python -m pip install 'ray[default]==2.60.0'"
    assert found["a fleet on AWS"].found.endswith("ray[default]==2.60.0 (it is 2.59.0), boto3")


def test_a_program_of_several_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(monkeypatch, {}, {"grafana-server"})
    assert found["dashboards in Grafana"] == Feature(
        "dashboards in Grafana", True, "/bin/grafana-server"
    )
    found = examined(monkeypatch, {})
    assert found["metrics in Prometheus"].command == "apt-get install prometheus"
    assert found["dashboards in Grafana"].found == "missing: grafana (from grafana.com)"
    assert found["dashboards in Grafana"].command == ""


def test_kernels_for_a_gpu_take_a_device_and_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "tune CUDA kernels"
    nvcc = Finding("nvcc", "ok", "/cuda/bin/nvcc 13.0.88")
    found = examined(monkeypatch, {}, findings=[*GOOD, nvcc])[name]
    assert found == Feature(name, True, "/cuda/bin/nvcc 13.0.88, H100")
    packaged = examined(monkeypatch, {"nvidia-cuda-nvcc": "13.0.88"})[name]
    assert packaged == Feature(name, True, "nvidia-cuda-nvcc 13.0.88, H100")
    without = examined(monkeypatch, {})[name]
    assert without.found == "missing: nvidia-cuda-nvcc<14,>=13"
    assert without.command == "python -m pip install 'nvidia-cuda-nvcc<14,>=13'"


def test_kernels_for_a_gpu_take_a_device_that_tvm_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "tune CUDA kernels"
    nvcc = Finding("nvcc", "ok", "/cuda/bin/nvcc 13.0.88")
    (absent,) = doctor_checks.cuda(GONE)
    assert absent.level == "ok"
    without = examined(monkeypatch, {}, findings=[absent, nvcc])[name]
    assert without == Feature(name, False, "missing: an NVIDIA GPU with its driver")
    unusable = [Finding("cuda", "warn", "H100: TVM cannot use it"), nvcc]
    assert not examined(monkeypatch, {}, findings=unusable)[name].ok


def test_a_compiler_that_does_not_link_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [Finding("compiler", "fail", "cc cannot link a library: no crt1.o")]
    found = examined(monkeypatch, {}, {"cc"}, broken)["export libraries"]
    assert found.found == "missing: a C compiler that links"
    assert found.command == "apt-get install gcc libc6-dev"
    assert examined(monkeypatch, {})["export libraries"].found == "cc links"


def test_an_installation_that_does_not_know_an_extra_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = examined(monkeypatch, {})["runs at gs://"]
    assert not found.ok
    assert "has no extra gs" in found.found
    assert found.command == "python -m pip install -e ."


def test_every_extra_for_users_is_a_feature() -> None:
    named = {needs.extra for needs in FEATURES if needs.extra}
    assert named == EXTRAS.keys() - {"coverage", "dev", "mutants", "tests"}
    assert len({needs.name for needs in FEATURES}) == len(FEATURES)


def test_each_command_installs_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has nothing at all."""
    answer = Returned(
        {"target": {"mcpu": "x", "num-cores": 1}, "host": "x", "why_absent": GONE, "mend": ""}
    )
    findings = list(doctor_checks.target(lambda *_: answer))
    monkeypatch.setattr(importlib.metadata, "version", _nothing)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for feature in features(findings):
        assert not feature.ok
        for command in filter(None, feature.command.split(" && ")):
            tool, *words = shlex.split(command)
            if tool == "python":
                assert words[:3] == ["-m", "pip", "install"]
                for word in words[3:]:
                    assert word in ("-e", ".") or Requirement(word)
            else:
                assert re.fullmatch(r"apt-get install [a-z0-9 -]+", command)


def _nothing(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)
