"""The house rules: who may import whom, proved by reading every import there is.

Imports inside functions and names given to `importlib` count as well: a dependency that is paid
late is a dependency all the same.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ORDER = ("tuner", "spaces", "actors", "cluster")
"""A package imports itself and those to its left."""

DOORS = {
    "tuner/__init__.py": {
        "cluster.app.api.tune",
        "cluster.app.passes",
        "cluster.app.driver.tune_result.TuneResult",
        "spaces.lowering.lower",
        "spaces.passes.pipeline",
        "spaces.frontends.shape_var.DynamicProgram",
        "spaces.frontends.shape_var.ShapeVar",
        "tuner.request",
    },
    "tuner/__main__.py": {"cluster.app.cli"},
    "tuner/testing/__init__.py": {
        f"spaces.testing.{suite}" for suite in ("library", "measurer", "scheduled")
    },
}
"""Where a user comes in from the left: the only exceptions, each with what it opens on."""

FORBIDDEN = {
    "tuner": {"tvm", "tvm_ffi", "ray", "onnx", "onnxruntime", "torch", "click", "rich"},
    "spaces": {"ray", "mlflow", "xgboost", "click", "rich"},
    "actors": {"mlflow", "xgboost", "click", "rich"},
    "cluster": {"mlflow", "xgboost"},
}
ONE_FILE = {("tuner", "xgboost"), ("tuner", "mlflow"), ("tuner", "fsspec"), ("actors", "ray")}
"""Libraries that only one file of a package may know."""

HEAVY = {
    *{"tvm", "tvm_ffi", "ray", "mlflow", "xgboost", "onnx", "onnxruntime", "torch"},
    *{"numpy", "scipy", "pandas", "sqlalchemy", "rich", "psutil", "fsspec"},
    *{"altair", "vl_convert", "jinja2"},
}
"""What must not be paid for by `tuner --help`."""


ROOMS = {
    "tuner": (
        "nouns",
        ("request", "process", "files", "dynamic", "user_code"),
        ("storage", "space"),
        ("cost_models", "runs", "view"),
        "search",
        ("session", "replay"),
        ("report", "tracking", "contracts"),
        "pages",
        "testing",
    ),
    "spaces": (
        ("ir", "intrinsics"),
        ("targets", "emulation"),
        ("check", "passes", "lowering"),
        ("templates", "codegen", "frontends", "libraries"),
        ("features", "import_check", "devices"),
        ("design_space", "precision"),
        ("deploy", "testing"),
    ),
    "actors": ("nouns",),
    "cluster": (
        "scaling",
        "ray_workers",
        "search",
        ("app/driver", "app/console"),
        ("app/tune", "app/passes"),
        ("app/api", "app/commands"),
        "app/cli",
    ),
}
"""The rooms of each package, from the ground up; those of one floor do not know of each other. The
modules of a package that are in no room are its nouns, which all of its rooms may use; of the
application's, each is a room by itself."""
APP = "app"
"""The folder of the application, which has rooms of its own."""
MOST_MODULES, LEAST_MODULES = 16, 2
"""In one folder."""
MOST_LINES = 400
"""In one file."""


@dataclass(frozen=True, order=True)
class Import:
    """A module that a file names in an import, and the line."""

    file: str
    line: int
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_of(root: Path, file: Path) -> Iterator[Import]:
    """Every import of a file, wherever in it, relative ones resolved."""
    where = file.relative_to(root).as_posix()
    package = file.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(where, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = [*package[: len(package) - node.level + 1], *base]
            for alias in node.names:
                yield Import(where, node.lineno, ".".join([*base, alias.name]))
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).rpartition(".")[2]
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield Import(where, node.lineno, str(first.value))


def all_imports(root: Path) -> list[Import]:
    """Every import of the four packages."""
    files = (file for name in ORDER for file in sorted((root / name).rglob("*.py")))
    return sorted(found for file in files for found in imports_of(root, file))


def is_door(found: Import) -> bool:
    opened = DOORS.get(found.file, set())
    return any(found.module == name or found.module.startswith(f"{name}.") for name in opened)


def to_the_right(found: list[Import]) -> list[Import]:
    """Imports of a package to the right of the importing one, the doors aside."""
    wrong = []
    for one in found:
        if one.top in ORDER and not is_door(one):
            own = one.file.partition("/")[0]
            if ORDER.index(one.top) > ORDER.index(own):
                wrong.append(one)
    return wrong


def forbidden(found: list[Import]) -> list[Import]:
    """Imports of a library that the package must not know."""
    return [one for one in found if one.top in FORBIDDEN[one.file.partition("/")[0]]]


