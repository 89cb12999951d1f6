"""Who may write a run, and how the one before is told that it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.tuner.storage.objects.memory_objects import MemoryObjectStore
from tuner.errors import TunerError
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


def lease(objects: MemoryObjectStore, time: Time) -> Lease:
    return Lease(objects, patience_s=9.0, clock=time, monotonic=time, sleep=time.sleep)


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def time() -> Time:
    return Time()


class TestTaking:
    def test_epochs_count_up(self, objects: MemoryObjectStore, time: Time) -> None:
        for epoch in (1, 2, 3):
            mine = lease(objects, time)
            mine.acquire()
            assert mine.epoch == epoch
            mine.release()
        assert time.now_s == 0.0  # what was given back is free at once

    def test_a_lease_that_is_renewed_is_refused(
        self, objects: MemoryObjectStore, time: Time
    ) -> None:
        holder = lease(objects, time)
        holder.acquire()
        time.meanwhile.append(holder.renew)
        with pytest.raises(TunerError, match=rf"in use by process {os.getpid()} on ") as caught:
            lease(objects, time).acquire()
        assert "\n" not in str(caught.value)
        assert time.now_s < 9.0
        holder.renew()
        assert objects.list("lease/") == ["lease/00000001.json"]

    def test_a_lease_that_is_not_renewed_runs_out(
        self, objects: MemoryObjectStore, time: Time
    ) -> None:
        lease(objects, time).acquire()
        challenger = lease(objects, time)
        challenger.acquire()
        assert challenger.epoch == 2
        assert time.now_s >= 9.0

    def test_the_clock_of_the_holder_does_not_matter(self, objects: MemoryObjectStore) -> None:
        lease(objects, Time(now_s=1e9)).acquire()
        time = Time()
        lease(objects, time).acquire()
        assert time.now_s >= 9.0

    def test_a_lease_given_back_while_one_waits_is_free(
        self, objects: MemoryObjectStore, time: Time
    ) -> None:
        holder = lease(objects, time)
        holder.acquire()
        time.meanwhile.append(holder.release)
        lease(objects, time).acquire()
        assert time.now_s < 2.0

    def test_the_lease_of_a_dead_process_of_this_machine_is_free(
        self, objects: MemoryObjectStore, time: Time
    ) -> None:
        lease(objects, time).acquire()
        dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
        raw = json.loads(objects.objects["lease/00000001.json"])
        objects.objects["lease/00000001.json"] = json.dumps(
            raw | {"pid": int(dead.stdout)}
        ).encode()
        lease(objects, time).acquire()
        assert time.now_s == 0.0

    def test_the_same_number_on_another_machine_may_live(
        self, objects: MemoryObjectStore, time: Time
    ) -> None:
        lease(objects, time).acquire()
        raw = json.loads(objects.objects["lease/00000001.json"]) | {
            "pid": 2**22,
            "machine": "other",
        }
        objects.objects["lease/00000001.json"] = json.dumps(raw).encode()
        lease(objects, time).acquire()
        assert time.now_s >= 9.0

    def test_of_two_who_wait_one_gets_it(self, objects: MemoryObjectStore, time: Time) -> None:
        lease(objects, time).acquire()
        faster = lease(objects, Time())

        def at_last() -> None:
            if time.now_s >= 9.0 and not faster.epoch:
                faster.acquire()
            if faster.epoch and time.now_s >= 11.0:
                faster._renewed_s = -10.0
                faster.renew()

        time.meanwhile.append(at_last)
        with pytest.raises(TunerError, match="in use"):
            lease(objects, time).acquire()
        assert faster.epoch == 2

    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"pid": 1}'])
    def test_one_that_cannot_be_read_is_free(
        self, objects: MemoryObjectStore, time: Time, text: bytes
    ) -> None:
        objects.objects["lease/00000004.json"] = text
        objects.objects["lease/readme"] = b""
        mine = lease(objects, time)
        mine.acquire()
        assert mine.epoch == 5

    def test_a_folder_that_is_listed_as_it_was_does_not_matter(self, time: Time) -> None:
        class Stale(MemoryObjectStore):
            def list(self, prefix: str) -> list[str]:
                return []

        objects = Stale()
        for epoch in (1, 2):
            mine = lease(objects, time)
            mine.acquire()
            assert mine.epoch == epoch
            mine.release()

    def test_an_answer_that_was_lost_does_not_matter(self, time: Time) -> None:
        class Deaf(MemoryObjectStore):
            def create(self, path: str, data: bytes) -> bool:
                super().create(path, data)
                return False

        mine = lease(Deaf(), time)
        mine.acquire()
        assert mine.epoch == 1

    def test_a_place_that_overwrites_is_refused(self, time: Time) -> None:
        class Overwriting(MemoryObjectStore):
            def create(self, path: str, data: bytes) -> bool:
                self.replace(path, data)
                return True

        with pytest.raises(TunerError, match="cannot keep a second writer out") as caught:
            lease(Overwriting(), time).acquire()
        assert "\n" not in str(caught.value)


class TestHolding:
    def test_a_renewal_finds_out_about_a_newer_lease(
        self, objects: MemoryObjectStore, time: Time
    ) -> None:
        stalled = lease(objects, time)
        stalled.acquire()
        lease(objects, time).acquire()
        with pytest.raises(LeaseLost, match="has taken over this run"):
            stalled.renew()

    def test_renewals_are_spaced(self, objects: MemoryObjectStore, time: Time) -> None:
        mine = lease(objects, time)
        mine.acquire()
        before = dict(objects.objects)
        mine.renew()
        assert objects.objects == before
        time.now_s = 3.0
        mine.renew()
        assert objects.objects != before

    def test_giving_back_twice_is_allowed(self, objects: MemoryObjectStore, time: Time) -> None:
        mine = lease(objects, time)
        mine.release()
        mine.acquire()
        mine.release()
        mine.release()
        assert len(objects.objects) == 1
