"""Search strategies, stock's and ours, on the same spaces: what is spent, and when it ends.

Stock's replays spend all their trials, on repeats where nothing else is left; ours never repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spaces.testing.programs import TARGET
from tests.compatibility.worker_programs import stock
from tests.contracts.programs import BROKEN
from tuner.errors import UsageError
from tuner.layers import Layers
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.base import Search
from tuner.search.evolution import Evolution, EvolutionSettings
from tuner.search.random_search import RandomSearch
from tuner.source import Source
from tuner.task import SpaceSource, Task

pytestmark = [pytest.mark.tvm]

AT_A_TIME = 7
TEXT = """
from tuner import space

def wide(sch):  # hundreds of points
    for loop in sch.get_loops(sch.get_sblock("out")):
        sch.split(loop, sch.sample_perfect_tile(loop, 3, 64))

def narrow(sch):  # a point for each divisor of 16
    loop, _ = sch.get_loops(sch.get_sblock("out"))
    sch.split(loop, sch.sample_perfect_tile(loop, 2, 16))

def single(sch):  # one point
    loop, _ = sch.get_loops(sch.get_sblock("out"))
    sch.parallel(loop)

WIDE, NARROW, SINGLE = space.template(wide), space.template(narrow), space.manual(single)

class Refuses:
    def apply(self, schedule):
        return False
"""
DIVISORS = 5

STRATEGIES: dict[str, Callable[[Task, int], Search]] = {
    "ReplayTrace": lambda task, seed: RandomSearch(task, seed, patience=40),
    "ReplayFunc": lambda task, seed: RandomSearch(task, seed, anew=True, patience=40),
    "EvolutionarySearch": lambda task, seed: Evolution(
        task, seed, EvolutionSettings(pool_size=16, ready_size=8, patience=40)
    ),
}
"""Our counterparts of stock's classes, which give up sooner than usual."""
REPLAYS = ("ReplayTrace", "ReplayFunc")
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def program() -> Any:
    from tvm import te

    x = te.placeholder((16, 64), name="x")
    return te.create_prim_func([x, te.compute((16, 64), lambda i, j: x[i, j] * 2.0, name="out")])


@dataclass(frozen=True)
class Spent:
    """What a strategy proposed: the programs in order, and the size of each batch."""

    programs: tuple[str, ...]
    batches: tuple[int, ...] = ()


def by_stock(
    name: str, function: str, trials: int, *, refuse: bool = False, known: Any = None
) -> Spent:
    """What a strategy of stock's spends on the space of a function."""
    import tvm
    from tvm.ir.utils import derived_object

    from spaces.ir.schedules import code_hash
    from spaces.targets.target import parse_target
    from tuner.user_code.load import load

    ms = stock()

    @derived_object
    class Refuses(ms.postproc.PyPostproc):  # type: ignore[misc, name-defined]
        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, sch: Any) -> bool:
            return False

        def clone(self) -> Any:
            return Refuses()

    settings: dict[str, Any] = {}
    if name == "EvolutionarySearch":
        settings = {
            "population_size": 16,
            "init_measured_ratio": 0.2,
            "init_min_unmeasured": 8,
            "max_fail_count": 3,
            "genetic_num_iters": 2,
            "genetic_mutate_prob": 0.8,
            "genetic_max_fail_count": 5,
            "eps_greedy": 0.1,
        }
    generator = ms.space_generator.ScheduleFn(
        load(Source("theirs.py", TEXT, function)),
        sch_rules=[],
        postprocs=[Refuses()] if refuse else [],
        mutator_probs={ms.mutator.MutateTileSize(): 1.0},
    )
    context = ms.TuneContext(
        tvm.IRModule({"main": program()}),
        target=parse_target(TARGET),
        space_generator=generator,
        search_strategy=getattr(ms.search_strategy, name)(**settings),
        num_threads=1,
        rand_state=7,
    )
    strategy = context.search_strategy
    strategy.pre_tuning(
        trials,
        AT_A_TIME,
        generator.generate_design_space(context.mod),
        ms.database.MemoryDatabase() if known is None else known,
        ms.cost_model.RandomModel(seed=7),
    )
    programs: list[str] = []
    batches: list[int] = []
    while (candidates := strategy.generate_measure_candidates()) is not None:
        batches.append(len(candidates))
        programs += [code_hash(candidate.sch.mod) for candidate in candidates]
        timed = [ms.runner.RunnerResult([1e-3], None) for _ in candidates]
        strategy.notify_runner_results(candidates, timed)
    strategy.post_tuning()
    return Spent(tuple(programs), tuple(batches))


