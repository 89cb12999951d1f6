"""What an operator sees of runs: the panels, as data.

Metrics are those of `cluster.ray_workers.metrics`. All are gauges that the search sets anew every
few seconds, and go on where a search that died is started again; histograms begin anew. The series
of a search that is gone stay for a while, beside those of the one in its place: therefore the
largest of a run is shown where a metric is the state of the run.
"""

from __future__ import annotations

from cluster.grafana.panel import NEUTRAL, WIDTH, Look, Panel, Query, Row, Step

RUN_OF = "ray_tuner_trials"
"""The metric whose labels name the runs to choose from."""

_RUN = 'run=~"$run"'
_RECENT = "[$__rate_interval]"
_QUARTER, _HALF = WIDTH // 4, WIDTH // 2


def _of_run(metric: str, *labels: str, where: str = "") -> str:
    """The state of each run, by these labels as well."""
    by = ", ".join(("run", *labels))
    return f"max by ({by}) (ray_tuner_{metric}{{{_RUN}{where}}})"


def _number(title: str, about: str, metric: str, unit: str, *steps: Step) -> Panel:
    query = Query(_of_run(metric), "{{run}}")
    return Panel(
        title, about, [query], Look.NUMBER, unit, steps or NEUTRAL, width=_QUARTER, height=4
    )


def _curve(title: str, about: str, metric: str, unit: str, *steps: Step) -> Panel:
    return Panel(
        title, about, [Query(_of_run(metric), "{{run}}")], unit=unit, steps=steps or NEUTRAL
    )


def _slots(title: str, kind: str) -> Panel:
    about = (
        "How many of them do what, on average over the last moments. Busy is work; waiting has a "
        "job, but is frozen while a kernel is timed; the rest are the reasons to have none."
    )
    expr = (
        "sum by (category) "
        f'(clamp_min(deriv(ray_tuner_slot_s{{{_RUN}, kind="{kind}"}}{_RECENT}), 0))'
    )
    return Panel(title, about, [Query(expr, "{{category}}")], unit="none", stacked=True)


def _seconds(title: str, about: str, metric: str) -> Panel:
    def quantile(share: float) -> str:
        counts = f"sum by (le) (rate(ray_tuner_{metric}_bucket{{{_RUN}}}{_RECENT}))"
        return f"histogram_quantile({share:g}, {counts})"

    queries = [
        Query(quantile(0.5), "half are quicker"),
        Query(quantile(0.95), "19 of 20 are quicker"),
    ]
    return Panel(title, about, queries, unit="s")


def _failed_share() -> str:
    failed = _of_run("results", "kind", where=', kind!~"ok|censored|duplicate"')
    trials = f"sum by (run) ({_of_run('results', 'kind')})"
    return f"(sum by (run) ({failed}) or 0 * {trials}) / {trials}"


_PROGRESS = Row(
    "Progress",
    [
        _number(
            "Gain",
            "Speed of the best kernels over that of default schedules, all tasks together. Below "
            "1.05 nothing was won beyond noise.",
            "gain",
            "suffix:x",
            *(Step(None, "red"), Step(1.0, "yellow"), Step(1.05, "green")),
        ),
        _number(
            "Model latency",
            "The best time of each task, as often as the model runs it. It rises while tasks get "
            "their first time, and falls from then on.",
            "model_us",
            "µs",
        ),
        Panel(
            "Budget spent",
            "Of the trials or of the time, whichever is more.",
            [Query(_of_run("budget_share"), "{{run}}")],
            Look.DIAL,
            "percentunit",
            [Step(None, "green"), Step(0.9, "yellow"), Step(1.0, "blue")],
            most=1.0,
            width=_QUARTER,
            height=4,
        ),
        _number(
            "Trials left",
            "Still to be measured, re-timings of finalists included.",
            "trials_left",
            "short",
        ),
        _curve(
            "Gain over time",
            "Speed of the best kernels over that of default schedules.",
            "gain",
            "suffix:x",
            *(Step(None, "red"), Step(1.0, "green")),
        ),
        _curve("Model latency over time", "The best time of all tasks.", "model_us", "µs"),
        Panel(
            "Trials per second",
            "Of the last moments, and on average since the search began. Where the first falls, "
            "look below for what workers wait for.",
            [
                Query(f"max by (run) (deriv(ray_tuner_trials{{{_RUN}}}{_RECENT}))", "{{run}}: now"),
                Query(_of_run("trials_per_s"), "{{run}}: average"),
            ],
            unit="cps",
        ),
        Panel(
            "Trials by outcome",
            "Ok, censored (slower than the best by far, so cut off) and duplicate are good; of the "
            "others the candidate is of no use. Their first lines of error are in the records.",
            [Query(_of_run("results", "kind"), "{{run}}: {{kind}}")],
            stacked=True,
            width=_HALF,
        ),
        Panel(
            "Slowest kernels",
            "The ten tasks with the largest best latencies.",
            [Query(f"topk(10, {_of_run('best_us', 'task')})", "{{run}}: {{task}}")],
            unit="µs",
            width=_HALF,
        ),
    ],
)

