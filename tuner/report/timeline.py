"""A run as a trace in Perfetto's format: what each worker did when, and how the model got faster.

Every kind of worker is a group of tracks, each worker a track of slices; above them are counters of
the model's latency and of the trials. Times are nanoseconds since the epoch.
Format: the protocol buffer `perfetto.protos.Trace`, track events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from tuner.errors import TunerError
from tuner.files.atomic import name_unwritable, write_bytes
from tuner.report.slots import lanes, use_of, words_of
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults
from tuner.storage.history import Fit, History
from tuner.utilisation import SlotSpan
from tuner.view.model_curve import CurvePoint, model_curve

_SEQUENCE = 1
_RUN, _LATENCY, _TRIALS, _MODELS = 1, 2, 3, 4
"""Tracks; those of kinds and workers follow."""


class _Trace:
    """Adds packets to a trace."""

    def __init__(self) -> None:
        self._builder = TraceProtoBuilder()
        self._tracks = _MODELS

    def new_track(self) -> int:
        self._tracks += 1
        return self._tracks

    def track(self, track: int, name: str, parent: int = 0, **counter: Any) -> None:
        descriptor = self._builder.add_packet().track_descriptor
        descriptor.uuid, descriptor.name = track, name
        if parent:
            descriptor.parent_uuid = parent
        if counter:
            descriptor.counter.unit_name = counter["unit"]

    def event(self, track: int, time_s: float, kind: int, **said: str) -> Any:
        packet = self._builder.add_packet()
        packet.timestamp = round(time_s * 1e9)
        packet.trusted_packet_sequence_id = _SEQUENCE
        event = packet.track_event
        event.track_uuid, event.type = track, kind
        if name := said.pop("name", ""):
            event.name = name
        event.categories.extend(filter(None, [said.pop("category", "")]))
        for key, value in said.items():
            if value:
                event.debug_annotations.add(name=key, string_value=value)
        return event

    def to_bytes(self) -> bytes:
        return bytes(self._builder.serialize())


def export_timeline(store: RecordStore, file: Path, run: str) -> int:
    """Write the timeline of a run; return the number of its stretches of workers' time.

    Args:
        run: the name of the run.

    Raises:
        TunerError: the run has no history, as those of older versions have none, or the file
            cannot be written.
    """
    history, tasks = store.get(History), store.tasks()
    if not history.spans:
        raise TunerError(f"{run} has no history: it was tuned by a version that kept none")
    curve = model_curve(tasks, store.get(Defaults).by_task, list(store.scan()), store.sessions())
    names = {task.key: task.name for task in tasks}
    trace = timeline(history.spans, curve.points, history.fits, names, run=run)
    with name_unwritable(file):
        write_bytes(file, trace)
    return len(history.spans)


def timeline(
    spans: Sequence[SlotSpan],
    curve: Sequence[CurvePoint],
    fits: Iterable[Fit],
    names: Mapping[str, str],
    *,
    run: str,
) -> bytes:
    """The bytes of a trace file.

    Args:
        spans: of worker slots, in seconds since the epoch.
        curve: the model's latency over the run.
        names: of tasks, by their keys.
        run: the name of the run.
    """
    trace, types = _Trace(), perfetto.TrackEvent
    trace.track(_RUN, run)
    trace.track(_LATENCY, "model latency", _RUN, unit="us")
    trace.track(_TRIALS, "trials", _RUN, unit="trials")
    trace.track(_MODELS, "cost models", _RUN)
    for point in curve:
        for track, value in ((_LATENCY, point.latency_s * 1e6), (_TRIALS, point.trials)):
            event = trace.event(track, point.time_s, types.TYPE_COUNTER)
            event.double_counter_value = value
    for fit in fits:
        accuracy = "" if fit.accuracy is None else f"{fit.accuracy:.3f}"
        said = {"name": f"model {fit.version}", "accuracy": accuracy, "records": str(fit.records)}
        trace.event(_MODELS, fit.time_s, types.TYPE_INSTANT, **said)
    kinds: dict[str, int] = {}
    tracks: dict[tuple[str, str], int] = {}
    for kind, slot in lanes(spans):
        if kind not in kinds:
            kinds[kind] = trace.new_track()
            trace.track(kinds[kind], f"{kind}s", _RUN)
        tracks[kind, slot] = trace.new_track()
        trace.track(tracks[kind, slot], slot, kinds[kind])
    for span in spans:
        track, use = tracks[span.kind, span.slot], use_of(span.kind, span.category)
        said = {
            "name": use if use != "idle" else words_of(span.kind, span.category),
            "category": use,
            "task": names.get(span.task_key, ""),
        }
        trace.event(track, span.started_s, types.TYPE_SLICE_BEGIN, **said)
        trace.event(track, span.ended_s, types.TYPE_SLICE_END)
    return trace.to_bytes()
