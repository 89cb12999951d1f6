"""The KubeRay manifests are what KubeRay's own schemas accept, down to the last key."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cluster.app.cli import cli
from tests.cluster.configs.fleet_configs import (
    KUBERAY,
    groups,
    kuberay_schema,
    lenient_places,
    load,
    ray_cluster_spec,
)

FREE = {"labels", "matchLabels", "nodeSelector", "limits", "requests", "rayStartParams"}
"""Maps whose keys are the user's own. `rayStartParams` are compared with `ray start` below."""


@cache
def validator(kind: str) -> Draft202012Validator:
    schema = kuberay_schema(kind)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def errors(manifest: dict[str, Any]) -> list[str]:
    found = validator(manifest["kind"]).iter_errors(manifest)
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]


@pytest.mark.parametrize("name", KUBERAY)
def test_a_manifest_is_accepted(name: str) -> None:
    manifest = load(name)
    assert manifest["apiVersion"] == "ray.io/v1"
    assert errors(manifest) == []


@pytest.mark.parametrize("name", KUBERAY)
def test_every_key_of_a_manifest_is_looked_at(name: str) -> None:
    manifest = load(name)
    schema = validator(manifest["kind"]).schema
    assert {path[-1] for path in lenient_places(schema, manifest)} <= FREE
    assert len(list(lenient_places({}, manifest))) > 50  # as many as there are without a schema


def first_group(spec: dict[str, Any]) -> dict[str, Any]:
    group: dict[str, Any] = spec["workerGroupSpecs"][0]
    return group


def container(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = first_group(spec)["template"]["spec"]["containers"][0]
    return found


def misspell(part: dict[str, Any], wrong: str, right: str) -> None:
    part[wrong] = part.pop(right)


MISTAKES: dict[str, Callable[[dict[str, Any]], object]] = {
    "'maxReplica' was unexpected": lambda s: misspell(first_group(s), "maxReplica", "maxReplicas"),
    "'template' is a required property": lambda s: first_group(s).pop("template"),
    "'groupName' is a required property": lambda s: first_group(s).pop("groupName"),
    "'v3' is not one of": lambda s: s["autoscalerOptions"].update(version="v3"),
    "'enableAutoscaling' was unexpected": lambda s: s.update(enableAutoscaling=True),
    "'tokens' is not one of": lambda s: s["authOptions"].update(mode="tokens"),
    "'2' is not of type 'integer'": lambda s: first_group(s).update(minReplicas="2"),
    "1 is not of type 'string'": lambda s: first_group(s)["rayStartParams"].update(resources=1),
    "1.5 is not of type 'integer', 'string'": lambda s: container(s)["resources"]["limits"].update(
        cpu=1.5
    ),
    "'limit' was unexpected": lambda s: misspell(container(s)["resources"], "limit", "limits"),
    "'envs' was unexpected": lambda s: misspell(container(s), "envs", "env"),
    "'toleration' was unexpected": lambda s: misspell(
        first_group(s)["template"]["spec"], "toleration", "tolerations"
    ),
}
"""What KubeRay would say, and what one has to write for it."""


@pytest.mark.parametrize("said", MISTAKES)
@pytest.mark.parametrize("name", KUBERAY)
def test_mistakes_are_found(name: str, said: str) -> None:
    manifest = load(name)
    MISTAKES[said](ray_cluster_spec(manifest))
    assert said in "\n".join(errors(manifest))


def test_who_may_reach_the_pods_is_written_as_kubernetes_wants_it() -> None:
    policy = load("kuberay-networkpolicy")
    spec = policy.pop("spec")
    assert policy == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "tuner"},
    }
    assert set(spec) == {"podSelector", "policyTypes", "ingress"}
    assert spec["policyTypes"] == ["Ingress"]
    # RayCluster has rules of the same form in it, so its schema has theirs.
    cluster = validator("RayCluster").schema["properties"]["spec"]["properties"]
    rules = cluster["networkPolicy"]["properties"]["head"]["properties"]["ingressRules"]
    assert list(Draft202012Validator(rules).iter_errors(spec["ingress"])) == []
    assert all(rule["from"] for rule in spec["ingress"])  # without it, everybody may
    for name in KUBERAY:
        for group in groups(name):
            labels = group["template"]["metadata"]["labels"]
            assert spec["podSelector"]["matchLabels"].items() <= labels.items()


def test_what_the_job_starts_is_a_command_of_ours() -> None:
    spec = load("kuberay-rayjob")["spec"]
    program, name, *arguments = shlex.split(spec["entrypoint"])
    assert program == "tuner"
    given = cli.commands[name].make_context(name, arguments).params
    assert given["time_budget_s"] < spec["activeDeadlineSeconds"], "it is to end in order"


@pytest.mark.parametrize("name", KUBERAY)
def test_what_is_mounted_is_there(name: str) -> None:
    for group in groups(name):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        volumes = [volume["name"] for volume in pod["volumes"]]
        mounts = [mount["name"] for mount in container["volumeMounts"]]
        assert sorted(mounts) == sorted(volumes)


@pytest.mark.ray
@pytest.mark.parametrize("name", KUBERAY)
def test_parameters_of_ray_start_exist(name: str) -> None:
    from ray.scripts.scripts import start

    for group in groups(name):
        arguments = [f"--{key}={value}" for key, value in group["rayStartParams"].items()]
        assert start.make_context("start", arguments)


@pytest.mark.ray
def test_the_environment_of_the_job_is_one_that_ray_accepts() -> None:
    from ray.runtime_env import RuntimeEnv

    text = load("kuberay-rayjob")["spec"]["runtimeEnvYAML"]
    assert RuntimeEnv(**yaml.safe_load(text))["env_vars"]
