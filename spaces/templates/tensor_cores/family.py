"""The families of devices whose tensor cores take products in one way."""

from __future__ import annotations

from spaces.targets.gpu import COPIES_AHEAD, HAS_WARPGROUPS, Gpu
from spaces.templates.products.family import Family
from spaces.templates.tensor_cores import ampere_knobs, costs, hopper_knobs
from spaces.templates.tensor_cores.ampere import write_ampere_product
from spaces.templates.tensor_cores.hopper import write_hopper_product

HOPPER = Family(
    "kernel:hopper-product-2",
    hopper_knobs.choices_of,
    hopper_knobs.tile_of,
    hopper_knobs.feasible,
    write_hopper_product,
    costs.estimate_cycles,
    costs.traits,
)
AMPERE = Family(
    "kernel:ampere-product-2",
    ampere_knobs.choices_of,
    ampere_knobs.tile_of,
    ampere_knobs.feasible,
    write_ampere_product,
    costs.estimate_cycles,
    costs.traits,
)


def family_of(gpu: Gpu) -> Family | None:
    """The family of a device; None where its tensor cores are older."""
    if gpu.architecture == HAS_WARPGROUPS:
        return HOPPER
    return AMPERE if gpu.architecture >= COPIES_AHEAD else None
