"""Loops of a kernel's machine code.

A loop is what can go on to its first instruction again: natural loops of the graph of jumps (Aho,
Lam, Sethi, Ullman, Compilers, 9.6.6). A jump backwards alone makes none: the compiler moves what
rarely runs, such as waiting once more, behind the end of a kernel, and jumps back from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spaces.codegen.cuda.instructions import CONTROL, ENDS, JUMP, Code


def find_loops(code: Code) -> list[frozenset[int]]:
    """The instructions of each loop, by their numbers; a loop within another is in both."""
    runs = _runs(code)
    after = {start: _successors(code, run, runs) for start, run in runs.items()}
    order = _order(after)
    before: dict[int, list[int]] = {start: [] for start in order}
    for start in order:
        for follower in after[start]:
            before[follower].append(start)
    above = _dominators(order, before)
    bodies: dict[int, set[int]] = {}
    for start in order:
        for first in after[start]:
            if above[start] >> first & 1:
                _collect(bodies.setdefault(first, {first}), start, before)
    return [frozenset(i for start in body for i in runs[start]) for body in bodies.values()]


def _runs(code: Code) -> dict[int, range]:
    """Runs of instructions that are entered at their first and left at their last, by the first."""
    number = len(code.names)
    firsts = {0} | {target for target in code.targets if 0 <= target < number}
    firsts |= {i + 1 for i in range(number - 1) if code.names[i] in CONTROL}
    starts = sorted(firsts)
    return {a: range(a, b) for a, b in zip(starts, [*starts[1:], number], strict=True)}


def _successors(code: Code, run: range, runs: Mapping[int, range]) -> list[int]:
    last = run[-1]
    goes_on = code.conditional[last] or code.names[last] not in ENDS | {JUMP}
    found = [run.stop] if goes_on and run.stop in runs else []
    if code.targets[last] in runs:
        found.append(code.targets[last])
    return found


def _order(after: Mapping[int, Sequence[int]]) -> list[int]:
    """Runs that the kernel's first leads to, each before what it leads to but for loops (reverse
    postorder)."""
    seen, finished, stack = {0}, [], [(0, iter(after[0]))]
    while stack:
        start, followers = stack[-1]
        for follower in followers:
            if follower not in seen:
                seen.add(follower)
                stack.append((follower, iter(after[follower])))
                break
        else:
            finished.append(start)
            stack.pop()
    return finished[::-1]


def _dominators(order: Sequence[int], before: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """For each run those that every way to it goes through, itself included, as bits."""
    every = sum(1 << start for start in order)
    above = dict.fromkeys(order, every) | {0: 1}
    changed = True
    while changed:
        changed = False
        for start in order[1:]:
            found = every
            for one in before[start]:
                found &= above[one]
            found |= 1 << start
            changed |= found != above[start]
            above[start] = found
    return above


def _collect(body: set[int], start: int, before: Mapping[int, Sequence[int]]) -> None:
    """Add to a loop, which holds its first run, all from which one gets to `start` within it."""
    waiting = [start]
    while waiting:
        one = waiting.pop()
        if one not in body:
            body.add(one)
            waiting.extend(before[one])
