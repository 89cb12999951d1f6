"""The files for `ray up` pass Ray's schema and Ray's own code, and keep what they promise."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from cluster.spot_notice import CLOUDS, main
from tests.cluster.configs.fleet_configs import RAY_UP, load

NODE_CONFIG = {
    "aws": {
        "InstanceType",
        "ImageId",
        "InstanceMarketOptions",
        "BlockDeviceMappings",
        "CpuOptions",
    },
    "gcp": {"machineType", "disks", "scheduling"},
}
"""What we say of machines; Ray hands it to the cloud without a look."""


@cache
def schema() -> Draft7Validator:
    """Ray's schema, found without importing Ray."""
    ray = importlib.util.find_spec("ray")
    assert ray is not None
    assert ray.origin is not None
    text = Path(ray.origin).with_name("autoscaler").joinpath("ray-schema.json").read_text()
    return Draft7Validator(json.loads(text))


@pytest.mark.parametrize("name", RAY_UP)
def test_a_configuration_is_what_rays_schema_says(name: str) -> None:
    assert [error.message for error in schema().iter_errors(load(name))] == []


@pytest.mark.ray
@pytest.mark.parametrize("name", RAY_UP)
def test_a_configuration_is_what_ray_accepts_once_its_defaults_are_in(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    whole = prepare_config(deepcopy(load(name)))
    validate_config(whole)
    commands = [c for key, value in whole.items() if key.endswith("_commands") for c in value]
    # Ray's defaults install a nightly build and open the dashboard; none of that may come back.
    assert not any("ray-wheels" in command or "0.0.0.0" in command for command in commands)
    assert not any(re.search(r"pip install .*\bray\b", command) for command in commands)


MISTAKES: dict[str, Callable[[dict[str, Any]], object]] = {
    "max_worker": lambda c: c.update(max_worker=c.pop("max_workers")),
    "idle_timeout_minute": lambda c: c.update(idle_timeout_minute=3),
    "a count in words": lambda c: c["available_node_types"]["builder_spot"].update(min_workers="0"),
    "no resources": lambda c: c["available_node_types"]["head"].pop("resources"),
    "half a resource": lambda c: c["available_node_types"]["head"]["resources"].update(CPU=0.5),
    "label": lambda c: c["available_node_types"]["builder_spot"].update(label={}),
    "run_option": lambda c: c["docker"].update(run_option=[]),
    "ssh_users": lambda c: c["auth"].update(ssh_users="ubuntu"),
    "a command that is no list": lambda c: c.update(setup_commands="true"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", RAY_UP)
def test_mistakes_are_found(name: str, mistake: str) -> None:
    config = deepcopy(load(name))
    MISTAKES[mistake](config)
    assert list(schema().iter_errors(config))


@pytest.mark.ray
def test_a_head_type_that_is_none_is_found() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    with pytest.raises(ValueError, match="head_node_type"):
        validate_config(prepare_config({**load("aws-gpu"), "head_node_type": "heads"}))


@pytest.mark.parametrize("name", RAY_UP)
def test_machines_are_described_in_words_that_the_cloud_knows(name: str) -> None:
    config = load(name)
    provider = config["provider"]["type"]
    assert config["provider"]["region"] in config["provider"]["availability_zone"]
    for node in config["available_node_types"].values():
        assert set(node["node_config"]) <= NODE_CONFIG[provider]
        assert set(node["node_config"]) & {"InstanceType", "machineType"}


@pytest.mark.parametrize("name", RAY_UP)
def test_workers_are_spot_machines_that_go_away_and_the_head_is_neither(name: str) -> None:
    config = load(name)
    workers = dict(config["available_node_types"])
    head = workers.pop(config["head_node_type"])
    assert not is_spot(head)
    assert config["idle_timeout_minutes"] > 0
    assert 0 < config["max_workers"] <= sum(node["max_workers"] for node in workers.values())
    for node in workers.values():
        assert node["min_workers"] == 0
        assert is_spot(node)
        assert node["labels"]["ray.io/market-type"] == "spot"


def is_spot(node: dict[str, Any]) -> bool:
    config = node["node_config"]
    aws = config.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
    gcp = config.get("scheduling", {}).get("provisioningModel") == "SPOT"
    return bool(aws or gcp)


@pytest.mark.ray
@pytest.mark.parametrize("name", RAY_UP)
def test_ray_is_started_with_flags_that_it_has(name: str) -> None:
    from ray.scripts.scripts import start

    config = load(name)
    for which in ("head", "worker"):
        before, command = config[f"{which}_start_ray_commands"][:2]
        assert before == "ray stop"
        limit, _, rest = command.partition("; ")
        assert limit.startswith("ulimit ")
        ray, name, *arguments = shlex.split(rest)
        assert (ray, name) == ("ray", "start")
        given = start.make_context("start", arguments).params
        assert given["head"] is (which == "head")
        if which == "head":
            assert given["dashboard_host"] == "127.0.0.1"
            assert given["disable_usage_stats"]
            assert given["autoscaling_config"] == "~/ray_bootstrap_config.yaml"


@pytest.mark.parametrize("name", RAY_UP)
def test_workers_look_out_for_the_end_of_their_machine(name: str) -> None:
    config = load(name)
    assert len(config["head_start_ray_commands"]) == 2
    command = config["worker_start_ray_commands"][2]
    found = re.fullmatch(r"nohup setsid python -m (\S+) (\w+) < /dev/null > \S+ 2>&1 &", command)
    assert found is not None
    module, cloud = found.groups()
    assert module == main.__module__
    assert cloud == config["provider"]["type"]
    assert cloud in CLOUDS


@pytest.mark.parametrize("name", RAY_UP)
def test_a_container_is_started_with_options_that_are_meant(name: str) -> None:
    config = load(name)
    options = [*config["docker"]["run_options"]]
    for node in config["available_node_types"].values():
        options += node.get("docker", {}).get("worker_run_options", [])
        wants_gpu = "GPU" in node["resources"]
        assert wants_gpu == ("--gpus all" in node.get("docker", {}).get("worker_run_options", []))
    for option in options:
        assert re.fullmatch(r"--env \w+=\w+|--ulimit nofile=\d+:\d+|--gpus all", option)