def by_us(
    name: str,
    function: str,
    trials: int,
    *,
    refuse: bool = False,
    known: list[Record] | None = None,
) -> Spent:
    """What our counterpart spends on the same space."""
    from spaces.design_space.declared.fit import fit
    from spaces.design_space.evaluate import Evaluator
    from spaces.lowering.extract_tasks import task_of

    bare = task_of(program(), TARGET, name="program")
    space = SpaceSource("theirs.py", TEXT, function.upper())
    task = replace(bare, space=replace(space, parts=fit(space, [bare]).parts[bare.key]))
    refuses = Source("theirs.py", TEXT, "Refuses")
    evaluator = Evaluator(layers=Layers(postprocs=(refuses,) if refuse else ()))
    evaluator.put_tasks([task])
    search = STRATEGIES[name](task, 7)
    search.observe([replace(r, trial=replace(r.trial, task_key=task.key)) for r in known or ()])
    codes: dict[str, str] = {}
    proposed: list[str] = []
    for _ in range(500):
        if search.exhausted or len(proposed) == trials:
            return Spent(tuple(codes[key] for key in proposed))
        answers = evaluator.evaluate(search.drafts(AT_A_TIME))
        codes |= {a.candidate.key: a.code_hash for a in answers if a.candidate}
        search.absorb(answers)
        chosen = search.propose(min(AT_A_TIME, trials - len(proposed)))
        proposed += [trial.candidate.key for trial in chosen]
        search.observe(timed(trial, codes[trial.candidate.key]) for trial in chosen)
    raise AssertionError("it never ended")


def timed(trial: Trial, code_hash: str = "") -> Record:
    return Record(trial, Measurement(Status.OK, (1e-3,)), code_hash=code_hash)


@every_strategy
def test_both_spend_exactly_the_trials_that_they_are_given(name: str) -> None:
    theirs, mine = by_stock(name, "wide", 20), by_us(name, "wide", 20)
    assert len(theirs.programs) == len(mine.programs) == 20
    assert len(set(mine.programs)) == 20, "no program twice"
    if name in REPLAYS:
        assert theirs.batches == (7, 7, 6)


@pytest.mark.parametrize("name", REPLAYS)
def test_in_a_small_space_stocks_replays_repeat_themselves_and_ours_end(name: str) -> None:
    theirs, mine = by_stock(name, "narrow", 20), by_us(name, "narrow", 20)
    assert len(theirs.programs) == 20
    assert len(mine.programs) == len(set(mine.programs)) == DIVISORS
    assert set(theirs.programs) <= set(mine.programs)


def test_in_a_small_space_both_evolutions_try_each_program_once_and_end() -> None:
    theirs = by_stock("EvolutionarySearch", "narrow", 20)
    mine = by_us("EvolutionarySearch", "narrow", 20)
    assert len(theirs.programs) == len(set(theirs.programs)) <= DIVISORS
    assert len(mine.programs) == len(set(mine.programs)) == DIVISORS
    assert set(theirs.programs) <= set(mine.programs)
    assert theirs.batches[-1] == 0, "stock asks in vain a few times"


def test_a_space_of_one_program_gives_one_trial_and_an_early_end() -> None:
    theirs = by_stock("EvolutionarySearch", "single", 20)
    assert len(theirs.programs) == 1
    for name in STRATEGIES:
        assert by_us(name, "single", 20).programs == theirs.programs


@every_strategy
def test_where_every_schedule_is_refused_nothing_is_proposed(name: str) -> None:
    if name != "ReplayFunc":  # it draws until a schedule is taken, and never ends
        assert by_stock(name, "wide", 20, refuse=True).programs == ()
    assert by_us(name, "wide", 20, refuse=True).programs == ()


def test_a_known_record_that_no_longer_fits_the_program_is_passed_over() -> None:
    import tvm
    from tvm.s_tir import meta_schedule as ms

    module = tvm.IRModule({"main": program()})
    database = ms.database.MemoryDatabase()
    database.commit_tuning_record(
        ms.database.TuningRecord(
            foreign_trace(),
            database.commit_workload(module),
            [1e-6],
            tvm.target.Target({"kind": "llvm", "num-cores": 1}),
            ms.arg_info.ArgInfo.from_prim_func(module["main"]),
        )
    )
    name = "EvolutionarySearch"
    assert len(by_stock(name, "wide", 10, known=database).programs) > 0
    broken = [replace(BROKEN, payload=BROKEN.payload + " " * n) for n in range(8)]
    known = [timed(Trial("", candidate)) for candidate in broken]
    assert len(by_us(name, "wide", 10, known=known).programs) == 10


def foreign_trace() -> Any:
    """The trace of a program whose block has another name."""
    import tvm
    from tvm import te

    x = te.placeholder((16, 64), name="x")
    other = te.create_prim_func([x, te.compute((16, 64), lambda i, j: x[i, j], name="other")])
    schedule = tvm.s_tir.Schedule(other)
    schedule.get_sblock("other")
    return schedule.trace


def test_what_is_no_strategy_is_told_by_its_type() -> None:
    from tvm.s_tir import meta_schedule as ms

    from tuner.user_code.contract import check

    with pytest.raises(TypeError, match="abstract"):
        ms.SearchStrategy()
    assert isinstance(ms.SearchStrategy.create("evolutionary"), ms.SearchStrategy)

    class Half:
        def drafts(self, n: int) -> list[Any]:
            return []

    with pytest.raises(UsageError, match="Half has no"):
        check(Half(), Search, "search strategy")
    for make in STRATEGIES.values():
        check(make(Task("key", "name", "module", TARGET), 1), Search, "search strategy")
