"""Which CPU to compile for, on machines that say what they are and on some that do not.

`x86-cpus.json` has what LLVM asks a processor for, what it believes of CPUs, and what machines
answer. The first machine's answers were recorded; those of the others are what their makers
document, less what hypervisors commonly hide.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spaces.targets.cpu_features import Processor, Reported, lacking, of_kernels, processor

DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data/x86-cpus.json").read_text())
ASKED = DATA["asked"].split()
LLVM = {cpu: frozenset(features.split()) for cpu, features in DATA["llvm"].items()}
INTEL = tuple(cpu for cpu in LLVM if cpu.endswith(("well", "lake", "avx512", "server", "rapids")))
AMD = tuple(cpu for cpu in LLVM if cpu.startswith("znver"))


TABLE = {
    "neoverse-n1": frozenset({"neon", "fp-armv8", "lse", "dotprod", "fullfp16", "aes"}),
    "neoverse-v1": frozenset({"neon", "fp-armv8", "lse", "dotprod", "bf16", "i8mm", "sve"}),
    "generic": frozenset({"neon", "fp-armv8"}),
}
"""Some of what LLVM believes of ARM's cores."""


def believed(cpu: str, more: tuple[str, ...]) -> frozenset[str]:
    added = {word[1:] for word in more}
    base = {"avx512f"} if any(word.startswith("avx512") for word in added) else set()
    return LLVM[cpu] | added | base


def reported(has: str) -> Reported:
    return {feature: feature in has.split() for feature in ASKED}


def found(machine: str) -> Processor:
    it = DATA["machines"][machine]
    others = AMD if it["vendor"] == "amd" else INTEL
    return processor(it["named"], reported(it["has"]), believed, others)


@pytest.mark.parametrize(
    ("machine", "cpu"),
    [
        ("Zen 3 behind KVM", "znver3"),
        ("Zen 4 behind KVM", "znver4"),
        ("Zen 5 behind KVM", "znver5"),
        ("Haswell", "haswell"),
        ("Cascade Lake behind KVM", "cascadelake"),
        ("Ice Lake behind KVM", "icelake-server"),
    ],
)
def test_a_name_that_fits_says_it_all(machine: str, cpu: str) -> None:
    # Memory protection keys, transactions and the like are hidden here and there.
    assert found(machine) == Processor(cpu)


def test_a_hidden_model_is_the_nearest_cpu_that_has_the_features() -> None:
    assert found("Sapphire Rapids that passes for a Rocket Lake") == Processor("sapphirerapids")
    assert found("Zen 4 that passes for a K8") == Processor("znver4")


def test_what_a_hypervisor_hides_is_switched_off() -> None:
    hidden = found("Cascade Lake, AVX-512 hidden")
    assert hidden.mcpu == "cascadelake"
    assert hidden.mattr == tuple(f"-avx512{part}" for part in ("bw", "cd", "dq", "f", "vl", "vnni"))
    tiles = found("Sapphire Rapids without its tiles")
    assert tiles == Processor("sapphirerapids", ("-amx-bf16", "-amx-int8", "-amx-tile"))


def test_what_builds_on_a_hidden_feature_goes_with_it() -> None:
    # LLVM drops it together with the base, as long as no later word brings it back.
    assert found("Cascade Lake, one bit of AVX-512 hidden").mattr == ("-avx512f",)
    inconsistent = reported(f"{DATA['llvm']['haswell']} avx512bw")
    assert processor("haswell", inconsistent, believed).mattr == ("+avx512bw", "-avx512f")


def test_what_llvm_does_not_know_of_a_cpu_is_added() -> None:
    assert found("Granite Rapids") == Processor("graniterapids", ("+amx-complex", "+avx10.1"))


def test_a_later_cpu_than_llvm_knows_is_the_nearest_with_more() -> None:
    later = reported(f"{DATA['llvm']['znver5']} avx512fp16")
    assert processor("znver5", later, believed, AMD) == Processor("znver5", ("+avx512fp16",))


class TestWhereFewFeaturesAreReported:
    """On ARM, what LLVM does not report may be there or not."""

    def arm(self, named: str, **has: bool) -> Processor:
        basic = {"neon": True, "fp-armv8": True, "lse": True, "aes": True}
        return processor(
            named, {**basic, **has}, lambda cpu, more: TABLE[cpu] | {word[1:] for word in more}
        )

    def test_a_known_core_is_taken_by_its_name(self) -> None:
        assert self.arm("neoverse-n1", sve=False) == Processor("neoverse-n1")
        assert self.arm("neoverse-v1", sve=True) == Processor("neoverse-v1")

    def test_vectors_that_the_system_does_not_save_are_off(self) -> None:
        assert self.arm("neoverse-v1", sve=False) == Processor("neoverse-v1", ("-sve",))

    def test_an_unknown_core_has_what_is_reported(self) -> None:
        assert self.arm("generic", sve=True) == Processor("generic", ("+lse", "+sve"))


def test_where_nothing_is_reported_the_name_is_all_there_is() -> None:
    assert processor("znver4", {}, believed, AMD) == Processor("znver4")


def test_code_for_a_cpu_lacks_what_another_does_not_have() -> None:
    zen3 = reported(DATA["machines"]["Zen 3 behind KVM"]["has"])
    assert lacking(LLVM["znver3"], zen3) == ()
    assert lacking(LLVM["haswell"], zen3) == ()
    assert "avx512f" in lacking(LLVM["znver4"], zen3)


def test_settings_of_the_system_make_no_other_cpu() -> None:
    plain = reported("avx avx2 fma")
    assert of_kernels(plain) == ("avx", "avx2", "fma")
    assert of_kernels({**plain, "pku": True, "shstk": True, "xsaves": True}) == of_kernels(plain)
