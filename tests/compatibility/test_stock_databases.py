"""Databases of stock MetaSchedule's and runs of ours, each read by both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner
from cluster.app.driver.export import export_database
from spaces.deploy.database import RECORDS, WORKLOADS
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import is_scheduled
from tests.compatibility.database_programs import (
    by_ours,
    by_rules,
    by_stock,
    by_template,
    commit,
    meta_schedule,
    module_of,
    program,
    python_database,
    right,
    run_of,
    same,
    stock_target,
    tiled,
    workload,
)
from tuner.candidate import Candidate
from tuner.task import Task

pytestmark = [pytest.mark.tvm]

NAMES = ("plain", "biased_relu")
KINDS = ("memory", "json")
EQUALITIES = ("structural", "ignore-tensor", "anchor-block")
SECONDS = [[3.0, 5.0], [], [0.5, 2.5], None, [2.0], [1.0, 1e10], [1e10]]
"""Of schedules of different widths: some ran, some failed, one at times."""
WIDTHS = (1, 2, 4, 8, 16, 32, 32)


@pytest.fixture(scope="module", params=[by_template, by_rules], ids=["template", "rules"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("run"), *NAMES, faster=request.param)


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "database"
    export_database(run, folder)
    return folder


@pytest.fixture(scope="module")
def opened(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A copy of the export, since stock writes down what it is asked for."""
    copy = shutil.copytree(exported, tmp_path_factory.mktemp("opened") / "database")
    return meta_schedule().database.JSONDatabase(work_dir=str(copy))


def made(kind: str, folder: Path, equality: str = "structural") -> Any:
    """An empty database of stock's."""
    database = meta_schedule().database
    if kind == "memory":
        return database.MemoryDatabase(module_equality=equality)
    return database.JSONDatabase(work_dir=str(folder), module_equality=equality)


def by_hand(width: int) -> Any:
    """The program that a record of `commit` stands for."""
    from tvm.s_tir import Schedule

    schedule = Schedule(workload())
    tiled(schedule, width)
    return schedule.mod["main"]


def winner(database: Any) -> Any:
    """The program that ours makes with a database, and where it says that it is from."""
    module = by_ours(module_of("plain"), database)
    return module["plain"], tuner.passes.origins(module)["plain"]


