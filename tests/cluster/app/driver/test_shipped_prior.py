"""What ships of templates' settings: which run begins with it, and what it says."""

from __future__ import annotations

import numpy as np
import pytest

from cluster.app.driver.warm_start import NONE, base_for, find_shipped
from spaces.design_space.task_space import TaskSpace
from spaces.lowering.extract_tasks import task_of
from tuner.candidate import Draft, form_of
from tuner.cost_models.pretrained import read_base_model
from tuner.cost_models.prior import load_priors
from tuner.cost_models.process import ESTIMATE_COLUMN
from tuner.request.options import SHIPPED
from tuner.search.pool.settings_pool import SettingsPool
from tuner.task import Task

pytestmark = pytest.mark.tvm

AVX512, AVX2, SSE = (
    f'{{"kind":"llvm","mcpu":"{cpu}","num-cores":2}}' for cpu in ("znver4", "haswell", "x86-64")
)
CUDA = '{"arch":"sm_90","kind":"cuda"}'


def softmax(target: str) -> Task:
    from tvm import te, topi

    data = te.placeholder((96, 300), name="data")
    return task_of(te.create_prim_func([data, topi.nn.softmax(data)]), target, name="softmax")


@pytest.mark.parametrize("target", [AVX512, AVX2])
def test_a_cpu_begins_with_what_ships_for_its_vectors(target: str) -> None:
    start = base_for(SHIPPED, target, None)
    assert start.name == SHIPPED
    assert start.model is None
    assert start.priors == read_base_model(find_shipped(target)).priors


@pytest.mark.parametrize("target", [SSE, CUDA])
def test_other_targets_begin_with_nothing(target: str) -> None:
    assert not base_for(SHIPPED, target, None).priors


def test_nobody_has_to_take_it() -> None:
    assert not base_for(NONE, AVX512, None).priors


@pytest.mark.parametrize("target", [AVX512, AVX2])
def test_it_is_of_templates_as_they_are_now_and_changes_their_order(target: str) -> None:
    """A new version of a template needs a new prior: `python -m benchmarks.prior`."""
    task, priors = softmax(target), load_priors(base_for(SHIPPED, target, None).priors)
    (settings,) = TaskSpace(task).settings(Draft(task.key, 1, 1, listing=True))
    assert form_of(settings.space) in priors
    analytic = settings.features[:, ESTIMATE_COLUMN].copy()
    pool = SettingsPool(priors)
    pool.add([settings])
    assert np.isfinite(pool.estimates_s).all()
    assert np.argsort(pool.estimates_s).tolist() != np.argsort(analytic).tolist()