_FLEET = Row(
    "Fleet",
    [
        Panel(
            "Workers",
            "Ready, and as many as the run asks for. Where it asks for more than there are for "
            "minutes, the autoscaler has no machine to give, or workers do not start.",
            [
                Query(_of_run("workers", "kind"), "{{run}}: {{kind}}, ready"),
                Query(_of_run("workers_wanted", "kind"), "{{run}}: {{kind}}, asked for"),
            ],
            unit="none",
        ),
        Panel(
            "Jobs that wait for a worker",
            "Drafts for space workers, trials for builders and runners. The kind with the longest "
            "queue holds the others up.",
            [Query(_of_run("queued", "kind"), "{{run}}: {{kind}}")],
            unit="none",
        ),
        Panel(
            "Workers lost",
            "Since the search began: their machine went, they crashed, hung, or did not start. On "
            "spot machines some are; on others look into the logs of the run.",
            [Query(_of_run("workers_lost", "kind"), "{{run}}: {{kind}}")],
            unit="none",
            steps=[Step(None, "green"), Step(1.0, "yellow")],
        ),
        _slots("What runners do", "runner"),
        _slots("What builders do", "builder"),
        _slots("What space workers do", "space"),
        Panel(
            "Share of time at work",
            "Since the search began, by kind. Runners are what one pays for: below a half, more "
            "builders or fewer devices are the better fleet.",
            [Query(_of_run("busy_share", "kind"), "{{run}}: {{kind}}")],
            unit="percentunit",
            steps=[Step(None, "red"), Step(0.5, "green")],
            most=1.0,
        ),
        _seconds("Build time", "Of one kernel, however its build ended.", "build_s"),
        _seconds("Run time", "Of one kernel: to load, check and time it.", "run_s"),
    ],
)

_SEARCH = Row(
    "Search",
    [
        Panel(
            "Pairs ordered rightly",
            "By the cost model, of candidates that it had not seen, and by the analytic estimates "
            "that come before it. At 0.5 it is as good as tossing a coin.",
            [
                Query(_of_run("pairwise_accuracy"), "{{run}}: cost model"),
                Query(_of_run("estimate_accuracy"), "{{run}}: estimates"),
            ],
            unit="percentunit",
            steps=[Step(None, "red"), Step(0.5, "yellow"), Step(0.7, "green")],
            most=1.0,
            width=_HALF,
        ),
        Panel(
            "Share of trials that failed",
            "Wrong, crashed, timed out, did not build, or lost with their workers. Where a run has "
            "more than a quarter of them, look at its records.",
            [
                Query(_failed_share(), "{{run}}"),
            ],
            unit="percentunit",
            steps=[Step(None, "green"), Step(0.25, "red")],
            most=1.0,
            width=_HALF,
        ),
    ],
)

ROWS = (_PROGRESS, _FLEET, _SEARCH)
