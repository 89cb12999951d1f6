"""Who may write a run, and how the one before is told that it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tuner.errors import TunerError
from tuner.storage.objects.base import MemoryPlace
from tuner.storage.segments.lease import Lease, LeaseLost


@dataclass
class Time:
    """A clock that moves when somebody sleeps, and what happens meanwhile."""

    now_s: float = 0.0
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for happens in self.meanwhile:
            happens()


def lease(place: MemoryPlace, time: Time) -> Lease:
    return Lease(place, patience_s=9.0, clock=time, monotonic=time, sleep=time.sleep)


@pytest.fixture
def place() -> MemoryPlace:
    return MemoryPlace()


@pytest.fixture
def time() -> Time:
    return Time()


class TestTaking:
    def test_epochs_count_up(self, place: MemoryPlace, time: Time) -> None:
        for epoch in (1, 2, 3):
            mine = lease(place, time)
            mine.acquire()
            assert mine.epoch == epoch
            mine.release()
        assert time.now_s == 0.0  # what was given back is free at once

    def test_a_lease_that_is_renewed_is_refused(self, place: MemoryPlace, time: Time) -> None:
        holder = lease(place, time)
        holder.acquire()
        time.meanwhile.append(holder.renew)
        with pytest.raises(TunerError, match=rf"in use by process {os.getpid()} on ") as caught:
            lease(place, time).acquire()
        assert "\n" not in str(caught.value)
        assert time.now_s < 9.0
        holder.renew()
        assert place.list("lease/") == ["lease/00000001.json"]

    def test_a_lease_that_is_not_renewed_runs_out(self, place: MemoryPlace, time: Time) -> None:
        lease(place, time).acquire()
        challenger = lease(place, time)
        challenger.acquire()
        assert challenger.epoch == 2
        assert time.now_s >= 9.0

    def test_the_clock_of_the_holder_does_not_matter(self, place: MemoryPlace) -> None:
        lease(place, Time(now_s=1e9)).acquire()
        time = Time()
        lease(place, time).acquire()
        assert time.now_s >= 9.0

    def test_a_lease_given_back_while_one_waits_is_free(
        self, place: MemoryPlace, time: Time
    ) -> None:
        holder = lease(place, time)
        holder.acquire()
        time.meanwhile.append(holder.release)
        lease(place, time).acquire()
        assert time.now_s < 2.0

    def test_the_lease_of_a_dead_process_of_this_machine_is_free(
        self, place: MemoryPlace, time: Time
    ) -> None:
        lease(place, time).acquire()
        dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
        raw = json.loads(place.objects["lease/00000001.json"])
        place.objects["lease/00000001.json"] = json.dumps(raw | {"pid": int(dead.stdout)}).encode()
        lease(place, time).acquire()
        assert time.now_s == 0.0

    def test_the_same_number_on_another_machine_may_live(
        self, place: MemoryPlace, time: Time
    ) -> None:
        lease(place, time).acquire()
        raw = json.loads(place.objects["lease/00000001.json"]) | {"pid": 2**22, "machine": "other"}
        place.objects["lease/00000001.json"] = json.dumps(raw).encode()
        lease(place, time).acquire()
        assert time.now_s >= 9.0

    def test_of_two_who_wait_one_gets_it(self, place: MemoryPlace, time: Time) -> None:
        lease(place, time).acquire()
        faster = lease(place, Time())

        def at_last() -> None:
            if time.now_s >= 9.0 and not faster.epoch:
                faster.acquire()
            if faster.epoch and time.now_s >= 11.0:
                faster._renewed_s = -10.0
                faster.renew()

        time.meanwhile.append(at_last)
        with pytest.raises(TunerError, match="in use"):
            lease(place, time).acquire()
        assert faster.epoch == 2

    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"pid": 1}'])
    def test_one_that_cannot_be_read_is_free(
        self, place: MemoryPlace, time: Time, text: bytes
    ) -> None:
        place.objects["lease/00000004.json"] = text
        place.objects["lease/readme"] = b""
        mine = lease(place, time)
        mine.acquire()
        assert mine.epoch == 5

    def test_a_folder_that_is_listed_as_it_was_does_not_matter(self, time: Time) -> None:
        class Stale(MemoryPlace):
            def list(self, prefix: str) -> list[str]:
                return []

        place = Stale()
        for epoch in (1, 2):
            mine = lease(place, time)
            mine.acquire()
            assert mine.epoch == epoch
            mine.release()

    def test_an_answer_that_was_lost_does_not_matter(self, time: Time) -> None:
        class Deaf(MemoryPlace):
            def create(self, path: str, data: bytes) -> bool:
                super().create(path, data)
                return False

        mine = lease(Deaf(), time)
        mine.acquire()
        assert mine.epoch == 1

    def test_a_place_that_overwrites_is_refused(self, time: Time) -> None:
        class Overwriting(MemoryPlace):
            def create(self, path: str, data: bytes) -> bool:
                self.replace(path, data)
                return True

        with pytest.raises(TunerError, match="cannot keep a second writer out") as caught:
            lease(Overwriting(), time).acquire()
        assert "\n" not in str(caught.value)


class TestHolding:
    def test_a_renewal_finds_out_about_a_newer_lease(self, place: MemoryPlace, time: Time) -> None:
        stalled = lease(place, time)
        stalled.acquire()
        lease(place, time).acquire()
        with pytest.raises(LeaseLost, match="has taken over this run"):
            stalled.renew()

    def test_renewals_are_spaced(self, place: MemoryPlace, time: Time) -> None:
        mine = lease(place, time)
        mine.acquire()
        before = dict(place.objects)
        mine.renew()
        assert place.objects == before
        time.now_s = 3.0
        mine.renew()
        assert place.objects != before

    def test_giving_back_twice_is_allowed(self, place: MemoryPlace, time: Time) -> None:
        mine = lease(place, time)
        mine.release()
        mine.acquire()
        mine.release()
        mine.release()
        assert len(place.objects) == 1
