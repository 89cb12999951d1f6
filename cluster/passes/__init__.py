"""Passes from IRModule to IRModule, which put schedules into a lowered module: `tuner.passes`."""

from __future__ import annotations

from cluster.passes.apply_best import ApplyBest
from cluster.passes.defaults import Defaults
from cluster.passes.extract import Extract
from cluster.passes.layouts import ChannelsLast, PackWeights
from cluster.passes.library_dispatch import LibraryDispatch
from cluster.passes.pinned import Pinned
from spaces.deploy.provenance import Origin, origins
from spaces.libraries.registration import register

__all__ = [
    "ApplyBest",
    "ChannelsLast",
    "Defaults",
    "Extract",
    "LibraryDispatch",
    "Origin",
    "PackWeights",
    "Pinned",
    "origins",
    "register",
]