def in_more_than_one_file(found: list[Import]) -> list[str]:
    """Libraries that more than one file of a package knows, where one is allowed."""
    files = defaultdict(set)
    for one in found:
        files[one.file.partition("/")[0], one.top].add(one.file)
    return [
        f"{library} in {sorted(files[package, library])}"
        for package, library in sorted(ONE_FILE)
        if len(files[package, library]) > 1
    ]


def cycle(root: Path, found: list[Import]) -> list[str]:
    """Modules that import each other in a circle, or none. Inits' lazy doors are not followed."""
    modules = {
        file.relative_to(root).with_suffix("").as_posix().replace("/", ".")
        for name in ORDER
        for file in (root / name).rglob("*.py")
    }
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for one in found:
        importer = one.file.removesuffix(".py").replace("/", ".")
        if is_door(one):
            continue
        # `from a.b import c` may name the module a.b.c, or something in a.b.
        for name in (one.module, one.module.rpartition(".")[0]):
            name = name if name in modules else f"{name}.__init__"
            if name in modules:
                if name != importer:
                    graph[importer].add(name)
                break
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(module) for module in error.args[1]]
    return []


def room_of(module: str) -> str:
    """The room of a module of a package that has rooms."""
    package, *inner = module.split(".")
    if inner[:1] == [APP]:
        return "/".join(inner[:2])
    return inner[0] if len(inner) > 1 and inner[0] in _floors(package) else "nouns"


def _floors(package: str) -> dict[str, int]:
    """The floor of each room."""
    return {
        room: floor
        for floor, rooms in enumerate(ROOMS[package])
        for room in ((rooms,) if isinstance(rooms, str) else rooms)
    }


def upstairs(found: list[Import]) -> list[Import]:
    """Imports of a room from one that is not above it, in the same package; the doors aside."""
    wrong = []
    for one in found:
        package = one.file.partition("/")[0]
        floors = _floors(package)
        own = room_of(one.file.removesuffix(".py").replace("/", "."))
        if one.top != package or own not in floors or is_door(one):
            continue
        other = room_of(one.module)
        if other != own and other in floors and floors[other] >= floors[own]:
            wrong.append(one)
    return wrong


@pytest.fixture(scope="module")
def found() -> list[Import]:
    imports = all_imports(ROOT)
    assert {one.file.partition("/")[0] for one in imports} == set(ORDER)
    return imports


def test_no_package_imports_one_to_its_right(found: list[Import]) -> None:
    assert [str(one) for one in to_the_right(found)] == []


def test_no_package_imports_a_library_that_is_not_its_own(found: list[Import]) -> None:
    assert [str(one) for one in forbidden(found)] == []


def test_some_libraries_are_known_to_one_file_only(found: list[Import]) -> None:
    assert in_more_than_one_file(found) == []


def test_ray_is_started_and_joined_in_one_file() -> None:
    """The one that keeps it on loopback; elsewhere Ray would take whatever address it likes."""
    files = [f for name in (*ORDER, "benchmarks", "examples") for f in (ROOT / name).rglob("*.py")]
    found = {
        file.relative_to(ROOT).as_posix()
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ray.init"
    }
    assert found == {"cluster/ray_workers/ray_cluster.py"}


def test_no_modules_import_each_other_in_a_circle(found: list[Import]) -> None:
    assert cycle(ROOT, found) == []


def test_no_room_imports_one_that_is_not_below_it(found: list[Import]) -> None:
    assert [str(one) for one in upstairs(found)] == []


@pytest.mark.parametrize("package", ORDER)
def test_each_folder_is_a_room_that_is_named_here(package: str) -> None:
    inside = [*(ROOT / package).iterdir(), *(ROOT / package).glob(f"{APP}/*")]
    folders = {
        folder.relative_to(ROOT / package).as_posix()
        for folder in inside
        if (folder / "__init__.py").exists()
    }
    assert folders - {APP} == _floors(package).keys() - {"nouns", f"{APP}/tune", f"{APP}/cli"}


@pytest.mark.parametrize("package", ["tuner", "spaces", "cluster"])
def test_the_map_has_the_rooms_in_the_order_of_their_floors(package: str) -> None:
    text = (ROOT / "docs" / "development" / "rooms.md").read_text()
    shown: dict[str, int] = {}
    floor = 0
    for number, name in re.findall(
        rf"^\| (\d*) ?\| `{package}/((?:{APP}/)?\w+)[/.]", text, re.MULTILINE
    ):
        floor = int(number or floor)
        shown[name] = floor
    first = 0 if package == "tuner" else 1  # the nouns are a floor, and no folder
    floors = {name: at + first for name, at in _floors(package).items() if name != "nouns"}
    assert [*shown.items()] == [*floors.items()]


