"""Keeps a run's workers in step with the cluster: more where machines join, fewer as they leave."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from cluster.ray_workers.ray_measurer import RayMeasurer
from cluster.ray_workers.ray_space_pool import RaySpacePool
from cluster.scaling.scaling_policy import (
    Cluster,
    Demand,
    Growth,
    Reserve,
    WorkerCounts,
    amount,
    keeping_order,
    worker_counts,
)

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0


class ElasticPools:
    """The pools of a run, sized to the cluster and to the work that is left.

    Args:
        measurer: pools of builders and runners; None where a user's own measures.
        space_pool: pool of space workers.
        look: gives the cluster as it is now.
        demand: gives the resources that the run would use now.
        each_look: is called after each look.
    """

    def __init__(
        self,
        measurer: RayMeasurer | None,
        space_pool: RaySpacePool,
        *,
        look: Callable[[], Cluster],
        demand: Callable[[], Demand],
        each_look: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measurer, self._space_pool = measurer, space_pool
        self._look, self._demand, self._each_look = look, demand, each_look
        self._clock = clock
        self._looked_s = float("-inf")
        self._counts: WorkerCounts | None = None
        self._growth, self._reserve = Growth(), Reserve()

    def adapt(self) -> None:
        """Look at the cluster and resize the pools, if the last look is about a second ago."""
        now_s = self._clock()
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = now_s
        cluster, demand = self._look(), self._demand()
        devices = amount(cluster.nodes, demand.device)
        if self._counts is not None:
            self._growth.observe(devices, self._counts.runners, now_s)
        # Without a space worker there is nothing to build: builders in excess of the machines would
        # wait beside it for the next one, and take all of it.
        full = not self._space_pool.counts.ready or not self._growth.goes_on(now_s)
        cluster = replace(cluster, full=full)
        if self._measurer is not None:
            self._measurer.on_nodes(cluster.nodes)
        self._space_pool.on_nodes(cluster.nodes)
        fits = worker_counts(replace(cluster, grows=False), demand)
        wanted = self._reserve.keep(worker_counts(cluster, demand), fits, now_s)
        if wanted != self._counts:
            _log.info("%d machines: %s", len(cluster.nodes), wanted)
            self._counts = wanted
        order = keeping_order(cluster.nodes, demand, wanted.runners) if cluster.grows else ()
        self._space_pool.resize(wanted.space_workers, order)
        if self._measurer is not None:
            self._measurer.resize(wanted, order)
        self._each_look()
