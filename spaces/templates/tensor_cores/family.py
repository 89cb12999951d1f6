"""The families of devices whose tensor cores take products in one way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spaces.targets.gpu import Gpu
from spaces.templates.tensor_cores import ampere_knobs, hopper_knobs
from spaces.templates.tensor_cores.ampere import write_ampere_product
from spaces.templates.tensor_cores.hopper import write_hopper_product
from spaces.templates.tensor_cores.product import Product

_FIRST, _HOPPER = 80, 90
"""Architectures: from the first on there are copies beside the threads (PTX ISA, "cp.async")."""


@dataclass(frozen=True, slots=True)
class Family:
    """What differs from family to family.

    Attributes:
        name: of the space; it changes when `write` does.
        choices_of: gives the values of each knob.
        tile_of: gives the sizes of a setting, or of many.
        feasible: tells which keep to the limits of the hardware.
        write: gives the PrimFunc of a setting, for a number of multiprocessors.
    """

    name: str
    choices_of: Callable[[Product], Mapping[str, tuple[int, ...]]]
    tile_of: Callable[[Mapping[str, Any]], Any]
    feasible: Callable[[Product, Gpu, Any], Any]
    write: Callable[..., Any]


HOPPER = Family(
    "kernel:hopper-product-1",
    hopper_knobs.choices_of,
    hopper_knobs.tile_of,
    hopper_knobs.feasible,
    write_hopper_product,
)
AMPERE = Family(
    "kernel:ampere-product-1",
    ampere_knobs.choices_of,
    ampere_knobs.tile_of,
    ampere_knobs.feasible,
    write_ampere_product,
)


def family_of(gpu: Gpu) -> Family | None:
    """The family of a device; None where its tensor cores are older."""
    if gpu.architecture == _HOPPER:  # warpgroups multiply on no other
        return HOPPER
    return AMPERE if gpu.architecture >= _FIRST else None
