"""A schedule's constants become draws: factors of splits, and limits on unrolling."""

from __future__ import annotations

from typing import Any

from spaces.design_space.declared.constants import open_constants

OPEN = "None"
GET = ["GetLoops", ["b0"], [], ["l0", "l1"]]


def split(loop: str, *factors: int | str, outputs: list[str]) -> list[Any]:
    return ["Split", [loop, *factors], [1, 0], outputs]


def draws(instructions: list[Any]) -> dict[str, list[int]]:
    """The choices of each draw, by the name of its result."""
    return {
        outputs[0]: attributes[0]
        for kind, _, attributes, outputs in instructions
        if kind == "SampleCategorical"
    }


def test_each_factor_is_a_draw_that_gives_it_as_it_was() -> None:
    given = [GET, split("l0", OPEN, 6, 4, outputs=["l2", "l3", "l4"])]
    instructions, decisions = open_constants(given, [])
    six, four = draws(instructions).values()
    assert six == [3, 6, 12, 24]
    assert four == [1, 2, 4, 8, 16]
    assert instructions[-1][1] == ["l0", OPEN, *draws(instructions)]
    assert [(instructions[at][2][0][place]) for at, place in decisions] == [6, 4]


def test_draws_that_are_there_keep_their_decisions() -> None:
    tile = ["SamplePerfectTile", ["l0"], [2, 16], ["v0", "v1"]]
    given = [
        split("l1", OPEN, 4, outputs=["l2", "l3"]),
        tile,
        split("l0", "v0", "v1", outputs=["l4", "l5"]),
    ]
    instructions, decisions = open_constants([GET, *given], [[2, [8, 8]]])
    assert [instructions[at][0] for at, _ in decisions] == [
        "SampleCategorical",
        "SamplePerfectTile",
    ]
    assert decisions[1][1] == [8, 8]
    assert instructions[-1] == given[-1]


def test_all_loops_of_one_axis_of_threads_share_a_draw() -> None:
    given = [
        split("l0", OPEN, 16, outputs=["l2", "l3"]),
        ["Bind", ["l3"], ["threadIdx.x"], []],
        split("l1", OPEN, 16, 2, outputs=["l4", "l5", "l6"]),
        ["Bind", ["l5"], ["threadIdx.x"], []],
    ]
    instructions, _ = open_constants([GET, *given], [])
    splits = [i for i in instructions if i[0] == "Split"]
    assert splits[0][1][2] == splits[1][1][2]
    assert len(draws(instructions)) == 2


def test_a_gpus_vectors_are_not_made_longer_than_they_may_be() -> None:
    given = [split("l0", OPEN, 4, outputs=["l2", "l3"]), ["Vectorize", ["l3"], [], []]]
    instructions, _ = open_constants([GET, *given], [])
    assert [*draws(instructions).values()] == [[1, 2, 4, 8, 16]]
    threads = ["Bind", ["l2"], ["threadIdx.x"], []]
    instructions, _ = open_constants([GET, *given, threads], [])
    assert [*draws(instructions).values()] == [[1, 2, 4]]


def test_a_limit_on_unrolling_is_a_draw() -> None:
    given = ["Annotate", ["l0", 256], ["pragma_auto_unroll_max_step"], []]
    instructions, decisions = open_constants([GET, given], [])
    ((name, choices),) = draws(instructions).items()
    assert 0 in choices
    assert choices[decisions[0][1]] == 256
    assert instructions[-1][1] == ["l0", name]


def test_a_constant_without_a_choice_stays() -> None:
    given = [split("l0", OPEN, 6, 4, outputs=["l2", "l3", "l4"])]
    instructions, _ = open_constants([GET, *given], [], {0: [6], 1: [2, 4]})
    assert [*draws(instructions).values()] == [[2, 4]]
    assert instructions[-1][1][:3] == ["l0", OPEN, 6]


def test_the_product_of_factors_stays_the_extent() -> None:
    whole = split("l0", 2, 32, outputs=["l2", "l3"])
    instructions, _ = open_constants([GET, whole], [])
    assert instructions[-1][1][1] == OPEN
    bound = [whole, ["Bind", ["l2"], ["threadIdx.x"], []]]
    assert open_constants([GET, *bound], [])[0] == [GET, *bound]
