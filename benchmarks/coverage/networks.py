"""The networks of the table: random weights, small configurations where weights would be large."""

from __future__ import annotations

from functools import partial

from benchmarks.coverage.convolutions import CONVOLUTIONS
from benchmarks.coverage.images import IMAGES, UNSEEN, unet, with_batch, with_length
from benchmarks.coverage.made import Make
from benchmarks.coverage.sequences import SEQUENCES

STATIC: dict[str, Make] = IMAGES
"""Networks whose dimensions are all known."""

OPEN: dict[str, Make] = {
    **SEQUENCES,
    **{
        f"{name}, batch": partial(with_batch, STATIC[name])
        for name in ("resnet18", "mobilenet_v3_small", "transformer_encoder")
    },
    **{f"{name}, steps": partial(with_length, STATIC[name]) for name in ("lstm_both_ways", "gru")},
    "u-net, height and width": unet,
}
"""Networks with open dimensions."""

NETWORKS: dict[str, Make] = {**STATIC, **CONVOLUTIONS, **OPEN}
"""Those of the page."""

TIMED: dict[str, Make] = {**NETWORKS, **UNSEEN}
"""Those whose latencies are measured, see `benchmarks.coverage.latency`."""
