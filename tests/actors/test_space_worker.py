"""A space worker outlives what a user's functions do in it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from actors.space_worker import SpaceWorker
from spaces.design_space.declared.fit import fit
from tests.contracts.programs import gemm_task
from tuner.candidate import Draft, without_version
from tuner.task import SpaceSource

FILE = """
import os
import time

from tuner import space

def armed():
    return os.path.exists("ARMED")

def rows(sch, most):
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    sch.split(i, space.named("rows", sch.sample_perfect_tile(i, 2, most)))

fine = space.template(lambda sch: rows(sch, 16), name="fine")
hangs = space.template(
    lambda sch: rows(sch, 8), name="hangs", where=lambda rows: armed() and time.sleep(3600) or True
)
crashes = space.template(
    lambda sch: rows(sch, 4), name="crashes", where=lambda rows: armed() and os._exit(7) or True
)
SPACE = space.union(fine, hangs, crashes)
"""
FAKE = """
import os
import time

from tuner.measure import Evaluated

class Fake:
    def put_tasks(self, tasks): pass
    def evaluate(self, drafts):
        for draft in drafts:
            if draft.number == 2: time.sleep(3600)
            if draft.number == 3: os._exit(7)
        return [Evaluated(draft, error="fine") for draft in drafts]
"""


def test_of_a_batch_with_drafts_that_hang_or_crash_the_others_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake_evaluator.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with closing(SpaceWorker(log_dir=tmp_path, child="fake_evaluator:Fake")) as worker:
        drafts = [Draft("aa", number, number) for number in (1, 2, 3, 4)]
        answers = worker.evaluate(drafts, deadline_s=1.0)
    assert [answer.draft for answer in answers] == drafts
    first, hung, crashed, last = (answer.error for answer in answers)
    assert (first, last) == ("fine", "fine")
    assert "no answer within 1 s" in hung
    assert "exited with code 7" in crashed


@pytest.mark.tvm
@pytest.mark.slow
def test_a_function_that_hangs_or_crashes_costs_its_own_draft(tmp_path: Path) -> None:
    """Once the search is under way; what does so at its start is refused there."""
    armed = tmp_path / "armed"
    text = FILE.replace("ARMED", str(armed))
    bare, source = gemm_task(), SpaceSource("theirs.py", text, "SPACE")
    found = fit(source, [bare])
    assert found.error == ""
    armed.touch()
    task = replace(bare, space=replace(source, parts=found.parts[bare.key]))
    with closing(SpaceWorker(log_dir=tmp_path)) as worker:
        worker.put_tasks([task])
        worker.ready()
        drafts = [Draft(task.key, number, number) for number in (1, 2, 3)]
        first, crashed = worker.evaluate([drafts[0], drafts[2]], deadline_s=60.0)
        (hung,) = worker.evaluate([drafts[1]], deadline_s=2.0)
        (again,) = worker.evaluate([replace(drafts[0], seed=9)], deadline_s=60.0)
    for answer in (first, again):
        assert answer.candidate is not None
        assert without_version(answer.candidate.space) == "declared:fine"
    assert (hung.candidate, crashed.candidate) == (None, None)
    assert "no answer within 2 s" in hung.error
    assert "exited with code 7" in crashed.error
