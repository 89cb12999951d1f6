"""The families of devices whose tensor cores take products in one way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from spaces.targets.gpu import COPIES_AHEAD, HOPPER, Gpu
from spaces.templates.families import Family
from spaces.templates.products.product import Product
from spaces.templates.products.template import Extents, ProductFamily
from spaces.templates.tensor_cores import ampere_knobs, costs, hopper_knobs
from spaces.templates.tensor_cores.ampere import write_ampere_product
from spaces.templates.tensor_cores.elements.single_fragments import LEAST_TERMS
from spaces.templates.tensor_cores.hopper import write_hopper_product
from spaces.templates.tensor_cores.tile import (
    BYTES,
    HALVES,
    ROUGH_OF_WARPGROUPS,
    ROUGH_OF_WARPS,
    SINGLES,
    TF32,
    WIDENED,
    Element,
    element_of,
)
from tuner.task import Instance


def _of_hopper(name: str, element: Element) -> ProductFamily:
    return Family(
        name,
        partial(hopper_knobs.choices_of, element),
        partial(hopper_knobs.tile_of, element),
        hopper_knobs.feasible,
        write_hopper_product,
        costs.estimate_cycles,
        costs.traits,
    )


def _of_ampere(name: str, element: Element) -> ProductFamily:
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
    _of_hopper("kernel:hopper-product-4", HALVES),
)
_BYTES = (
    _of_ampere("kernel:ampere-int8-product-1", BYTES),
    _of_hopper("kernel:hopper-int8-product-3", BYTES),
)
_SINGLES = _of_ampere("kernel:ampere-tf32x3-product-1", SINGLES)
_TF32 = (
    _of_ampere("kernel:ampere-tf32-product-1", TF32),
    _of_hopper("kernel:hopper-tf32-product-1", TF32),
)
_WIDENED = _of_ampere("kernel:ada-fp8-as-f16-product-1", WIDENED)
_ROUGH = (
    _of_ampere("kernel:ada-fp8-product-1", ROUGH_OF_WARPS),
    _of_hopper("kernel:hopper-fp8-product-2", ROUGH_OF_WARPGROUPS),
)
_CONVERTING = 89
"""The first architecture with conversions of floats of 8 bits (PTX ISA, "cvt")."""
_MULTIPLYING = (89, 120)
"""Those whose single warps multiply them as they are: for others the compiler makes halves of them,
for each product again."""
_ROUGH_SUMS = "bfloat16"
"""Sums that such products are exact enough for."""


def list_families(
    gpu: Gpu, product: Product, _extents: Mapping[Instance, Extents]
) -> list[ProductFamily]:
    """The family of a product on a device; empty where its tensor cores are older, or do not take
    it. Warpgroups multiply elements of other sizes than halves where the terms of both operands lie
    next to one another, and nowhere else (PTX ISA, "wgmma.mma_async": transposed operands)."""
    if gpu.architecture < COPIES_AHEAD or not _is_taken(gpu, product):
        return []
    element, is_hopper = element_of(product.kind), gpu.architecture == HOPPER
    of_warpgroups = is_hopper and not any(product.turned)
    if element is SINGLES:
        return [_TF32[of_warpgroups] if gpu.tf32 else _SINGLES]
    if element is BYTES:
        return [_BYTES[of_warpgroups]]
    if element is WIDENED:
        return _find_of_byte_floats(gpu, product)
    return [_HALVES[is_hopper]]


def _find_of_byte_floats(gpu: Gpu, product: Product) -> list[ProductFamily]:
    """The family of floats of 8 bits, see
    `spaces.templates.tensor_cores.elements.byte_float_fragments`."""
    if gpu.architecture < _CONVERTING:
        return []
    if product.sums == _ROUGH_SUMS:
        if gpu.architecture in _MULTIPLYING:
            return [_ROUGH[0]]
        if gpu.architecture == HOPPER and not any(product.turned):
            return [_ROUGH[1]]
    return [_WIDENED]


def _is_taken(gpu: Gpu, product: Product) -> bool:
    """Whether rows may lie as they do, which of all but floats of 8 bits and three products of TF32
    may be windows, and errors are within bounds, see
    `spaces.templates.tensor_cores.elements.single_fragments`."""
    if product.kind in WIDENED.names:
        return product.plain
    if product.kind not in SINGLES.names or gpu.tf32:
        return True
    known = not any(product.c.axes[axis].symbolic for axis in product.terms)
    return product.plain and known and bool(product.depth >= LEAST_TERMS)
