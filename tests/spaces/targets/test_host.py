"""This machine's CPU as a target, and those of others as it would be there."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.ir import tvm_compat
from spaces.targets.config import canonical
from spaces.targets.cpu import cpu_of
from spaces.targets.cpu_caches import cache_bytes, caches_of, caches_text
from spaces.targets.cpu_features import of_kernels
from spaces.targets.host import Host, cpu_model, this_host
from spaces.targets.target import (
    asks_for,
    device_fingerprint,
    parse_target,
    refuse_other_features,
    resolve_target,
    takes_the_same,
)
from tuner.errors import TunerError

pytestmark = pytest.mark.tvm

DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data/x86-cpus.json").read_text())
SMALL = {1: 32 << 10, 2: 512 << 10, 3: 32 << 20}
LARGE = {1: 48 << 10, 2: 2 << 20, 3: 105 << 20}
HIDDEN_NAME = "Sapphire Rapids that passes for a Rocket Lake"

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the machines are x86")


def host(machine: str, caches: Mapping[int, int] = SMALL, **more: bool) -> Host:
    it = DATA["machines"][machine]
    has = it["has"].split()
    reported = {feature: feature in has for feature in DATA["asked"].split()}
    triple = "x86_64-unknown-linux-gnu"
    return Host(it["named"], {**reported, **more}, caches, triple, "AMD EPYC", it["vendor"])


def graviton(core: str, **more: bool) -> Host:
    """What LLVM asks of ARM's cores is little."""
    reported = {"neon": True, "fp-armv8": True, "lse": True, "crc": True, "aes": True, **more}
    return Host(core, reported, LARGE, "aarch64-unknown-linux-gnu")


def target_of(at: Host) -> str:
    return resolve_target("llvm", cores=1, host=at)


@on_x86
@pytest.mark.parametrize("machine", DATA["machines"])
def test_llvm_compiles_for_what_the_processor_reports(machine: str) -> None:
    at = host(machine)
    used = tvm_compat.cpu_features(parse_target(target_of(at)))
    believed = {feature: feature in used for feature in at.reported}
    # One bit of AVX-512 stands for all that builds on it.
    if not at.reported["avx512f"]:
        at = replace(at, reported={f: v and "avx512" not in f for f, v in at.reported.items()})
    assert of_kernels(believed) == of_kernels(at.reported)
    assert at.lacks(target_of(at)) == ()


@on_x86
@pytest.mark.parametrize("core", ["neoverse-n1", "neoverse-v1", "neoverse-v2"])
def test_a_graviton_is_what_its_core_is(core: str) -> None:
    at = graviton(core, sve=core != "neoverse-n1")
    assert at.config() == {"mcpu": core}
    assert at.lacks(canonical({"kind": "llvm", **at.config()})) == ()


@on_x86
def test_vectors_that_a_graviton_s_system_does_not_save_are_not_used() -> None:
    at = graviton("neoverse-v1", sve=False)
    assert at.lacks('{"kind":"llvm","mcpu":"neoverse-v1"}') == ("sve",)
    assert at.lacks(canonical({"kind": "llvm", **at.config()})) == ()


@on_x86
def test_what_llvm_implies_by_an_addition_is_taken_back() -> None:
    at = host("Haswell", avx512bw=True, avx512f=False)
    used = tvm_compat.cpu_features(parse_target(target_of(replace(at, vendor="other"))))
    assert {"avx2", "fma"} <= used
    assert not [feature for feature in used if feature.startswith("avx512")]


@on_x86
def test_a_target_of_a_machine_resolves_to_itself() -> None:
    target = target_of(host("Cascade Lake, AVX-512 hidden"))
    assert resolve_target(target) == target
    assert json.loads(target)["mattr"][-1] == "-avx512vnni"


