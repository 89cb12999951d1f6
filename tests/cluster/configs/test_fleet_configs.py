"""What the configurations of fleets say fits what the program asks for, and each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cluster.ray_workers.loopback import LOOPBACK
from cluster.ray_workers.ray_cluster import ENVIRONMENT
from tests.cluster.configs.fleet_configs import (
    FOLDER,
    KUBERAY,
    RAY_UP,
    ROOT,
    groups,
    load,
    pin_of_ray,
    project,
    ray_cluster_spec,
)
from tuner.request.target_text import TARGET_KINDS

MACHINES = {
    "m7i.2xlarge": (8, 0),
    "c7i.4xlarge": (16, 0),
    "g6.2xlarge": (8, 1),
    "n2-standard-8": (8, 0),
    "n2-highcpu-16": (16, 0),
    "g2-standard-8": (8, 1),
}
"""CPUs and GPUs of the machine types that are named, as their clouds list them."""

KERNELS_FOR = {
    "aws-cpu": {"llvm"},
    "aws-gpu": {"cuda"},
    "gcp-gpu": {"cuda"},
    "kuberay-raycluster": {"cuda", "llvm"},
    "kuberay-rayjob": {"cuda"},
}
"""What each fleet is for."""

RAYS_PORTS = {6379, 8076, 8080, 8265}
"""GCS, object manager, metrics, dashboard."""


@dataclass(frozen=True)
class Node:
    """A node type of a fleet, wherever it is written down."""

    name: str
    is_head: bool
    resources: dict[str, float]
    environment: dict[str, str]


def ray_up_nodes(name: str) -> Iterator[Node]:
    config = load(name)
    options = config["docker"]["run_options"]
    environment = dict(o.removeprefix("--env ").split("=") for o in options if "--env" in o)
    for kind, node in config["available_node_types"].items():
        head = kind == config["head_node_type"]
        yield Node(kind, head, node["resources"], environment)


def kuberay_nodes(name: str) -> Iterator[Node]:
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _get_ray_resources_from_group_spec as resources_of,
    )

    auth = ray_cluster_spec(load(name))["authOptions"]
    for group in groups(name):
        head = "groupName" not in group
        (container,) = group["template"]["spec"]["containers"]
        environment = {e["name"]: e["value"] for e in container["env"]}
        environment["RAY_AUTH_MODE"] = auth["mode"]  # set by the operator
        resources = resources_of(group, head)
        yield Node(group.get("groupName", "head"), head, resources, environment)


def nodes(name: str) -> list[Node]:
    return list(kuberay_nodes(name) if name in KUBERAY else ray_up_nodes(name))


EVERY = pytest.mark.parametrize("name", [*RAY_UP, *KUBERAY])


def test_every_configuration_is_looked_at() -> None:
    named = {*RAY_UP, *KUBERAY, "kuberay-networkpolicy"}
    assert {path.stem for path in FOLDER.glob("*.yaml")} == named


# ---- versions ----


def test_the_image_is_built_on_the_pinned_ray() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    assert re.findall(r"^ARG RAY_VERSION=(.+)$", text, re.MULTILINE) == [pin_of_ray()]
    assert re.findall(r"^FROM (.+)$", text, re.MULTILINE) == ["rayproject/ray:${RAY_VERSION}-py311"]
    for source in re.findall(r"^COPY --chown=1000 (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / path).exists() for path in source.split())


@EVERY
def test_all_nodes_run_one_image_of_the_pinned_ray(name: str) -> None:
    tag = f"registry.example.com/elastic-tuner:{project()['version']}-ray{pin_of_ray()}"
    text = (FOLDER / f"{name}.yaml").read_text()
    assert set(re.findall(r"image: (\S+)", text)) == {tag}
    if name in KUBERAY:
        assert ray_cluster_spec(load(name))["rayVersion"] == pin_of_ray()


# ---- resources ----


def needs_of_a_runner(kind: str) -> dict[str, float]:
    """What the search asks for when it starts a runner, as a cluster's resources are named."""
    from cluster.scaling.scaling_policy import Cluster, Node
    from cluster.search.wiring import _runner_needs
    from spaces.targets.backends import MEASURE, backend

    cluster = Cluster([Node("a", {MEASURE: 1.0})])
    return as_resources({**defaults_of("runner"), **_runner_needs(backend(kind), cluster)})


def defaults_of(kind: str) -> dict[str, Any]:
    from actors.ray_actors import actor_class

    options: dict[str, Any] = actor_class(kind)._default_options
    return options


def as_resources(options: dict[str, Any]) -> dict[str, float]:
    asked = {"CPU": options.get("num_cpus", 1), "GPU": options.get("num_gpus", 0)}
    return {**asked, **options.get("resources", {})}


def takes(node: Node, needs: dict[str, float]) -> bool:
    return all(node.resources.get(name, 0) >= amount for name, amount in needs.items())


@pytest.mark.ray
@EVERY
def test_there_is_a_node_for_each_actor(name: str) -> None:
    workers = [node for node in nodes(name) if not node.is_head]
    for kind in ("space", "builder"):
        assert any(takes(node, as_resources(defaults_of(kind))) for node in workers)
    for target in KERNELS_FOR[name]:
        needs = needs_of_a_runner(target)
        assert any(takes(node, needs) for node in workers)


@pytest.mark.ray
@EVERY
def test_the_head_has_nothing_to_give(name: str) -> None:
    (head,) = (node for node in nodes(name) if node.is_head)
    assert head.resources["CPU"] == 0
    assert not takes(head, as_resources(defaults_of("space")))
    assert not takes(head, as_resources(defaults_of("builder")))
    for kind in TARGET_KINDS:
        assert not takes(head, needs_of_a_runner(kind))


