"""Drafts answered from the recorded settings of templates, in the way in which their space answers
them: from a shortlist in the order of the estimate. Or listed at once.

See `spaces.design_space.knob_space.KnobSpace`, whose shortlists these imitate.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from tuner.arrays import Features
from tuner.candidate import CandidateKind, Draft, knobs_of
from tuner.cost_models.process import ESTIMATE_COLUMN
from tuner.measure import Settings
from tuner.replay.recorded import Recorded

_SHORTLIST, _NEIGHBOURS, _LISTED = 96, 24, 96
_COLUMNS = 46
"""Numbers that describe a setting (`spaces.features.knob_features.KNOB_LENGTH`)."""
_GREED, _TRUST = 3.0, 2.0


class RecordedSettings:
    """The settings of each template of one task, the best estimate first.

    What was recorded as a mutation is no fresh sample: it is found near what is known alone.
    """

    def __init__(self, space: Sequence[Recorded]) -> None:
        ranked = sorted(space, key=lambda r: r.estimate_s)
        self._spaces = {
            name: [r for r in ranked if r.candidate.space == name]
            for name in dict.fromkeys(r.candidate.space for r in ranked)
        }
        self._places = {
            r.candidate.key: (name, place)
            for name, mine in self._spaces.items()
            for place, r in enumerate(mine)
        }
        self._fresh = {
            name: [place for place, r in enumerate(mine) if r.parent is None]
            for name, mine in self._spaces.items()
        }
        self._steps = {name: _steps(mine) for name, mine in self._spaces.items()}

    @staticmethod
    def fits(space: Sequence[Recorded]) -> bool:
        """Whether all recorded candidates are settings of templates."""
        return all(r.candidate.kind is CandidateKind.KNOBS for r in space)

    def choose(self, draft: Draft, rng: random.Random) -> Recorded:
        """The answer to a draft."""
        shortlist = self._shortlist(draft, rng)
        return shortlist[_draw_place(len(shortlist), rng)]

    def settings(self, draft: Draft) -> tuple[Settings, ...]:
        """The settings that a draft asks to be listed: near its parent, or all fresh samples."""
        known = None if draft.parent is None else self._places.get(draft.parent.key)
        if known is not None:
            name, place = known
            return (self._tabulate(name, [place, *self._near(name, place, _LISTED)]),)
        if draft.parent is not None:
            return ()
        return tuple(self._tabulate(name, places) for name, places in self._fresh.items() if places)

    def _tabulate(self, name: str, places: Sequence[int]) -> Settings:
        rows = [self._spaces[name][place] for place in places]
        knobs = [knobs_of(r.candidate) or {} for r in rows]
        names = tuple(knobs[0])
        return Settings(
            name,
            names,
            np.array([[k[n] for n in names] for k in knobs], dtype=np.int32),
            setting_features(rows),
        )

    def _near(self, name: str, place: int, count: int) -> list[int]:
        """Places of the settings that differ least from one, by the number of knobs."""
        distances = np.abs(self._steps[name] - self._steps[name][place])
        order = np.lexsort((distances.sum(axis=1), (distances > 0).sum(axis=1)))
        return [int(i) for i in order if i != place][:count]

    def _shortlist(self, draft: Draft, rng: random.Random) -> list[Recorded]:
        known = None if draft.parent is None else self._places.get(draft.parent.key)
        if known is not None:
            name, place = known
            near = self._near(name, place, _NEIGHBOURS)
        else:
            weights = dict(draft.weights)
            odds = [
                self._spaces[name][places[0]].estimate_s ** -_TRUST * weights.get(name, 1.0)
                if places
                else 0.0
                for name, places in self._fresh.items()
            ]
            (name,) = rng.choices(list(self._fresh), odds)
            fresh = self._fresh[name]
            near = list({fresh[_draw_place(len(fresh), rng)] for _ in range(_SHORTLIST)})
        return [self._spaces[name][place] for place in sorted(near)]


def setting_features(rows: Sequence[Recorded]) -> Features:
    """Vectors of settings. Recorded ones begin with the columns of programs, all zero, and are
    rounded; an estimate is not."""
    vectors = np.stack([r.features for r in rows])[:, -_COLUMNS:]
    vectors[:, ESTIMATE_COLUMN] = np.log2([r.estimate_s for r in rows])
    return vectors


def _draw_place(count: int, rng: random.Random) -> int:
    """A place, the earlier the likelier."""
    return int(count * rng.random() ** _GREED)


def _steps(space: Sequence[Recorded]) -> Features:
    """The settings of one template: for each knob the place of its value among those recorded."""
    knobs = [knobs_of(r.candidate) or {} for r in space]
    columns = [
        np.unique([k[name] for k in knobs], return_inverse=True)[1] for name in sorted(knobs[0])
    ]
    return np.stack(columns, axis=1).astype(np.float32)
