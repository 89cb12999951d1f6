"""Targets: what a user writes, and what is kept of it."""

from __future__ import annotations

import json
import platform

import pytest

from spaces.ir import tvm_compat
from spaces.passes.toolchain import toolchain_fingerprint
from spaces.targets import cuda
from spaces.targets.target import (
    device_fingerprint,
    parse_target,
    resolve_target,
)
from tuner.errors import TunerError, UsageError

pytestmark = pytest.mark.tvm


def test_llvm_is_this_cpu_with_the_cores_it_may_use() -> None:
    target = json.loads(resolve_target("llvm"))
    assert target["kind"] == "llvm"
    assert target["mcpu"]
    assert target["num-cores"] >= 1
    assert json.loads(resolve_target("llvm", cores=3))["num-cores"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "auto",
        '{"num-cores": 2, "kind": "llvm"}',
        '{"kind": "cuda", "arch": "sm_90"}',
        "nvidia/nvidia-h100",
    ],
)
def test_a_resolved_target_resolves_to_itself(text: str) -> None:
    resolved = resolve_target(text)
    assert resolve_target(resolved) == resolved
    assert list(json.loads(resolved)) == sorted(json.loads(resolved))


@pytest.mark.parametrize(
    "text",
    ["nope", '{"kind": "nope"}', '{"kind":', "[1]", "{}", '{"kind": "llvm", "nonsense": 1}'],
)
def test_malformed_targets_and_unknown_kinds_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve_target(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["cuda", '{"kind": "cuda"}'])
def test_cuda_needs_a_device_here_or_an_architecture(text: str) -> None:
    if cuda.present():
        pytest.skip("this machine has one")
    with pytest.raises(TunerError, match="sm_90") as refused:
        resolve_target(text)
    assert refused.value.exit_code == 1


def test_a_cuda_target_carries_the_limits_that_the_rules_need() -> None:
    bare = json.loads(resolve_target('{"kind": "cuda", "arch": "sm_90"}'))
    assert bare["max_threads_per_block"] == 1024
    assert bare["max_shared_memory_per_block"] == 49152
    more = '{"kind": "cuda", "arch": "sm_90", "max_shared_memory_per_block": 232448}'
    assert json.loads(resolve_target(more))["max_shared_memory_per_block"] == 232448


def test_a_cpu_that_llvm_does_not_know_is_refused() -> None:
    # LLVM itself would warn and compile for the least of all CPUs.
    with pytest.raises(UsageError, match='"mcpu" nonsense') as refused:
        resolve_target('{"kind": "llvm", "mcpu": "nonsense"}')
    assert "\n" not in str(refused.value)


def test_a_cpu_of_another_architecture_is_no_device_of_this_machine() -> None:
    foreign = "x86_64" if platform.machine() != "x86_64" else "aarch64"
    with pytest.raises(TunerError, match=f"{foreign}, but this machine is") as refused:
        resolve_target(f'{{"kind": "llvm", "mtriple": "{foreign}-linux-gnu"}}')
    assert refused.value.exit_code == 1


def test_more_cores_than_this_machine_has_are_refused() -> None:
    with pytest.raises(TunerError, match="num-cores is 99999, but this machine has"):
        resolve_target('{"kind": "llvm", "num-cores": 99999}')


def test_this_machine_s_own_triple_is_taken() -> None:
    here = f"{platform.machine()}-unknown-linux-gnu"
    target = resolve_target(f'{{"kind": "llvm", "mtriple": "{here}"}}')
    assert json.loads(target)["mtriple"] == here


def test_what_launches_a_gpu_s_kernels_runs_beside_any_gpu() -> None:
    # It may be compiled on a machine with another CPU.
    host = parse_target('{"arch":"sm_90","kind":"cuda"}').host
    assert not {"avx", "avx2", "avx512f", "sve"} & tvm_compat.cpu_features(host)


def test_fingerprints_name_the_device_and_the_versions() -> None:
    two = device_fingerprint(resolve_target("llvm", cores=2))
    assert two.endswith("threads=2")
    assert two != device_fingerprint(resolve_target("llvm", cores=4))
    assert "tvm=" in toolchain_fingerprint()
    assert "llvm=" in toolchain_fingerprint()
