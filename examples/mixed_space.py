"""One program searched in three styles at once: a schedule by hand, a template, and rules.

    python examples/mixed_space.py
    tuner tune examples/mixed_space.py:program --space examples/mixed_space.py

All compete under one budget, with what is known of such programs anyway (`space.ours`). At the end
it says which style won, and by how much.
"""

from __future__ import annotations

import argparse
from typing import Any

import tuner
from tuner import space


def program(m: int = 256, n: int = 192, k: int = 256) -> Any:
    """relu(A B), in float32: A is m by k, B is k by n."""
    from tvm import te, topi

    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="product")
    return te.create_prim_func([a, b, topi.nn.relu(product)])


def in_tiles(sch: Any, rows: Any, columns: Any) -> None:
    """Schedule the program in tiles that stay in registers.

    Args:
        rows, columns: how each is split into steps of tiles and those within a tile.
    """
    product, relu = sch.get_sblock("product"), sch.get_sblock("compute")
    i, j = sch.get_loops(relu)
    far_rows, near_rows = sch.split(i, rows)
    far_columns, near_columns = sch.split(j, columns)
    sch.reorder(far_rows, far_columns, near_rows, near_columns)
    sch.parallel(sch.fuse(far_rows, far_columns))
    sch.vectorize(near_columns)
    sch.compute_at(product, sch.get_loops(relu)[0])
    *_, i, j, r = sch.get_loops(product)
    sch.reorder(r, i, j)
    sch.unroll(i)
    sch.vectorize(j)
    sch.decompose_reduction(product, r)


@space.manual
def by_hand(sch: Any) -> None:
    """A schedule that someone has thought out: tiles of 8 rows by 32 columns."""
    in_tiles(sch, [None, 8], [None, 32])


@space.template
def tiles(sch: Any) -> None:
    """The same idea with its tile left open: its decisions are drawn."""
    rows, columns = sch.get_loops(sch.get_sblock("compute"))
    in_tiles(sch, sch.sample_perfect_tile(rows, 2, 16), sch.sample_perfect_tile(columns, 2, 64))


@space.rule(blocks="product")
def deep_steps(sch: Any, block: Any) -> list[Any]:
    """Two ways to go on for TVM's own rules: the sum as it is, or in steps of eight."""
    stepped = sch.copy()
    *_, r = stepped.get_loops(block)
    stepped.split(r, [None, 8])
    return [sch, stepped]


SPACE = space.union(by_hand, tiles, space.rules(deep_steps, name="rules"), space.ours())


def main() -> None:
    """Tune, and say which style won."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--run", help="the run folder; default: a new one under runs/")
    options = parser.parse_args()
    more = {"run": options.run} if options.run else {}
    result = tuner.tune(program(), space=SPACE, target="llvm", trials=options.trials, **more)
    ranked = sorted(result.spaces, key=lambda s: s["best_ms"] or float("inf"))
    best_ms = ranked[0]["best_ms"]
    for row in ranked:
        behind = "no time"
        if best_ms and row["best_ms"]:
            behind = f"{row['best_ms']:.4f} ms, {row['best_ms'] / best_ms:.2f}"
        print(f"{row['space']:32} {row['trials']:4} trials  {behind}")
    print(f"{ranked[0]['space']} won.")


if __name__ == "__main__":
    main()
