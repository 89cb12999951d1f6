"""Powers of scores, and what they are divided by."""

from __future__ import annotations

import math
from typing import Any

from spaces.templates.attention.tensors import Tensors

_LOG2_E = math.log2(math.e)


def find_base(T: Any, most: Any) -> Any:
    """What is subtracted from scores: nothing in a row that has none yet."""
    return T.Select(most == find_lowest(T), T.float32(0), most)


def raise_e(T: Any, difference: Any) -> Any:
    """The power of e; scores themselves may be too large to be multiplied."""
    return T.exp2(difference * T.float32(_LOG2_E))


def invert(T: Any, tensors: Tensors, total: Any) -> Any:
    """What sums of values are multiplied by. Where there are no keys, the sum of none is zero."""
    none = total == 0 if tensors.is_safe else tensors.keys == 0
    return T.Select(none, T.float32(0), T.float32(1) / total)


def find_lowest(T: Any) -> Any:
    """The score of a key that a row does not look at."""
    return T.float32(-math.inf)