def test_an_export_has_the_files_of_a_new_stock_database(exported: Path, tmp_path: Path) -> None:
    made("json", tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert sorted(path.name for path in exported.iterdir()) == names == sorted([RECORDS, WORKLOADS])


def test_stock_knows_the_programs_of_an_export_and_no_others(opened: Any) -> None:
    assert [opened.has_workload(workload(name)) for name in NAMES] == [True, True]
    assert not opened.has_workload(workload("gated"))
    assert not opened.get_top_k(opened.commit_workload(workload("gated")), 3)
    assert opened.query_tuning_record(workload("gated"), stock_target(), "gated") is None


def test_what_no_database_has_neither_schedules(run: Path, exported: Path) -> None:
    module = module_of("gated")
    for done in (by_stock(module, exported), by_ours(module, exported), by_ours(module, run)):
        assert not is_scheduled(done["gated"])
        assert same(done["gated"], module["gated"])


@pytest.mark.parametrize("name", NAMES)
def test_stock_finds_the_winner_of_a_run_in_its_export(run: Path, opened: Any, name: str) -> None:
    known = opened.commit_workload(workload(name))
    (record,) = opened.get_top_k(known, 3)
    assert [float(s) for s in record.run_secs] == [0.001]
    assert json.loads(str(record.target)) == json.loads(str(stock_target()))
    ours = by_ours(module_of(name), run)[name]
    assert same(opened.query_ir_module(workload(name), stock_target(), name)["main"], ours)
    assert same(opened.query_schedule(workload(name), stock_target(), name).mod["main"], ours)
    asked = opened.query_tuning_record(workload(name), stock_target(), name)
    assert str(asked.trace) == str(record.trace)


def test_stock_and_ours_make_the_same_of_an_export(run: Path, exported: Path) -> None:
    module = module_of(*NAMES)
    stock = by_stock(module, exported)
    from_database, from_run = by_ours(module, exported), by_ours(module, run)
    for name in NAMES:
        assert is_scheduled(stock[name])
        assert not same(stock[name], module[name])
        assert same(stock[name], from_database[name])
        assert same(stock[name], from_run[name])
    right(stock)
    right(from_database)


def test_a_record_of_an_export_goes_through_stock_json_unchanged(opened: Any) -> None:
    for record in opened.get_all_tuning_records():
        again = type(record).from_json(record.as_json(), record.workload)
        assert str(again.trace) == str(record.trace)
        assert str(again.run_secs) == str(record.run_secs)
        assert str(again.target) == str(record.target)
        assert [i.as_json() for i in again.args_info] == [i.as_json() for i in record.args_info]


def test_records_have_the_argument_info_that_stock_gives(exported: Path, opened: Any) -> None:
    info = meta_schedule().arg_info
    written = [json.loads(line)[1][3] for line in (exported / RECORDS).read_text().splitlines()]
    records = opened.get_all_tuning_records()
    assert len(written) == len(records)
    for said, record in zip(written, records, strict=True):
        expected = info.ArgInfo.from_prim_func(record.workload.mod["main"])
        assert said == [["TENSOR", i.dtype, list(i.shape)] for i in expected]
        assert list(map(str, record.args_info)) == list(map(str, expected))
        assert [str(info.TensorInfo.from_json(i)) for i in said] == list(map(str, expected))
        assert [str(info.TensorInfo(i[1], i[2])) for i in said] == list(map(str, expected))


def test_the_default_schedule_as_a_winner_is_no_schedule_to_stock(tmp_path: Path) -> None:
    """A database keeps it as a record without instructions, which stock passes over."""

    def nobody(_task: Task) -> Candidate | None:
        return None

    run = run_of(tmp_path, "plain", faster=nobody)
    export_database(run, tmp_path / "database")
    module = module_of("plain")
    stock, ours = by_stock(module, tmp_path / "database"), by_ours(module, run)
    assert not is_scheduled(stock["plain"])
    assert tuner.passes.origins(ours)["plain"].how == "tuned"
    assert same(stock["plain"], ours["plain"])


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("best", range(4))
def test_ours_takes_what_stock_ranks_first(tmp_path: Path, kind: str, best: int) -> None:
    """Without the best few, which leaves the mean of what ran to decide, and failures out."""
    database = made(kind, tmp_path)
    order = (2, 4, 0, 5)
    for i, (width, seconds) in enumerate(zip(WIDTHS, SECONDS, strict=True)):
        if i not in order[:best]:
            commit(database, width, seconds)
    ranked = database.get_top_k(database.commit_workload(workload()), 5)
    assert [[float(s) for s in record.run_secs] for record in ranked] == [
        SECONDS[i] for i in order[best:]
    ]
    ours, _ = winner(database)
    assert same(ours, by_hand(WIDTHS[order[best]]))
    assert same(ours, database.query_ir_module(workload(), stock_target(), "plain")["main"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_database_of_failures_alone_has_no_winner_for_either(tmp_path: Path, kind: str) -> None:
    database = made(kind, tmp_path)
    for seconds in ([], None, [1e10]):
        commit(database, 8, seconds)
    assert database.query_tuning_record(workload(), stock_target(), "plain") is None
    assert winner(database)[1].how == "none"


def test_a_folder_that_stock_wrote_is_a_source_once_it_is_opened_again(tmp_path: Path) -> None:
    database = made("json", tmp_path)
    for width, seconds in ((4, [3.0]), (8, [1.0]), (16, [2.0])):
        commit(database, width, seconds)
    again = made("json", tmp_path)
    assert len(again) == 3
    (first, second) = again.get_top_k(again.commit_workload(workload()), 2)
    assert [float(r.run_secs[0]) for r in (first, second)] == [1.0, 2.0]
    ours, origin = winner(tmp_path)
    assert same(ours, by_hand(8))
    assert same(ours, by_stock(module_of("plain"), tmp_path)["plain"])
    assert (origin.source, origin.latency_s) == (str(tmp_path), 1.0)


@pytest.mark.parametrize(("union", "width"), [("UnionDatabase", 8), ("OrderedUnionDatabase", 4)])
def test_of_a_union_ours_takes_what_stock_takes(tmp_path: Path, union: str, width: int) -> None:
    """The fastest of all, or that of the first that has one."""
    empty, slow, fast = (made("memory", tmp_path) for _ in range(3))
    commit(slow, 4, [2.0])
    commit(fast, 8, [1.0])
    both = getattr(meta_schedule().database, union)(empty, slow, fast)
    record = both.query_tuning_record(workload(), stock_target(), "plain")
    ours, origin = winner(both)
    assert origin.latency_s == float(record.run_secs[0])
    assert same(ours, by_hand(width))
    assert same(ours, by_stock(module_of("plain"), both)["plain"])


def test_several_sources_of_ours_are_an_ordered_union(run: Path, tmp_path: Path) -> None:
    database = made("memory", tmp_path)
    commit(database, 8, [1e-9])
    export_database(run, tmp_path / "exported")
    exported = made("json", tmp_path / "exported")
    ordered, module = meta_schedule().database.OrderedUnionDatabase, module_of("plain")
    for ours, stock in (
        ((run, database), ordered(exported, database)),
        ((database, run), ordered(database, exported)),
    ):
        assert same(by_ours(module, *ours)["plain"], by_stock(module, stock)["plain"])


def test_a_schedule_function_is_a_source_of_both() -> None:
    def scheduled(schedule: Any) -> bool:
        if len(tvm_compat.stage_blocks(schedule)) > 1:
            return False
        tiled(schedule, 8)
        return True

    database = meta_schedule().database.ScheduleFnDatabase(scheduled)
    module = module_of(*NAMES)
    stock, ours = by_stock(module, database), by_ours(module, database)
    assert [is_scheduled(stock[name]) for name in NAMES] == [True, False]
    assert [is_scheduled(ours[name]) for name in NAMES] == [True, False]
    assert same(stock["plain"], ours["plain"])
    assert same(ours["plain"], by_hand(8))


@pytest.mark.parametrize(("rank", "width"), [(None, 8), (1, 4)], ids=["as stock", "second best"])
def test_a_database_in_python_is_asked_as_it_wants_to_be(
    tmp_path: Path, rank: int | None, width: int
) -> None:
    database = python_database(made("memory", tmp_path), rank)
    commit(database, 4, [2.0])
    commit(database, 8, [1.0])
    ours, origin = winner(database)
    for kind in ("record", "schedule", "ir_module"):
        asked = database.query(workload(), stock_target(), workload_name="plain", kind=kind)
        if kind == "record":
            assert float(asked.run_secs[0]) == origin.latency_s
        else:
            assert same((asked.mod if kind == "schedule" else asked)["main"], ours)
    assert same(ours, by_hand(width))


def test_stock_takes_the_database_in_scope_and_ours_the_ones_it_is_given(tmp_path: Path) -> None:
    current, given = made("memory", tmp_path), made("memory", tmp_path)
    commit(current, 4, [1.0])
    commit(given, 8, [1.0])
    module = module_of("plain")
    with current:
        assert meta_schedule().database.Database.current() == current
        assert same(by_ours(module, given)["plain"], by_hand(8))
    assert same(by_stock(module, current)["plain"], by_hand(4))


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("equality", EQUALITIES)
def test_databases_of_each_equality_give_both_the_very_program(
    tmp_path: Path, kind: str, equality: str
) -> None:
    database = made(kind, tmp_path, equality)
    commit(database, 8, [1.0])
    assert len(database) == 1
    ours, _ = winner(database)
    assert same(ours, by_hand(8))
    assert same(ours, by_stock(module_of("plain"), database)["plain"])


@pytest.mark.parametrize("equality", EQUALITIES[:2])
def test_databases_that_compare_whole_programs_give_neither_anything_for_another(
    tmp_path: Path, equality: str
) -> None:
    database = made("memory", tmp_path, equality)
    commit(database, 8, [1.0])
    for apply in (by_stock, by_ours):
        assert not is_scheduled(apply(module_of("relu"), database)["relu"])


def test_a_database_that_compares_anchors_gives_stock_a_right_program(tmp_path: Path) -> None:
    database = made("memory", tmp_path, "anchor-block")
    commit(database, 8, [1.0])
    stock = by_stock(module_of("relu"), database)
    assert is_scheduled(stock["relu"])
    right(stock)


def test_a_database_that_compares_anchors_gives_ours_a_right_program(tmp_path: Path) -> None:
    database = made("memory", tmp_path, "anchor-block")
    commit(database, 8, [1.0])
    right(by_ours(module_of("relu"), database))


def renamed() -> Any:
    """A program that is structurally the plain one, whose block is called something else."""
    from tvm import IRModule

    return IRModule({"plain": program("plain", block="renamed")})


@pytest.mark.each_value
@pytest.mark.parametrize("faster", [by_template, by_rules])
@pytest.mark.parametrize("source", ["run", "export"])
def test_what_blocks_are_called_does_not_matter_to_either(
    tmp_path: Path,
    faster: Callable[[Task], Candidate | None],
    source: str,
) -> None:
    run = run_of(tmp_path, "plain", faster=faster)
    export_database(run, tmp_path / "database")
    stock = by_stock(renamed(), tmp_path / "database")
    ours = by_ours(renamed(), run if source == "run" else tmp_path / "database")
    assert same(stock["plain"], ours["plain"])


def test_a_record_for_another_target_is_stock_s_to_take_and_not_ours(tmp_path: Path) -> None:
    """Stock leaves it to its user to keep targets apart; ours promises to."""
    database, stock = made("memory", tmp_path), meta_schedule().database
    commit(database, 8, [1.0])
    (record,) = database.get_all_tuning_records()
    elsewhere = stock.MemoryDatabase()
    gpu = stock_target('{"kind":"cuda","arch":"sm_80"}')
    known = elsewhere.commit_workload(workload())
    elsewhere.commit_tuning_record(stock.TuningRecord(record.trace, known, [1.0], gpu, None))
    assert is_scheduled(by_stock(module_of("plain"), elsewhere)["plain"])
    assert tuner.passes.origins(by_ours(module_of("plain"), elsewhere))["plain"].how == "none"
