"""What searches are called in Ray.

The name is made from the run's folder or URL, so that whoever can name the run can find its search.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

NAMESPACE = "tuner"
_PREFIX = "search-"


def search_name(run: Path | str) -> str:
    """What the search of a run, by its folder or its URL, is called in Ray."""
    name = run.rstrip("/") if isinstance(run, str) else str(run.resolve())
    return _PREFIX + hashlib.sha256(name.encode()).hexdigest()[:16]


def searches() -> list[str]:
    """Names of all searches at work on the cluster, in order."""
    from ray.util import list_named_actors

    names = (actor["name"] for actor in list_named_actors(all_namespaces=True))
    return sorted(name for name in names if name and name.startswith(_PREFIX))