@on_x86
@pytest.mark.parametrize(
    ("machine", "wide"), [(HIDDEN_NAME, True), ("Cascade Lake, AVX-512 hidden", False)]
)
def test_the_code_has_the_vectors_that_are_there(machine: str, wide: bool) -> None:
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule

    one = te.placeholder((64,), "float32", name="one")
    twice = te.compute((64,), lambda i: one[i] + one[i], name="twice")
    schedule = Schedule(te.create_prim_func([one, twice]))
    _, lanes = schedule.split(*schedule.get_loops(schedule.get_sblock("twice")), [None, 16])
    schedule.vectorize(lanes)
    library = tvm.compile(schedule.mod, target=parse_target(target_of(host(machine))))
    assert ("zmm" in library.mod.inspect_source("asm")) == wide


def test_this_machine_runs_what_is_compiled_for_it() -> None:
    import tvm
    from tvm import te

    target = resolve_target("llvm", cores=1)
    rows = te.placeholder((40, 24), "float32", name="rows")
    step = te.reduce_axis((0, 24), "step")
    sums = te.compute((40,), lambda i: te.sum(te.exp(rows[i, step]), step), "sums")
    library = tvm.compile(te.create_prim_func([rows, sums]), target=parse_target(target))
    given = np.random.default_rng(7).normal(size=(40, 24)).astype("float32")
    out = tvm.runtime.tensor(np.zeros(40, "float32"))
    library(tvm.runtime.tensor(given), out)
    np.testing.assert_allclose(out.numpy(), np.exp(given).sum(1), rtol=1e-5)


def test_this_machine_s_target_adds_nothing_that_it_does_not_report() -> None:
    at = this_host()
    added = [w[1:] for w in json.loads(resolve_target("llvm")).get("mattr", ()) if w[0] == "+"]
    assert all(at.reported[feature] for feature in added)
    refuse_other_features(resolve_target("llvm"))


@on_x86
def test_the_system_reports_the_vectors_that_this_machine_s_code_uses() -> None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        pytest.skip("no /proc/cpuinfo")
    flags = next(line for line in lines if line.startswith("flags")).replace("_", "").split()
    used = tvm_compat.cpu_features(parse_target(resolve_target("llvm")))
    vectors = {f for f in used & this_host().reported.keys() if f.startswith(("avx5", "fma"))}
    assert vectors <= {*flags}
    assert ("avx2" in used) == ("avx2" in flags)