def test_folders_are_neither_full_nor_nearly_empty() -> None:
    sizes = {
        folder.relative_to(ROOT).as_posix(): len([*folder.glob("[!_]*.py")])
        for name in ORDER
        for folder in (ROOT / name, *(ROOT / name).rglob("*"))
        if (folder / "__init__.py").exists()
    }
    assert len(sizes) > len(ORDER)
    assert {n: size for n, size in sizes.items() if size > MOST_MODULES} == {}
    within = {name: size for name, size in sizes.items() if name not in ORDER}
    assert {n: size for n, size in within.items() if size < LEAST_MODULES} == {}


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    lines = {
        file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8").count("\n")
        for name in ORDER
        for file in (ROOT / name).rglob("*.py")
    }
    assert max(lines.values()) > MOST_LINES / 2
    assert {file: n for file, n in lines.items() if n > MOST_LINES} == {}


def test_each_door_is_used(found: list[Import]) -> None:
    used = {(one.file, name) for one in found if is_door(one) for name in DOORS[one.file]}
    assert used == {(file, name) for file, names in DOORS.items() for name in names}


LISTENS = re.compile(
    r"\.listen\(|create_server|start_(unix_)?server|\b(socketserver|(http|xmlrpc)\.server)\b"
)


@pytest.mark.parametrize("package", ORDER)
def test_nothing_of_ours_opens_a_port(package: str) -> None:
    """What listens is Ray's, and kept on loopback elsewhere."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    assert [file for file in files if LISTENS.search(file.read_text())] == []


def test_importing_the_command_line_stays_light() -> None:
    program = "import sys, tuner, cluster.app.cli; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "cluster" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("package", ORDER)
def test_importing_a_package_loads_nothing_else(package: str) -> None:
    program = f"import sys, {package}; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & HEAVY == set()


# ---- and the proof that this finds what it looks for ----


def tree(root: Path, files: dict[str, str]) -> list[Import]:
    for name in ORDER:
        (root / name).mkdir()
        (root / name / "__init__.py").touch()
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
    return all_imports(root)


@pytest.mark.parametrize(
    "text",
    [
        "import cluster.app.tune",
        "from cluster.app import tune",
        "from cluster.app.tune import tune",
        "def f():\n    from actors import builder",
        "import importlib\nimportlib.import_module('spaces.lowering.lower')",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import spaces",
    ],
)
def test_an_import_to_the_right_is_found(text: str, tmp_path: Path) -> None:
    found = tree(tmp_path, {"tuner/a.py": text})
    assert len({one.line for one in to_the_right(found)}) == 1
    assert to_the_right(tree_elsewhere(tmp_path, text)) == []


def tree_elsewhere(tmp_path: Path, text: str) -> list[Import]:
    """The same text in the package that may import everything."""
    other = tmp_path / "other"
    other.mkdir()
    return tree(other, {"cluster/a.py": text})


@pytest.mark.parametrize(
    ("file", "text", "wrong"),
    [
        ("spaces/ir/a.py", "from spaces.passes import pipeline", True),
        ("spaces/check/a.py", "def f():\n    from spaces.passes.pipeline import g", True),
        ("tuner/task.py", "import tuner.storage.base", True),
        ("cluster/app/tune.py", "from cluster.app.commands.tune import run", True),
        ("spaces/passes/a.py", "from spaces.ir import rewrite", False),
        ("spaces/templates/few_rows/a.py", "from spaces.templates.contraction import shape", False),
        ("tuner/storage/base.py", "from tuner.task import Task", False),
    ],
)
def test_a_way_upstairs_is_found(file: str, text: str, wrong: bool, tmp_path: Path) -> None:
    assert len(upstairs(tree(tmp_path, {file: text}))) == wrong


def test_a_door_opens_on_one_thing_only(tmp_path: Path) -> None:
    text = "from cluster.app.api.tune import tune\nfrom cluster.scaling.pool import Pool\n"
    found = tree(tmp_path, {"tuner/__init__.py": text})
    assert [one.module for one in to_the_right(found)] == ["cluster.scaling.pool.Pool"]


def test_a_foreign_library_is_found(tmp_path: Path) -> None:
    found = tree(
        tmp_path, {"tuner/a.py": "def f():\n    import tvm.runtime", "spaces/a.py": "import ray"}
    )
    assert [one.file for one in forbidden(found)] == ["spaces/a.py", "tuner/a.py"]


def test_a_library_in_two_files_is_found(tmp_path: Path) -> None:
    found = tree(tmp_path, {"actors/a.py": "import ray", "actors/b.py": "from ray import get"})
    assert in_more_than_one_file(found) == ["ray in ['actors/a.py', 'actors/b.py']"]


def test_a_circle_is_found(tmp_path: Path) -> None:
    files = {
        "tuner/a.py": "from tuner import b",
        "tuner/b.py": "def f():\n    from .c import g",
        "tuner/c.py": "import tuner.a",
    }
    assert set(cycle(tmp_path, tree(tmp_path, files))) == {"tuner.a", "tuner.b", "tuner.c"}
