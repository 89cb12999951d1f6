"""The CPU to compile for, from the features that the processor itself reports.

LLVM names a CPU by its model number, which hypervisors hide or make up. It finds the instructions
by asking the processor (CPUID) and the operating system (whether it saves the registers), and these
answers count here. A hypervisor can hide instructions and cannot add any: a name whose CPU lacks a
reported feature is wrong; one whose CPU has more is right, and the hidden features are switched
off.

The library `archspec` looks for CPUs all of whose features are there, so it takes a Zen 3 that
hides its memory protection keys for a Zen 2. It also has a vocabulary of its own, while LLVM must
be told the differences from its own table of each CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

FeaturesOf = Callable[[str, tuple[str, ...]], frozenset[str]]
"""LLVM's features of a CPU, by its name and added features (`+avx512fp16`), including those that
the additions build on."""

Reported = Mapping[str, bool]
"""Features in LLVM's words, and whether they are there. Features that it leaves out are unknown: on
ARM that is most of them, on x86 none."""

_NOT_IN_KERNELS = frozenset(
    {
        # For operating systems, locks, and memory that is not RAM. Some depend on a setting of the
        # kernel or of the hypervisor.
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
"""Instructions that no kernel uses, whatever compiles it. Machines that differ only in these are
alike."""


@dataclass(frozen=True, slots=True)
class Processor:
    """The processor to compile for.

    Attributes:
        mcpu: LLVM's name of the CPU.
        mattr: features it has besides (`+avx512fp16`), then those it lacks (`-avx512f`). LLVM reads
            them in this order, and drops with a feature all that build on it.
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
        reported: the features that the processor reports.
        others: names to choose from where the guess lacks a feature, oldest first; none where only
            some features are reported, since the others of such a CPU may not be there.
    """
    has, missing = _kernels(reported)
    name = named
    if has - features_of(named, ()):
        name = min([named, *others], key=lambda other: _apart(features_of(other, ()), reported))
    more = tuple(sorted(f"+{feature}" for feature in has - features_of(name, ())))
    less = sorted(f"-{feature}" for feature in missing & features_of(name, more))
    return Processor(name, (*more, *less))


def lacking(used: Iterable[str], reported: Reported) -> tuple[str, ...]:
    """The features in use that a processor is known not to have, sorted."""
    return tuple(sorted(_kernels(reported)[1].intersection(used)))


def of_kernels(reported: Reported) -> tuple[str, ...]:
    """The features that are there and that kernels may use, sorted."""
    return tuple(sorted(_kernels(reported)[0]))


def _kernels(reported: Reported) -> tuple[frozenset[str], frozenset[str]]:
    """The features that kernels may use, and those that they must not."""
    known = {f: there for f, there in reported.items() if f not in _NOT_IN_KERNELS}
    has = frozenset(f for f, there in known.items() if there)
    return has, frozenset(known) - has


def _apart(believed: frozenset[str], reported: Reported) -> int:
    """The number of features, of kernels or not, in which a CPU differs from the reported ones."""
    return sum((feature in believed) != there for feature, there in reported.items())
