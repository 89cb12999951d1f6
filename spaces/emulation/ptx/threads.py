"""Barriers, and what the lanes of a warp tell each other (PTX ISA, "Parallel Synchronization and
Communication Instructions")."""

from __future__ import annotations

import re

from spaces.emulation.ptx.forms import (
    ORDER,
    SHARED,
    Operands,
    address,
    flag,
    form,
    pair,
    set_to,
)

_SHUFFLES = {"idx": "Index", "up": "Up", "down": "Down", "bfly": "Xor"}
_BAR = r"(?:bar|barrier(?:\.cta)?)"


def _shuffle(found: re.Match[str], operands: Operands) -> str:
    target, inside = pair(operands[0])
    kind = f"emu::Shuffle::k{_SHUFFLES[found['kind']]}"
    call = f"emu::ptx::shuffle({kind}, {', '.join(operands[1:])}, __LINE__)"
    if not inside:
        return set_to(target, f"{call}.value")
    return f"{{ auto s_ = {call}; {set_to(target, 's_.value')} {inside} = s_.inside; }}"


def _vote(found: re.Match[str], operands: Operands) -> str:
    target, predicate, mask = operands
    return set_to(target, f"emu::ptx::vote_{found['kind']}({mask}, {predicate}, __LINE__)")


def _elect(_found: re.Match[str], operands: Operands) -> str:
    lane, chosen = pair(operands[0])
    call = f"emu::ptx::elected({operands[1]}, __LINE__)"
    return f"{{ auto l_ = {call}; {set_to(lane, 'l_')} {chosen} = l_ == emu::now->lane; }}"


def _arrive(found: re.Match[str], operands: Operands) -> str:
    state, where, *more = operands
    number = more[0] if more else "1"
    count, expected = ("1", number) if found["expect"] else (number, "0")
    how = f"{flag(found['drop'])}, {flag(found['open'])}"
    numbers = f"{address(where)}, {count}, {expected}, {how}"
    return set_to(state, f"emu::ptx::mbarrier_arrive({numbers}, __LINE__)")


def _arrive_in_cluster(found: re.Match[str], operands: Operands) -> str:
    """Of arrivals at another block there is no state (PTX ISA, "mbarrier.arrive")."""
    where, number = address(operands[1]), operands[2] if len(operands) > 2 else "1"
    count, expected = ("1", number) if found["expect"] else (number, "0")
    numbers = f"{where}, {count}, {expected}, {flag(found['drop'])}"
    return f"emu::ptx::mbarrier_arrive_in_cluster({numbers}, __LINE__);"


def _wait(found: re.Match[str], operands: Operands) -> str:
    numbers = f"{address(operands[1])}, {operands[2]}"
    how = f"{flag(found['parity'])}, {flag(found['try'])}"
    return f"{operands[0]} = emu::ptx::mbarrier_wait({numbers}, {how}, __LINE__);"


FORMS = (
    form(rf"{_BAR}\.sync(?:\.aligned)?", "emu::ptx::barrier({0}, 0, true, __LINE__);", 1),
    form(rf"{_BAR}\.sync(?:\.aligned)?", "emu::ptx::barrier({0}, {1}, true, __LINE__);", 2),
    form(rf"{_BAR}\.arrive(?:\.aligned)?", "emu::ptx::barrier({0}, {1}, false, __LINE__);", 2),
    form(r"bar\.warp\.sync", "emu_sync_warp(__LINE__, {0});", 1),
    form(rf"barrier\.cluster\.arrive{ORDER}(?:\.aligned)?", "emu::cluster_arrive(__LINE__);"),
    form(rf"barrier\.cluster\.wait{ORDER}(?:\.aligned)?", "emu::cluster_wait(__LINE__);"),
    form(r"shfl\.sync\.(?P<kind>idx|up|down|bfly)\.b32", _shuffle, 5),
    form(r"vote\.sync\.(?P<kind>ballot)\.b32", _vote, 3),
    form(r"vote\.sync\.(?P<kind>all|any|uni)\.pred", _vote, 3),
    form(r"activemask\.b32", "emu::ptx::set({0}, emu::active_mask(__LINE__));", 1),
    form(r"elect\.sync", _elect, 2),
    form(rf"mbarrier\.init{SHARED}\.b64", "emu::ptx::mbarrier_init({a[0]}, {1}, __LINE__);", 2),
    form(rf"mbarrier\.inval{SHARED}\.b64", "emu::ptx::mbarrier_inval({a[0]}, __LINE__);", 1),
    form(
        rf"mbarrier\.arrive(?P<drop>_drop)?(?P<expect>\.expect_tx)?(?P<open>\.noComplete)?"
        rf"{ORDER}(?:\.shared(?:::cta)?)?\.b64",
        _arrive,
        2,
        3,
    ),
    form(
        rf"mbarrier\.arrive(?P<drop>_drop)?(?P<expect>\.expect_tx)?{ORDER}\.shared::cluster\.b64",
        _arrive_in_cluster,
        2,
        3,
    ),
    form(
        r"mapa\.shared::cluster\.u32",
        "emu::ptx::set({0}, emu::map_to_peer({1}, {2}, __LINE__));",
        3,
    ),
    form(
        r"mbarrier\.pending_count\.b64",
        "emu::ptx::set({0}, emu::ptx::mbarrier_pending_count({1}));",
        2,
    ),
    form(
        rf"mbarrier\.expect_tx{ORDER}{SHARED}\.b64",
        "emu::ptx::mbarrier_expect({a[0]}, {1}, __LINE__);",
        2,
    ),
    form(
        rf"mbarrier\.complete_tx{ORDER}{SHARED}\.b64",
        "emu::ptx::mbarrier_complete({a[0]}, {1}, __LINE__);",
        2,
    ),
    form(
        rf"mbarrier\.(?:test|(?P<try>try))_wait(?P<parity>\.parity)?{ORDER}{SHARED}\.b64",
        _wait,
        3,
        4,
    ),
    form(
        r"setmaxnreg\.(?P<way>inc|dec)\.sync\.aligned\.u32",
        "emu::ptx::set_registers({0}, __LINE__);",
        1,
    ),
)
