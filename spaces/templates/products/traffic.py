"""What a product in tiles moves between a device's memory and its L2 cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from spaces.targets.gpu import Gpu
from spaces.templates.gpu_rates import ceil
from spaces.templates.products.product import Product

_KEPT = 0.8
"""The share of the L2 cache that operands have."""


def count_moved(
    product: Product,
    gpu: Gpu,
    tiles: tuple[Any, Any],
    sizes: tuple[Any, Any],
    group: Any,
    swap: Any,
) -> Any:
    """Bytes of both operands and of the result.

    Args:
        tiles: of A, and of B; `sizes` are rows of one of each.
        group: tiles of A whose blocks follow one another.
        swap: whether A gives the result's columns.
    """
    c, items = product.c, [product.item_bytes(operand) for operand in range(2)]
    own = [product.elements(operand) * items[operand] for operand in range(2)]
    results = product.extent(c.rows_of) * product.extent(c.columns_of) * product.batch_extent
    result = results * product.out_bits / 8
    once = 1.0 * sum(own) + result
    # Windows share elements, so that tiles read fewer than rows by terms.
    whole = [product.count_read(o) * items[o] for o in range(2)]
    shares = [of / np.maximum(all_of, 1) for of, all_of in zip(own, whole, strict=True)]
    each = [share * item for share, item in zip(shares, items, strict=True)]
    of_a, of_b = (
        np.where(swap, each[yes], each[no])
        for yes, no in ((c.columns_of, c.rows_of), (c.rows_of, c.columns_of))
    )
    # Tiles at the same time: so many of A by so many of B, each of which is read once for them.
    together = np.minimum(gpu.multiprocessors, tiles[0] * tiles[1])
    down = np.minimum(group, tiles[0])
    across = np.minimum(ceil(together, down), tiles[1])
    # Tiles of rows share those of columns as far as they look up the same matrix.
    row_tiles = np.where(swap, tiles[1], tiles[0])
    apart = np.maximum(np.where(swap, across, down) * product.matrices / row_tiles, 1.0)
    of_a, of_b = of_a * np.where(swap, apart, 1.0), of_b * np.where(swap, 1.0, apart)
    read = (down * sizes[0] * of_a + across * sizes[1] * of_b) * product.depth
    turns = tiles[0] * tiles[1] * product.batch_extent / (down * across)
    return np.where(
        once <= _KEPT * gpu.numbers.l2_bytes, once, np.maximum(once, result + turns * read)
    )
