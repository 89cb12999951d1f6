"""The doctor finds what would spoil a run, survives it, and says what to do."""

from __future__ import annotations

import http.server
import importlib.metadata
import json
import shutil
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.fleet.guard import MARK
from cluster.app.cli import run
from cluster.app.console import doctor_checks
from cluster.app.console.doctor_checks import Finding
from cluster.app.console.doctor_probes import ask_probe
from tests.cluster.sockets import watched
from tuner.process.outcome import Died


def levels(findings: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(finding.name, finding.level) for finding in findings]


def test_a_crash_of_pickling_names_the_pins() -> None:
    finding = doctor_checks.pickling(lambda method, deadline_s: Died(signal.SIGSEGV, None))
    assert finding.level == "fail"
    assert finding.found == "of a TVM module: killed by SIGSEGV"
    assert "apache-tvm-ffi" in finding.advice


def test_python_too_old() -> None:
    assert doctor_checks.python_version((3, 10, 2)).level == "fail"
    assert doctor_checks.python_version((3, 11, 0)).level == "ok"


def test_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=2", "nosuchpackage==1", "click>=999", 'rich; extra == "ui"', "psutil"]
    versions = {"numpy": "2.1.0", "click": "8.5.1", "psutil": "7.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert [f.found for f in doctor_checks.pins()] == [
        "nosuchpackage is missing, nosuchpackage==1 is needed",
        "click is 8.5.1, click>=999 is needed",
    ]
    lines[:] = ["numpy>=2", "psutil"]
    assert levels(doctor_checks.pins()) == [("pins", "ok")]


def test_a_package_that_is_not_installed() -> None:
    assert levels(doctor_checks.pins("nosuchdistribution")) == [("pins", "fail")]


GONE = "libcuda.so.1: cannot open shared object file"


def facts(mcpu: str = "znver4", cores: int = 2) -> dict[str, object]:
    target = {"mcpu": mcpu, "num-cores": cores}
    return {"target": target, "host": "znver4", "why_absent": GONE, "mend": ""}


def test_the_target_against_the_cpu() -> None:
    assert doctor_checks.cpu_target(facts(), allowed=2).level == "ok"
    assert doctor_checks.cpu_target(facts(cores=8), allowed=2).level == "fail"
    assert doctor_checks.cpu_target(facts("generic"), allowed=2).level == "warn"
    assert doctor_checks.cpu_target(facts("skylake"), allowed=2).level == "warn"


def test_what_was_found_of_the_cpu_is_said() -> None:
    hidden: dict[str, object] = {
        "target": {
            "mcpu": "sapphirerapids",
            "mattr": ["-amx-tile"],
            "model": "l1=49152 l2=2097152 l3=110100480",
            "num-cores": 2,
        },
        "host": "sapphirerapids",
        "guess": "rocketlake",
        "features": ["64bit", "avx512fp16", "bmi"],
    }
    finding = doctor_checks.cpu_target(hidden, allowed=2)
    assert finding.level == "ok"
    for said in ("sapphirerapids", "LLVM guesses rocketlake", "-amx-tile", "avx512fp16", "l3=1101"):
        assert said in finding.found
    assert "bmi" not in finding.found


def devices(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """What the driver lists."""
    monkeypatch.setattr(doctor_checks, "_devices", lambda: list(names))


def test_a_machine_without_a_device_is_none_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch)
    (finding,) = doctor_checks.cuda(GONE)
    assert finding.level == "ok"
    assert GONE in finding.found


def test_a_device_that_tvm_cannot_use_is_named_with_the_library_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why = "libcudart.so.13: cannot open shared object file: No such file or directory"
    for listed in (["NVIDIA H100"], []):
        devices(monkeypatch, *listed)
        (finding,) = doctor_checks.cuda(why, "pip install it")
        assert finding.level == "warn"
        assert why in finding.found
        assert finding.advice == "pip install it"
    devices(monkeypatch, "NVIDIA H100")
    (finding,) = doctor_checks.cuda(GONE)
    assert (finding.level, finding.advice) == ("warn", doctor_checks._DRIVER)


def test_a_device_that_is_good_wants_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, "NVIDIA H100")
    found = {finding.name: finding for finding in doctor_checks.cuda("")}
    assert found["cuda"].found == "NVIDIA H100"
    assert found["nvcc"].level in ("ok", "warn")


def test_a_compiler_that_is_missing_is_named_with_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from spaces.codegen.cuda import nvcc

    monkeypatch.setattr(nvcc, "find_packaged_nvcc", lambda: None)
    monkeypatch.setattr(nvcc, "_USUAL", tmp_path)
    for name in ("PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(name, "")
    finding = doctor_checks.compiler()
    assert (finding.level, finding.found) == ("warn", "CUDA's compiler is missing")
    assert "elastic-tuner[cuda]" in finding.advice


def test_a_compiler_that_cannot_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -c 'import sys; sys.exit(1)'")
    assert doctor_checks.host_compiler().level == "fail"
    monkeypatch.setenv("CC", "nosuchcompiler")
    assert doctor_checks.host_compiler().level == "fail"


def test_a_disk_that_is_missing_or_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert next(doctor_checks.disk(tmp_path / "nosuch")).level == "fail"
    usage = shutil.disk_usage(tmp_path)
    for free, level in ((2**40, "ok"), (2**30, "warn"), (2**20, "fail")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, f=free: usage._replace(free=f))
        assert next(doctor_checks.disk(tmp_path)).level == level


class Health(http.server.BaseHTTPRequestHandler):
    """Answers whatever it is asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_tracking_server_answers_or_not() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        assert doctor_checks.tracking(address).level == "ok"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    gone = doctor_checks.tracking(address)
    assert gone.level == "warn"
    assert "does not answer" in gone.found
    assert doctor_checks.tracking("runs/mlruns").level == "warn"
    assert doctor_checks.tracking(None).level == "ok"


def test_the_command_fails_if_a_check_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [Finding("a", "ok", "fine"), Finding("b", "warn", "slow", "hurry")]
    monkeypatch.setattr(doctor_checks, "examine", lambda **_: iter(findings))
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ok    a: fine\nwarn  b: slow\n      hurry\n\nFeatures:\n")
    assert "tune ONNX models: onnx " in out
    findings.append(Finding("c", "fail", "broken", "mend it"))
    assert run(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["checks"][2] == {
        "name": "c",
        "level": "fail",
        "found": "broken",
        "advice": "mend it",
    }


@pytest.mark.tvm
def test_this_machine(tmp_path: Path) -> None:
    found = {finding.name: finding for finding in doctor_checks.examine(folder=tmp_path)}
    for name in ("python", "pickling", "target", "compiler", "ray", "mlflow"):
        assert found[name].level == "ok", found[name].text()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_ray_starts_here_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    with watched(mark) as seen:
        assert doctor_checks.ray(ask_probe, full=True).level == "ok"
    assert {"raylet", "gcs_server"} <= {one.process for one in seen.listeners}
    assert seen.outside == []


@pytest.mark.ray
def test_a_cluster_that_does_not_start_in_time_is_a_finding() -> None:
    finding = doctor_checks.ray(lambda method, deadline_s: ask_probe(method, 0.5), full=True)
    assert (finding.level, finding.found) == ("fail", "no answer within 0.5 s")
