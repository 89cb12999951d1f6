"""Layouts of a graph, and of its weights, each chosen in a pass of its own."""

from __future__ import annotations

from typing import Any

from tvm.ir.transform import module_pass

from cluster.app.passes.base import ModulePass
from spaces.codegen.prepack import pack_weights
from spaces.lowering.layouts.channels_last import channels_last


@module_pass(opt_level=0, name="ChannelsLast")
class ChannelsLast(ModulePass):
    """Runs convolutions and the operators between them channels-last (NHWC) where that pays, in a
    graph of operators, by what a CPU gains. `tuner.lower` has it among its passes."""

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        return channels_last(module)


@module_pass(opt_level=0, name="PackWeights")
class PackWeights(ModulePass):
    """Packs constant weights as the schedules of a lowered graph ask for it: once, not in each run.
    The last pass before the module is compiled."""

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        return pack_weights(module)