class TestCaches:
    def test_sizes_are_read_from_the_system(self, tmp_path: Path) -> None:
        for index, (level, kind, size) in enumerate(
            [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
        ):
            (folder := tmp_path / f"index{index}").mkdir()
            for name, text in (("level", level), ("type", kind), ("size", size)):
                (folder / name).write_text(f"{text}\n")
        found = cache_bytes(tmp_path)
        assert (found[1], found[2]) == (48 << 10, 2 << 20)
        assert found[3] == cache_bytes(tmp_path / "nosuch")[3]

    def test_a_target_carries_them(self) -> None:
        assert caches_of(caches_text(LARGE)) == LARGE
        assert caches_of("snapdragon835") is None

    @on_x86
    def test_drafts_are_for_the_caches_of_the_machine_that_measures(self) -> None:
        there = cpu_of(target_of(host("Zen 4 behind KVM", LARGE)))
        assert (there.l1_bytes, there.l2_bytes, there.l3_bytes) == tuple(LARGE.values())

    def test_a_target_of_before_has_those_of_this_machine(self) -> None:
        old = resolve_target('{"kind": "llvm", "num-cores": 1, "model": ""}')
        assert "model" not in json.loads(old)
        assert cpu_of(old).l2_bytes == this_host().caches[2]


class TestFingerprint:
    AT = host("Zen 3 behind KVM")
    OLD = canonical({"kind": "llvm", "mcpu": "znver3", "num-cores": 1})

    def of(self, at: Host) -> str:
        return device_fingerprint(self.OLD, at)

    @on_x86
    def test_machines_with_other_features_or_caches_are_unlike(self) -> None:
        more = replace(self.AT, reported={**self.AT.reported, "avx512f": True})
        assert len({self.of(at) for at in (self.AT, more, replace(self.AT, caches=LARGE))}) == 3

    @on_x86
    def test_settings_of_the_system_make_no_other_machine(self) -> None:
        other = replace(self.AT, reported={**self.AT.reported, "pku": True, "rtm": True})
        assert self.of(other) == self.of(self.AT)
        assert target_of(other) == target_of(self.AT)

    def test_it_begins_with_the_cpus_own_name(self, tmp_path: Path) -> None:
        cpuinfo = tmp_path / "cpuinfo"
        assert cpu_model(cpuinfo) == ""
        cpuinfo.write_text("processor : 0\nmodel name\t: AMD EPYC\nflags : a b\n")
        assert cpu_model(cpuinfo) == "AMD EPYC"
        assert self.of(self.AT).startswith("cpu AMD EPYC (znver3 ")


@on_x86
class TestVnni:
    """int8 matrix products ask for instructions, and for those of all the widths they use."""

    def vnni(self, machine: str, **more: bool) -> bool:
        return cpu_of(target_of(host(machine, **more))).vnni

    def test_a_hidden_model_does_not_hide_them(self) -> None:
        found = cpu_of(target_of(host(HIDDEN_NAME)))
        assert (found.vector_bytes, found.registers, found.vnni) == (64, 32, True)

    def test_what_is_hidden_is_not_used(self) -> None:
        assert self.vnni("Cascade Lake behind KVM")
        assert not self.vnni("Cascade Lake, AVX-512 hidden")
        assert not self.vnni("Cascade Lake, one bit of AVX-512 hidden")

    def test_there_must_be_some_for_the_widest_vectors(self) -> None:
        assert not self.vnni(HIDDEN_NAME, avx512vnni=False)
        assert not self.vnni("Cascade Lake behind KVM", avx512vl=False)
        assert not self.vnni("Zen 3 behind KVM")


OLD = canonical({"kind": "llvm", "mcpu": "rocketlake", "num-cores": 1})


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        *[("auto", True), ("llvm", True), ("cuda", False), (OLD, True)],
        ('{"num-cores": 1, "kind": "llvm", "mcpu": "rocketlake"}', True),
        ('{"kind": "llvm", "mcpu": "rocketlake"}', True),
        ('{"kind": "llvm", "mcpu": "rocketlake", "num-cores": 2}', False),
        ('{"kind": "llvm", "mcpu": "rocketlake", "mattr": ["+avx512fp16"]}', False),
        ('{"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 1}', False),
        ('{"kind": "llvm"}', False),
        ("nvidia/nvidia-h100", False),
    ],
)
def test_a_run_s_target_is_asked_for_where_nothing_else_is(asked: str, same: bool) -> None:
    assert asks_for(asked, OLD) == same
    assert asks_for(asked, canonical({**json.loads(OLD), "model": caches_text(SMALL)})) == same


@on_x86
def test_code_that_this_cpu_cannot_run_is_refused() -> None:
    zen3 = host("Zen 3 behind KVM")
    with pytest.raises(TunerError, match=r"rocketlake has avx512.*which this machine has not"):
        refuse_other_features(OLD, zen3)
    refuse_other_features('{"kind":"llvm","mcpu":"haswell"}', zen3)
    refuse_other_features('{"kind":"cuda"}', zen3)
    # A run of before, on a machine that hides what no compiler uses by itself.
    tiles = '{"kind":"llvm","mcpu":"sapphirerapids"}'
    refuse_other_features(tiles, host("Sapphire Rapids without its tiles"))


@on_x86
def test_candidates_are_taken_over_where_vectors_and_threads_are_the_same() -> None:
    new = target_of(host(HIDDEN_NAME, LARGE))
    assert takes_the_same(OLD, new)
    assert not takes_the_same(OLD, target_of(host("Haswell")))
    assert not takes_the_same(OLD, canonical({**json.loads(new), "num-cores": 2}))
    assert not takes_the_same(OLD, '{"kind":"cuda","arch":"sm_90"}')
