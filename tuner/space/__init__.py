"""Say what to search, in one Python file: schedules, templates, rules, and mixtures of them.

    from tuner import space

    @space.manual
    def by_hand(sch): ...            # one schedule

    @space.template
    def tiled(sch): ...              # draws its decisions with `sch.sample_*`

    @space.program(knobs={"tile": (8, 16, 32)})
    def written(program, tile): ...  # returns a program of its own

    @space.rule(blocks="matmul*")
    def keep_sums(sch, block): ...   # returns one schedule or several

    SPACE = space.union(by_hand, tiled, space.rules(keep_sums), space.ours())

`tuner tune MODEL --space FILE[:NAME]` searches what `NAME` stands for; without it, `SPACE`.
A space applies to the tasks whose names match its glob; the other tasks are tuned as ever. The file
runs on each machine that works for the run: it should do no more than define.
"""

from tuner.space.declare import (
    dlight,
    generator,
    manual,
    ours,
    program,
    rule,
    rules,
    template,
    union,
)
from tuner.space.sampling import named, peel, sample_tile

__all__ = [
    "dlight",
    "generator",
    "manual",
    "named",
    "ours",
    "peel",
    "program",
    "rule",
    "rules",
    "sample_tile",
    "template",
    "union",
]
