"""Similar tasks: what counts as one, and what a search is given to begin with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.measure import Evaluated
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.base import Search
from tuner.search.evolution import Evolution
from tuner.search.transfer import Seeds, gather, signature, similarity
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task

LLVM, CUDA = '{"kind":"llvm"}', '{"kind":"cuda"}'
GEMM = ("tirx.For", "tirx.For", "tirx.For", "tirx.BufferStore", "prim.Mul", "prim.Add")
SOFTMAX = ("tirx.For", "tirx.For", "tirx.BufferStore", "prim.Exp", "prim.Div", "prim.Max")


def chosen_by(search: Search, n: int) -> list[Candidate]:
    return [trial.candidate for trial in search.propose(n)]


def module(parts: Sequence[str], loops: Sequence[int]) -> str:
    """Nodes as TVM writes them: a loop names a constant, which names a number."""
    nodes: list[dict[str, object]] = [{"type": "None"}, {"type": "ffi.Map", "data": []}]
    extents = iter(loops)
    for part in parts:
        if part.endswith(".For"):
            nodes.append({"type": "int", "data": next(extents)})
            nodes.append({"type": "ir.IntImm", "data": {"value": len(nodes) - 1}})
            nodes.append({"type": part, "data": {"extent": len(nodes) - 1}})
        else:
            nodes.append({"type": part, "data": {}})
    return json.dumps({"root_index": 0, "nodes": nodes})


def task(key: str, parts: Sequence[str], loops: Sequence[int], target: str = LLVM) -> Task:
    return Task(key, key, module(parts, loops), target)


def alike(a: Task, b: Task) -> float:
    return similarity(signature(a.module), signature(b.module))


def candidate(name: str) -> Candidate:
    return Candidate(CandidateKind.TRACE, name, "test")


def store_of(tasks: Iterable[Task], latencies: dict[str, dict[str, float]]) -> MemoryStore:
    store = MemoryStore()
    store.put(Tasks(list(tasks)))
    for key, found in latencies.items():
        for name, seconds in found.items():
            trial = Trial(key, candidate(name))
            store.append_many([(Record(trial, Measurement(Status.OK, (seconds,))), None)])
    return store


BIG, SMALL = task("big", GEMM, (512, 512, 512)), task("small", GEMM, (64, 512, 128))
OTHER = task("soft", SOFTMAX, (512, 512))


class TestSimilarity:
    def test_a_task_is_most_like_itself(self) -> None:
        assert alike(BIG, BIG) == 1.0
        assert 0.5 < alike(BIG, SMALL) < 1.0
        assert alike(BIG, SMALL) == alike(SMALL, BIG)

    def test_sizes_that_are_nearer_are_more_alike(self) -> None:
        near = task("near", GEMM, (512, 512, 384))
        assert alike(BIG, near) > alike(BIG, SMALL)

    def test_other_programs_are_not_similar(self) -> None:
        assert alike(BIG, OTHER) < 0.5

    def test_loops_are_compared_by_their_lengths(self) -> None:
        assert signature(BIG.module).loops == (512, 512, 512)

    def test_what_is_no_module_is_like_nothing(self) -> None:
        for text in ("", "module", "[]", "{}", '{"nodes": [3]}', '{"nodes": [{"type": "a.For"}]}'):
            assert similarity(signature(text), signature(text)) == 0.0


class TestGather:
    def test_best_of_the_same_task_elsewhere_are_known(self) -> None:
        store = store_of([BIG], {"big": {f"c{n}": 1.0 + n for n in range(9)}})
        seeds = gather([BIG], None, [store]).seeds(BIG)
        assert seeds.known == tuple(candidate(f"c{n}") for n in range(4))
        assert seeds.parents == ()

    def test_best_of_similar_tasks_are_parents(self) -> None:
        store = store_of([SMALL, OTHER], {"small": {"s": 1.0}, "soft": {"x": 1.0}})
        seeds = gather([BIG], None, [store]).seeds(BIG)
        assert seeds == Seeds((), (candidate("s"),))

    def test_nearer_tasks_come_first(self) -> None:
        near = task("near", GEMM, (512, 512, 384))
        store = store_of([SMALL, near], {"small": {"s": 1.0}, "near": {"n": 1.0}})
        parents = gather([BIG], None, [store]).seeds(BIG).parents
        assert parents == (candidate("n"), candidate("s"))

    def test_its_own_run_has_parents_for_it_but_nothing_to_measure_again(self) -> None:
        own = store_of([BIG, SMALL], {"big": {"b": 1.0}, "small": {"s": 1.0}})
        assert gather([BIG, SMALL], own, []).seeds(BIG) == Seeds((), (candidate("s"),))

    def test_the_default_schedule_is_no_seed(self) -> None:
        store = store_of([BIG], {"big": {"default": 1.0, "c": 2.0}})
        store.put(Tasks([]), Defaults({"big": candidate("default").key}))
        assert gather([BIG], None, [store]).seeds(BIG).known == (candidate("c"),)

    def test_so_are_those_of_the_same_program_for_a_target_that_takes_them(self) -> None:
        old = task("old", GEMM, (512, 512, 512))
        known = gather([BIG], None, [store_of([old], {"old": {"c": 1.0}})])
        assert known.seeds(BIG, {"old"}) == Seeds((candidate("c"),), ())
        assert known.seeds(BIG) == Seeds((), (candidate("c"),))

    def test_another_kind_of_target_has_no_say(self) -> None:
        gpu = task("gpu", GEMM, (512, 512, 512), CUDA)
        store = store_of([gpu], {"gpu": {"g": 1.0}})
        assert gather([BIG], None, [store]).seeds(BIG) == Seeds()


class TestSearchWithSeeds:
    def evolution(self, **seeds: tuple[Candidate, ...]) -> Evolution:
        return Evolution(BIG, 3, seeds=Seeds(**seeds))

    def answer(self, draft: Draft) -> Evaluated:
        return Evaluated(draft, candidate(f"made {draft.number}"))

    def test_known_candidates_are_proposed_before_anything_was_drafted(self) -> None:
        search = self.evolution(known=(candidate("a"), candidate("b"), candidate("c")))
        assert chosen_by(search, 2) == [candidate("a"), candidate("b")]
        assert chosen_by(search, 2) == [candidate("c")]
        assert chosen_by(search, 2) == []

    def test_what_was_measured_here_is_not_proposed_again(self) -> None:
        search = self.evolution(known=(candidate("a"), candidate("b")))
        done = Measurement(Status.OK, (1.0,))
        search.observe([Record(Trial("big", candidate("a")), done)])
        assert chosen_by(search, 2) == [candidate("b")]

    def test_children_of_similar_tasks_best_are_drafted_until_enough_is_timed(self) -> None:
        foreign = candidate("foreign")
        search = self.evolution(parents=(foreign,))
        first = search.drafts(60)
        parents = Counter(d.parent for d in first)
        assert 15 < parents[foreign] < 45
        assert parents[foreign] + parents[None] == 60
        search.absorb([self.answer(d) for d in first])
        for proposed in chosen_by(search, 20):
            done = Measurement(Status.OK, (1.0,))
            search.observe([Record(Trial("big", proposed), done)])
        later = {d.parent for d in search.drafts(60)}
        assert foreign not in later

    def test_a_search_without_seeds_drafts_as_ever(self) -> None:
        assert Evolution(BIG, 3).drafts(40) == self.evolution().drafts(40)
