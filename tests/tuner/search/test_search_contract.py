"""Our search strategies, and that of the example, keep to the contract."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tuner.candidate import Candidate
from tuner.measure import Evaluated
from tuner.search.evolution import Evolution
from tuner.search.registry import search_maker
from tuner.testing import StrategyContract
from tuner.testing.strategy import TASK, candidate, chosen_by, record
from tuner.user_code.find import find_layer
from tuner.user_code.load import load

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_strategy.py"


class TestEvolution(StrategyContract):
    made = staticmethod(Evolution)


class TestReplayOfTraces(StrategyContract):
    made = staticmethod(search_maker("random"))


class TestReplayOfFunctions(StrategyContract):
    made = staticmethod(search_maker("replay-function"))


class TestTheExamples(StrategyContract):
    made = load(find_layer(str(EXAMPLE), "strategy"))


@given(
    strategy=st.sampled_from(["evolution", "random"]),
    script=st.lists(st.integers(0, 60), max_size=60),
)
def test_any_interleaving_proposes_only_valid_candidates_once(
    strategy: str, script: list[int]
) -> None:
    search = Evolution(TASK, 1) if strategy == "evolution" else search_maker(strategy)(TASK, 1)
    valid: set[str] = set()
    proposed: list[Candidate] = []
    waiting: list[Evaluated] = []
    for step in script:
        for draft in search.drafts(step % 7):
            c = candidate((draft.seed + step) % 50)
            if step % 3:
                valid.add(c.key)
            waiting.append(Evaluated(draft, c if step % 3 else None, score=float(step)))
        answered, waiting = waiting[: step % 11], waiting[step % 11 :]
        search.absorb(answered)
        proposed += chosen_by(search, step % 3)
        if proposed and step % 2:
            search.observe([record(proposed[-1], 1e-3 * (1 + step) if step % 5 else None)])
    keys = [c.key for c in proposed]
    assert len(keys) == len(set(keys))
    assert set(keys) <= valid
