"""The families of devices whose tensor cores take products in one way."""

from __future__ import annotations

from functools import partial

from spaces.targets.gpu import COPIES_AHEAD, HOPPER, Gpu
from spaces.templates.products.family import Family
from spaces.templates.products.product import Product
from spaces.templates.tensor_cores import ampere_knobs, costs, hopper_knobs
from spaces.templates.tensor_cores.ampere import write_ampere_product
from spaces.templates.tensor_cores.hopper import write_hopper_product
from spaces.templates.tensor_cores.tile import BYTES, HALVES, SINGLES, Element, element_of


def _of_hopper(name: str, element: Element) -> Family:
    return Family(
        name,
        partial(hopper_knobs.choices_of, element),
        partial(hopper_knobs.tile_of, element),
        hopper_knobs.feasible,
        write_hopper_product,
        costs.estimate_cycles,
        costs.traits,
    )


def _of_ampere(name: str, element: Element) -> Family:
    return Family(
        name,
        ampere_knobs.choices_of,
        partial(ampere_knobs.tile_of, element),
        ampere_knobs.feasible,
        write_ampere_product,
        costs.estimate_cycles,
        costs.traits,
    )


_HALVES = (
    _of_ampere("kernel:ampere-product-2", HALVES),
    _of_hopper("kernel:hopper-product-2", HALVES),
)
_BYTES = (
    _of_ampere("kernel:ampere-int8-product-1", BYTES),
    _of_hopper("kernel:hopper-int8-product-1", BYTES),
)
_SINGLES = _of_ampere("kernel:ampere-tf32x3-product-1", SINGLES)


def has_tensor_cores(gpu: Gpu) -> bool:
    """Whether a device has a family; its tensor cores are older otherwise."""
    return gpu.architecture >= COPIES_AHEAD


def family_of(gpu: Gpu, product: Product) -> Family:
    """The family of a product on a device that has one. Warpgroups multiply bytes whose terms lie
    next to one another, and no others."""
    element, is_hopper = element_of(product.kind), gpu.architecture == HOPPER
    if element is SINGLES:
        return _SINGLES
    if element is BYTES:
        return _BYTES[is_hopper and not any(product.turned)]
    return _HALVES[is_hopper]
