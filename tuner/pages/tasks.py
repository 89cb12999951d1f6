"""Charts of the tasks: where the model's time went before tuning, and where it goes now."""

from __future__ import annotations

from typing import Any

import altair as alt

from tuner.pages.theme import TUNED, UNTUNED, specification
from tuner.view.run_view import RunView

_SHOWN = 20
_ROW = 30


def shares_chart(run: RunView) -> dict[str, Any]:
    """Each task's share of the model's time before and after, those with the largest first; the
    tasks beyond the first twenty are one row."""
    before, after = run.shares(untuned=True), run.shares()
    shares = [(t.name, before[t.key], after[t.key]) for t in run.tasks if t.key in after]
    shares.sort(key=lambda row: -max(row[1:]))
    shown, rest = shares[:_SHOWN], shares[_SHOWN:]
    if rest:
        others = f"{len(rest)} others"
        shown.append((others, sum(r[1] for r in rest), sum(r[2] for r in rest)))
    rows = [
        {"task": name, "when": when, "share": share}
        for name, was, now in shown
        for when, share in (("untuned", was), ("tuned", now))
    ]
    order = [name for name, _, _ in shown]
    colors = alt.Scale(domain=["untuned", "tuned"], range=[UNTUNED, TUNED])
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            alt.X("share:Q", title="share of the model's time", axis=alt.Axis(format="%")),
            alt.Y("task:N", sort=order, title=None),
            alt.YOffset("when:N", sort=["untuned", "tuned"]),
            alt.Color("when:N", title=None, scale=colors),
            tooltip=["task:N", "when:N", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    return specification(chart, {"rows": rows}, height=max(60, _ROW * len(shown)))
