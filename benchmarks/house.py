"""How large and how regular the product's code is, in JSON.

    python -m benchmarks.house

`lines` counts files of Python, `code` those without comments, docstrings and blank lines; `telling`
are the rooms that only show what a run does. `participles` is the share of functions that are named
by a participle, which says what became of a thing instead of what is done. `row_classes` are the
classes that hold a latency of a task beside what names it. `circles` are modules that import each
other over any number of others, imports inside functions included.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tuner", "spaces", "actors", "cluster")
TELLING = (
    *("tuner/view", "tuner/report", "tuner/pages", "tuner/tracking"),
    *("cluster/app/console", "cluster/app/commands/results", "cluster/grafana"),
    *("cluster/app/driver/run_summaries.py", "cluster/ray_workers/grafana.py"),
)
_LATENCY = re.compile(r"^(\w*_)?(latency|best|default|before|after)_(s|ms|us)$")
_NAMES = {"name", "task", "key", "task_key", "claim", "before", "view"}
_REGULAR = re.compile(r"^\w{2,}[^e]ed$")
_IRREGULAR = (
    "begun bound broken brought built chosen cut done drawn driven fallen felt found given gone"
    " grown held kept known led left let lost made meant met paid put read run said seen sent set"
    " shown"
    " shut spent split stood sunk taken thought told torn undone understood won worn written"
)
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
_VERBS = {"read", "run", "put", "set", "cut", "let", "shut", "split", "bound"}
"""Participles that are the verb itself."""


def files(*places: str) -> Iterator[Path]:
    """The modules in some folders, or those modules."""
    for place in places:
        path = ROOT / place
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def count(*places: str) -> dict[str, int]:
    """Lines, and those of code and of docstrings."""
    lines = code = docstrings = 0
    for file in files(*places):
        text = file.read_text(encoding="utf-8")
        lines += text.count("\n")
        docs = _docstring_lines(ast.parse(text))
        docstrings += len(docs)
        of_code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in _NO_CODE:
                of_code |= set(range(token.start[0], token.end[0] + 1))
        code += len(of_code - docs)
    return {"lines": lines, "code": code, "docstrings": docstrings}


def _docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of strings that stand alone, as those after attributes do, too."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def participles() -> dict[str, Any]:
    """The number of functions, and the share of those that a participle names."""
    names = [
        node.name
        for file in files(*PACKAGES)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("__")
    ]
    named = [name for name in names if _is_participle(name)]
    return {"functions": len(names), "share": round(len(named) / len(names), 4)}


def _is_participle(name: str) -> bool:
    first = name.lstrip("_").partition("_")[0]
    if first in _VERBS:
        return False
    return first in _IRREGULAR.split() or bool(_REGULAR.match(first))


def row_classes() -> list[str]:
    """Classes that hold a latency of a task beside what names it."""
    found = []
    for file in files("tuner", "cluster", "actors"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                fields = {
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
                if fields & _NAMES and any(map(_LATENCY.match, fields)):
                    found.append(f"{file.relative_to(ROOT)}: {node.name}")
    return found


def methods(file: str, name: str) -> int:
    """The number of methods of a class."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return sum(isinstance(node, ast.FunctionDef) for node in found.body)


def circles() -> list[list[str]]:
    """Modules that import each other, each circle in the order of its names."""
    graph = _graph()
    reached = {module: _reach(graph, module) for module in graph}
    found = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }
    return [[*circle] for circle in sorted(found)]


def _graph() -> dict[str, set[str]]:
    """The modules that each module imports; a package stands for its `__init__`."""
    paths = {_module(file): file for file in files(*PACKAGES)}
    graph: dict[str, set[str]] = {}
    for module, file in paths.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {each if each in paths else node.module for each in inner}
        graph[module] = (named & paths.keys()) - {module}
    return graph


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _reach(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [*graph[start]]
    while todo:
        if (module := todo.pop()) not in seen:
            seen.add(module)
            todo += graph[module]
    return seen


def measure() -> dict[str, Any]:
    """The whole table."""
    rows = row_classes()
    return {
        "product": count(*PACKAGES),
        "telling": count(*TELLING),
        "row_classes": {"number": len(rows), "names": rows},
        "store_methods": methods("tuner/storage/base.py", "RecordStore"),
        "participles": participles(),
        "circles": circles(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
