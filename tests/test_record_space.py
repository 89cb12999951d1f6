"""Recording a space: what is kept of a recording that was killed, and what is drafted next."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.replay.record_space import agreement
from benchmarks.replay.recorder import Drawn, Journal
from tuner.record import Status
from tuner.replay.recording import Recording, Row
from tuner.task import Task

DRAWN = [
    Drawn(1, "", "key1", "code1", repeat=False),
    Drawn(2, "", "key2", "code1", repeat=True),
    Drawn(3, "", "", "", repeat=False),
    Drawn(4, "key1", "", "", repeat=False),
    Drawn(5, "key1", "key5", "code5", repeat=False),
]


def test_a_journal_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note(DRAWN[:3])
    journal.note(DRAWN[3:])
    journal.close()
    again = Journal(tmp_path)
    assert again.drawn == DRAWN
    assert again.number == 6
    assert again.codes() == {"code1", "code5"}
    assert again.refused() == (1, 1)
    again.close()


def test_a_line_that_a_kill_tore_is_dropped_and_the_next_is_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note(DRAWN[:2])
    journal.close()
    path = tmp_path / "drafts.jsonl"
    path.write_text(path.read_text() + '{"number": 3, "par')
    again = Journal(tmp_path)
    assert again.drawn == DRAWN[:2]
    again.note(DRAWN[2:])
    again.close()
    last = Journal(tmp_path)
    assert last.drawn == DRAWN
    last.close()


def test_agreement_is_of_the_first_two_timings() -> None:
    def recording(*seconds: tuple[float, float]) -> Recording:
        rows = [Row(str(n), "s", str(n), "", Status.OK, s, 0, 0) for n, s in enumerate(seconds)]
        vectors = np.zeros((len(rows), 1), dtype=np.float32)
        return Recording(Task("k", "k", "", ""), "", "", tuple(rows), vectors)

    never = (4.0, np.inf)
    assert agreement(recording((1.0, 2.0), (2.0, 4.0), (3.0, 6.0), never)) == 1.0
    assert agreement(recording((1.0, 3.0), (2.0, 2.0), (3.0, 1.0))) == 0.0
    assert np.isnan(agreement(recording(never)))
