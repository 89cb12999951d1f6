"""Passes from IRModule to IRModule, which put schedules into a lowered module: `tuner.passes`."""

from __future__ import annotations

from cluster.app.passes.apply_best import ApplyBest
from cluster.app.passes.defaults import Defaults
from cluster.app.passes.extract import Extract
from cluster.app.passes.layouts import ChannelsLast, PackWeights
from cluster.app.passes.library_dispatch import LibraryDispatch
from cluster.app.passes.pinned import Pinned
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
