"""What differs between the ways to write a product as a program for threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu
from spaces.templates.contraction.match import Match
from spaces.templates.products.product import Product


@dataclass(frozen=True, slots=True)
class Family:
    """One way to write a product. A tile is what follows from a setting, or from many as arrays.

    Attributes:
        name: of the space; it changes when `write` does.
        choices_of: gives the values of each knob.
        tile_of: gives the sizes of a setting, or of many.
        feasible: tells which keep to the limits of the hardware.
        write: gives the PrimFunc of a setting.
        cycles: estimates what a product takes.
        traits: gives features of settings for a cost model; the same columns for every product.
    """

    name: str
    choices_of: Callable[[Product], Mapping[str, tuple[int, ...]]]
    tile_of: Callable[[Mapping[str, Any]], Any]
    feasible: Callable[[Product, Gpu, Any], Any]
    write: Callable[[Match, Product, Any, Gpu], Any]
    cycles: Callable[[Product, Gpu, Any], Any]
    traits: Callable[[Product, Gpu, Any], npt.NDArray[np.float32]]
