"""The configurations of fleets as plain data, and KubeRay's schemas made strict, for tests."""

from __future__ import annotations

import json
import lzma
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "cluster" / "configs"
SCHEMAS = ROOT / "tests" / "data" / "kuberay-crds"

RAY_UP = ("aws-cpu", "aws-gpu", "gcp-gpu")
KUBERAY = ("kuberay-raycluster", "kuberay-rayjob")


def load(name: str) -> dict[str, Any]:
    """One configuration."""
    found = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert isinstance(found, dict)
    return found


def ray_cluster_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says of its cluster."""
    spec: dict[str, Any] = manifest["spec"]
    return spec.get("rayClusterSpec", spec)


def groups(name: str) -> list[dict[str, Any]]:
    """The head group and the worker groups of a manifest."""
    spec = ray_cluster_spec(load(name))
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def pin_of_ray() -> str:
    """The version of Ray that the project depends on."""
    found = [line for line in project()["dependencies"] if line.startswith("ray[")]
    assert len(found) == 1
    return str(found[0].partition("==")[2])


def project() -> dict[str, Any]:
    """The project's own table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def kuberay_schema(kind: str) -> dict[str, Any]:
    """What KubeRay accepts, unknown keys refused: `RayCluster` or `RayJob`."""
    text = lzma.decompress((SCHEMAS / f"{kind.lower()}s.json.xz").read_bytes())
    schema: dict[str, Any] = json.loads(text)
    schema["properties"]["metadata"] = {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {"name": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}},
    }
    return strict(schema)


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A Kubernetes schema as JSON Schema that refuses keys which it does not name."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = dict(schema)
    if "properties" in schema:
        made["properties"] = {name: strict(inner) for name, inner in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            made[key] = strict(schema[key])
    return made


def lenient_places(
    schema: Any, value: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Where in `value` a misspelt key would go unnoticed."""
    if isinstance(value, list):
        for item in value:
            yield from lenient_places(schema.get("items", {}), item, path)
    if not isinstance(value, dict):
        return
    if schema.get("additionalProperties") is not False:
        yield path
    for key, inner in value.items():
        known = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        yield from lenient_places(known if isinstance(known, dict) else {}, inner, (*path, key))
