"""A look at all searches of a cluster, of which they take no note."""

from __future__ import annotations

from typing import Any

from cluster.search.job import SearchState
from cluster.search.naming import NAMESPACE, on_same_devices, searches
from tuner.errors import first_line

_LOOK_S = 2.0


def looks(timeout_s: float) -> dict[str, SearchState | str]:
    """The states of all searches on the cluster by name, without their taking note; a line that
    says why where there is none.

    Args:
        timeout_s: time that they have to answer, all together.
    """
    import ray
    from ray.exceptions import RayError

    asked: dict[str, Any] = {}
    found: dict[str, SearchState | str] = {}
    for name in searches():
        try:
            asked[name] = ray.get_actor(name, namespace=NAMESPACE).look.remote()
        except ValueError:
            continue  # it has just ended
        except AttributeError:
            found[name] = "a search of another version, which cannot be looked at"
    ready = (
        ray.wait([*asked.values()], num_returns=len(asked), timeout=timeout_s)[0] if asked else ()
    )
    for name, answer in asked.items():
        try:
            found[name] = ray.get(answer) if answer in ready else "no answer"
        except RayError as error:
            found[name] = f"gone: {first_line(error)[:60]}"
    return dict(sorted(found.items()))


def runs_beside(mine: str) -> list[str]:
    """The runs, as far as they answer soon, of other searches that measure on a search's devices.

    Args:
        mine: name of that search.
    """
    found = looks(_LOOK_S)
    states = [found[name] for name in on_same_devices(mine, [*found])]
    return [s.run for s in states if isinstance(s, SearchState) and not s.ended]