@pytest.mark.ray
@EVERY
def test_nothing_runs_beside_a_kernel_that_is_timed(name: str) -> None:
    """One kernel at a time on a node; builders only where kernels run on a GPU."""
    from spaces.targets.backends import MEASURE

    for node in nodes(name):
        assert node.resources.get(MEASURE, 0) in (0, 1)
        if node.resources.get("GPU", 0):
            assert node.resources["GPU"] == node.resources[MEASURE] == 1
        elif node.resources.get(MEASURE):
            assert node.resources["CPU"] == 0


@pytest.mark.parametrize("name", RAY_UP)
def test_no_node_promises_more_than_its_machine_has(name: str) -> None:
    for node in load(name)["available_node_types"].values():
        config, resources = node["node_config"], node["resources"]
        cpus, gpus = MACHINES[config.get("InstanceType") or config["machineType"]]
        assert resources.get("CPU", 0) <= cpus
        assert resources.get("GPU", 0) == gpus
        cores = config.get("CpuOptions", {"CoreCount": cpus, "ThreadsPerCore": 1})
        assert cores["CoreCount"] * cores["ThreadsPerCore"] <= cpus


@pytest.mark.parametrize("name", KUBERAY)
def test_a_pod_promises_what_it_is_guaranteed(name: str) -> None:
    for group in groups(name):
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        promised = group["rayStartParams"].get("num-cpus", "0")
        assert int(promised) <= int(container["resources"]["limits"]["cpu"])
        store = int(group["rayStartParams"]["object-store-memory"])
        (shm,) = (v for v in group["template"]["spec"]["volumes"] if v["name"] == "shm")
        assert store <= int(shm["emptyDir"]["sizeLimit"].removesuffix("Gi")) << 30


@pytest.mark.parametrize("name", KUBERAY)
def test_pods_scale_from_nothing_and_go_where_they_may(name: str) -> None:
    spec = ray_cluster_spec(load(name))
    assert spec["enableInTreeAutoscaling"]
    assert spec["autoscalerOptions"]["version"] == "v2"
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] == group["replicas"] == 0 < group["maxReplicas"]
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        tolerated = {t["key"] for t in pod["tolerations"]}
        assert {"cloud.google.com/gke-spot"} <= tolerated & set(pod["nodeSelector"])
        if "nvidia.com/gpu" in container["resources"]["limits"]:
            assert "nvidia.com/gpu" in tolerated
            assert "cloud.google.com/gke-accelerator" in pod["nodeSelector"]


# ---- environment and ports ----


@pytest.mark.ray
@EVERY
def test_every_node_has_the_environment_that_ours_have(name: str) -> None:
    for node in nodes(name):
        assert ENVIRONMENT.items() <= node.environment.items()
        assert node.environment["RAY_AUTH_MODE"] == "token"
        # It would keep the node to itself: it is for clusters of one machine.
        assert not set(LOOPBACK) & set(node.environment)


@pytest.mark.ray
@EVERY
def test_a_run_that_is_stopped_has_the_time_it_needs(name: str) -> None:
    from cluster.search.client import END_GRACE_S

    for node in nodes(name):
        assert float(node.environment["RAY_JOB_STOP_WAIT_TIME_S"]) > END_GRACE_S


def test_a_job_has_the_time_whatever_its_head_says() -> None:
    from cluster.search.client import END_GRACE_S

    text = load("kuberay-rayjob")["spec"]["runtimeEnvYAML"]
    (seconds,) = re.findall(r'RAY_JOB_STOP_WAIT_TIME_S: "(\d+)"', text)
    assert float(seconds) > END_GRACE_S


@pytest.mark.ray
@pytest.mark.parametrize("name", KUBERAY)
def test_a_pod_is_not_killed_before_it_has_drained(name: str) -> None:
    for group, node in zip(groups(name), nodes(name), strict=True):
        drain_s = float(node.environment["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert group["template"]["spec"]["terminationGracePeriodSeconds"] > drain_s


@pytest.mark.parametrize("name", RAY_UP)
def test_no_port_is_opened_but_rays_own(name: str) -> None:
    config = load(name)
    assert "security_group" not in config["provider"]
    for which in ("head", "worker"):
        command = config[f"{which}_start_ray_commands"][1]
        assert {int(p) for p in re.findall(r"-port=(\d+)", command)} <= RAYS_PORTS
        assert "0.0.0.0" not in command
    assert not any("-p " in option for option in config["docker"]["run_options"])


@pytest.mark.parametrize("name", KUBERAY)
def test_no_port_of_a_pod_is_opened_but_rays_own(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert not re.search("hostPort|hostNetwork|LoadBalancer|NodePort|privileged", text)
    assert ray_cluster_spec(load(name))["headGroupSpec"]["serviceType"] == "ClusterIP"
    for group in groups(name):
        (container,) = group["template"]["spec"]["containers"]
        ports = {port["containerPort"] for port in container["ports"]}
        assert ports <= (RAYS_PORTS if "groupName" not in group else {8080})
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]


@pytest.mark.parametrize("name", RAY_UP)
def test_the_token_goes_to_every_node(name: str) -> None:
    assert load(name)["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}


# ---- what is left to the user ----


@EVERY
def test_what_is_to_be_filled_in_is_marked_and_explained(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    placeholders = re.findall(r"registry\.example\.com|ami-0{17}|FILL-IN|claimName", text)
    marked = [line for line in text.splitlines() if "# FILL IN" in line]
    assert len(placeholders) <= len(marked)
    doc = (ROOT / "docs" / "fleet.md").read_text()
    assert f"{name}.yaml" in doc
    for found in set(placeholders):
        assert found in doc
