"""Padding before a convolution that the convolution can do itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spaces.frontends.onnx.simplifier.known_tensors import KnownTensors


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of a node that hold values, by name."""
    import onnx

    return {
        a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if not a.ref_attr_name
    }


def take_padding(convolution: Any, pad: Any, known: KnownTensors) -> bool:
    """Have a convolution do the padding before it, if that is with zeros along its own axes."""
    given, own = attributes_of(pad), attributes_of(convolution)
    automatic = own.get("auto_pad", b"NOTSET")
    if convolution.input[0] != pad.output[0] or automatic not in (b"NOTSET", b"VALID"):
        return False
    rank = _rank(convolution, own, known)
    around = None if rank is None else _padding(pad, given, known, rank)
    if around is None or rank is None or _is_filled(pad, given, known):
        return False
    axes = range(2, rank)
    beside = [around[place] for place in (0, 1, rank, rank + 1)]
    added = [around[axis] for axis in axes] + [around[axis + rank] for axis in axes]
    if any(beside) or min(added) < 0:
        return False
    before = own.get("pads", []) if automatic == b"NOTSET" else []
    pads = [new + old for new, old in zip(added, before or [0] * len(added), strict=True)]
    _set_pads(convolution, pads)
    convolution.input[0] = pad.input[0]
    return True


def _rank(convolution: Any, own: Mapping[str, Any], known: KnownTensors) -> int | None:
    """Of a convolution's operands; None where it says nothing of it."""
    weight = known.dims(convolution.input[1])
    if weight is not None:
        return len(weight)
    return len(own["kernel_shape"]) + 2 if "kernel_shape" in own else None


def _padding(
    pad: Any, given: Mapping[str, Any], known: KnownTensors, rank: int
) -> list[int] | None:
    """What is added before each axis, and then after each; None where that is not known."""
    if given.get("mode", b"constant") != b"constant":
        return None
    if len(pad.input) < 2:
        found = [*given.get("pads", given.get("paddings", ()))]
        return found if len(found) == 2 * rank else None
    pads, axes = known.array(pad.input[1]), np.arange(rank)
    if len(pad.input) > 3 and pad.input[3]:
        listed = known.array(pad.input[3])
        if listed is None:
            return None
        axes = listed.reshape(-1) % rank
    if pads is None or pads.size != 2 * axes.size or len({*axes.tolist()}) < axes.size:
        return None
    around = np.zeros((2, rank), dtype="int64")
    around[:, axes] = pads.reshape(2, -1)
    return [int(size) for size in around.flat]


def _is_filled(pad: Any, given: Mapping[str, Any], known: KnownTensors) -> bool:
    """Whether it writes anything but zeros, or what nobody knows."""
    if len(pad.input) < 3 or not pad.input[2]:
        return bool(given.get("value", 0.0) != 0)
    value = known.array(pad.input[2])
    return value is None or bool(np.any(value != 0))


def _set_pads(convolution: Any, pads: list[int]) -> None:
    import onnx

    kept = [a for a in convolution.attribute if a.name not in ("pads", "auto_pad")]
    del convolution.attribute[:]
    convolution.attribute.extend([*kept, onnx.helper.make_attribute("pads", pads)])
