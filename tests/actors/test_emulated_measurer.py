"""A measurer of the emulated CUDA device: it keeps to what measurers keep to, and its times are a
model's."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from actors.builder import Builder
from actors.runner import Runner
from spaces.design_space.default_schedule import default_candidate
from spaces.targets import cuda
from spaces.targets.target import device_fingerprint, emulate_target, resolve_target
from spaces.testing import programs
from tests.actors.inline_measurer import InlineMeasurer
from tuner.measure import Measurer
from tuner.record import Provenance, Status, Trial
from tuner.task import Task
from tuner.testing import MeasurerContract

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

EMULATED = emulate_target('{"kind":"cuda","arch":"sm_80"}')
CUDA = resolve_target("cuda") if cuda.present() else ""


def measurer_of(target: str, tasks: Sequence[Task]) -> Measurer:
    """One builder and one runner of this process."""
    folder = Path(tempfile.mkdtemp())
    provenance = Provenance("inline", device_fingerprint(target), "this tvm")
    builder, runner = Builder(log_dir=folder), Runner(target=target, log_dir=folder, scratch=folder)
    return InlineMeasurer(tasks, builder, runner, provenance=provenance)


emulated_measurer = partial(measurer_of, EMULATED)


@pytest.mark.long
class TestEmulatedMeasurer(MeasurerContract):
    made = emulated_measurer
    target = EMULATED


@pytest.mark.gpu
class TestCudaMeasurer(MeasurerContract):
    """The same suite on a real device."""

    made = partial(measurer_of, CUDA)
    target = CUDA


def test_equal_kernels_have_equal_times_and_the_emulated_device_is_named() -> None:
    task = programs.task(EMULATED)
    trial = Trial(task.key, default_candidate(task))
    found = []
    for _ in range(2):
        with closing(emulated_measurer([task])) as measurer:
            measurer.submit([trial])
            (record,) = measurer.collect(120)
        assert record.measurement.status is Status.OK, record.measurement.error
        found.append(record)
    assert found[0].measurement.samples_s == found[1].measurement.samples_s
    assert {record.provenance.device for record in found} == {"emulated sm_80"}
