"""Which mutants there are, and some of them by a seed: as many in each package.

A place is drawn first, then one of the changes that can be made there, so that an operator with
many replacements, as `+`, is no likelier than a comparison. Annotations are no places: nobody runs
them.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.mutant import PACKAGES, Mutant

_LEFT_OUT = {"VariableReplacer", "VariableInserter", "RemoveDecorator"}
"""The first two take arguments; the third mostly changes what is no longer a dataclass."""
_AROUND = 3

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Site:
    operator: str
    occurrence: int


def draw(root: Path, number: int, seed: int) -> Iterator[Mutant]:
    """So many mutants of a checkout."""
    stream = random.Random(seed)
    for index in range(number):
        package = PACKAGES[index % len(PACKAGES)]
        files = sorted((root / package).rglob("*.py"))
        yield _draw_one(root, files, stream)


def _draw_one(root: Path, files: Sequence[Path], stream: random.Random) -> Mutant:
    lengths = [file.read_text().count("\n") for file in files]
    while True:
        (file,) = stream.choices(files, lengths)
        source = file.read_text()
        sites = _sites(source)
        if not sites:
            continue
        place = stream.choice(sorted(sites))
        site = stream.choice(sites[place])
        if changed := _change(source, site):
            before, after = _cut(source, changed)
            if source.count(before) == 1:
                path = str(file.relative_to(root))
                return Mutant(path, site.operator, place[0], before, after)


def _sites(source: str) -> dict[Place, list[_Site]]:
    """By place what can be changed there."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    skipped = _annotations(ast.parse(source))
    nodes = list(ast_nodes(get_ast(source)))
    provider = OperatorProvider()
    sites: dict[Place, list[_Site]] = defaultdict(list)
    for name in sorted(set(provider) - _LEFT_OUT):
        operator = provider[name]()
        places = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, place in enumerate(places):
            if not any(first <= place < last for first, last in skipped):
                sites[place].append(_Site(name, occurrence))
    return sites


def _annotations(tree: ast.Module) -> list[tuple[Place, Place]]:
    """Where annotations begin and end."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(returns=ast.expr() as given)
                | ast.AsyncFunctionDef(returns=ast.expr() as given)
            ):
                found.append(given)
            case ast.arg(annotation=ast.expr() as given) | ast.AnnAssign(annotation=given):
                found.append(given)
    return [
        ((e.lineno, e.col_offset), (e.end_lineno or e.lineno, e.end_col_offset or 0)) for e in found
    ]


def _change(source: str, site: _Site) -> str | None:
    """The file with that change; None where it stays the same program, or is none."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    changed: str | None = mutate_code(source, OperatorProvider()[site.operator](), site.occurrence)
    if changed is None:
        return None
    try:
        same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source))
    except SyntaxError:
        return None
    return None if same else changed


def _cut(source: str, changed: str) -> tuple[str, str]:
    """The lines that differ with some around them, in both."""
    old, new = source.splitlines(keepends=True), changed.splitlines(keepends=True)
    head = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    both = zip(reversed(old[head:]), reversed(new[head:]), strict=False)
    tail = next(i for i, (a, b) in enumerate([*both, ("", "x")]) if a != b)
    first = max(0, head - _AROUND)
    last = min(len(old), len(old) - tail + _AROUND)
    return "".join(old[first:last]), "".join(new[first : last + len(new) - len(old)])
