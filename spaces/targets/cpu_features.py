"""Which CPU to compile for, from what the processor itself says that it can do.

LLVM names a CPU by the number of its model, which hypervisors hide or make up. Which instructions
there are it asks of the processor (CPUID) and of the operating system (whether it saves the
registers), and that is what counts here. A hypervisor can hide instructions and cannot add any: a
name whose CPU lacks what the processor has is wrong, one that has more is right, and what is hidden
is switched off.

The library `archspec` looks for CPUs all of whose features are there, which makes a Zen 2 of a
Zen 3 that hides its memory protection keys. It also has a vocabulary of its own, where LLVM must be
told what differs from its own table of each CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

FeaturesOf = Callable[[str, tuple[str, ...]], frozenset[str]]
"""What LLVM believes of a CPU, by its name and what is added (`+avx512fp16`), with all that the
additions build on."""

Reported = Mapping[str, bool]
"""Features in LLVM's words, and whether they are there. Nothing is known of those it leaves out:
on ARM that is most of them, on x86 none."""

_NOT_IN_KERNELS = frozenset(
    {
        # Of the operating system, of locks and of memory that is no RAM. Some are there or not by
        # a setting of the kernel or of the hypervisor.
        *{"clflushopt", "cldemote", "clwb", "clzero", "cmpccxadd", "enqcmd", "fsgsbase", "fxsr"},
        *{"hreset", "invpcid", "kl", "lwp", "movdir64b", "movdiri", "mwaitx", "pconfig", "pku"},
        *{"prefetchi", "ptwrite", "raoint", "rdpid", "rdpru", "rtm", "serialize", "sgx", "shstk"},
        *{"tsxldtrk", "uintr", "usermsr", "waitpkg", "wbnoinvd", "widekl"},
        *{"xsave", "xsavec", "xsaveopt", "xsaves"},
        # Random numbers, ciphers and checksums.
        *{"aes", "crc", "crc32", "crypto", "pclmul", "rand", "rdrnd", "rdseed", "sha", "sha2"},
        *{"sha3", "sha512", "sm3", "sm4", "vaes", "vpclmulqdq"},
    }
)
"""Instructions that are in no kernel, whatever compiles it. Machines that differ in nothing else
are alike."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What to compile for.

    Attributes:
        mcpu: LLVM's name of the CPU.
        mattr: what else is there (`+avx512fp16`), then what is not (`-avx512f`). LLVM reads them
            in this order, and drops with a feature all that build on it.
    """

    mcpu: str
    mattr: tuple[str, ...] = ()


def processor(
    named: str,
    reported: Reported,
    features_of: FeaturesOf,
    others: Iterable[str] = (),
) -> Processor:
    """The processor that has the reported features.

    Args:
        named: LLVM's guess of the CPU's name.
        reported: what the processor says of itself.
        others: names to choose from where the guess lacks something, oldest first; none where only
            some features are reported, since what such a CPU has beyond them may not be there.
    """
    has, missing = _kernels(reported)
    name = named
    if has - features_of(named, ()):
        name = min([named, *others], key=lambda other: _apart(features_of(other, ()), reported))
    more = tuple(sorted(f"+{feature}" for feature in has - features_of(name, ())))
    less = sorted(f"-{feature}" for feature in missing & features_of(name, more))
    return Processor(name, (*more, *less))


def lacking(used: Iterable[str], reported: Reported) -> tuple[str, ...]:
    """What code that uses these features would miss on a processor."""
    return tuple(sorted(_kernels(reported)[1].intersection(used)))


def of_kernels(reported: Reported) -> tuple[str, ...]:
    """The features that are there and that kernels may use, sorted."""
    return tuple(sorted(_kernels(reported)[0]))


def _kernels(reported: Reported) -> tuple[frozenset[str], frozenset[str]]:
    """What kernels may use, and what they must not."""
    known = {f: there for f, there in reported.items() if f not in _NOT_IN_KERNELS}
    has = frozenset(f for f, there in known.items() if there)
    return has, frozenset(known) - has


def _apart(believed: frozenset[str], reported: Reported) -> int:
    """In how many features a CPU differs from what was reported, be they of kernels or not."""
    return sum((feature in believed) != there for feature, there in reported.items())
