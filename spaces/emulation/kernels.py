"""CUDA C of a library's kernels made into C++ for the emulated device.

What C++ has no word for is replaced: arrays in shared memory, and assembly
(`spaces.emulation.assembly`). The rest, such as `threadIdx` or `half`, is in the headers of
`cpp/include`. Lines keep their numbers, which errors name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from spaces.emulation.assembly import without_assembly
from spaces.emulation.charges import charge

_KERNEL = re.compile(
    r"__global__\s+void\s+(?:__launch_bounds__\((?P<most>[^)]*)\)\s*|__maxnreg__\([^)]*\)\s*|"
    r"__cluster_dims__\((?P<cluster>[^)]*)\)\s*)*"
    r"(?P<name>\w+)\s*\("
)
_SHARED = re.compile(
    r"(?P<extern>extern\s+)?__shared__\s+"
    r"(?:(?:alignas|__align__)\((?P<align>\d+)\)\s*)?"
    r"(?P<type>[\w:]+(?:\s+[\w:]+)*?)\s+(?P<names>\w+\s*(?:\[[^\]]*\]\s*)*"
    r"(?:,\s*\w+\s*(?:\[[^\]]*\]\s*)*)*);"
)
_OWN = re.compile(r"(?=\b__global__\b)")
"""Where a kernel begins."""
_DEFINITION = re.compile(
    r"(?P<head>__global__\s[^;{]*?\b\w+\s*\((?P<parameters>[^;{]*)\)\s*)"
    r"(?P<body>\{\n.*?)(?=\nextern|\Z)",
    re.DOTALL,
)
_FLOAT = re.compile(r"\b(?:float|double|half|__half|nv_bfloat16)\s*\*?\s*(?:__restrict__\s*)?(\w+)")
_ACCESS = re.compile(
    r"\*\s*(?:\((?:const\s+)?(?P<cast>\w+[1248])\s*\*\)\(|"
    r"reinterpret_cast<(?:const\s+)?(?P<named>\w+[1248])\s*\*>\()"
)
"""The start of an access by the pointer to a vector that a pointer is cast to."""
_USUAL_ALIGNMENT = 16
_PLACES = 64
"""Places that are told apart in a line, as in `cpp/banks.cpp`."""


@dataclass(frozen=True, slots=True)
class SharedArray:
    """An array in shared memory, of a size that is known.

    Attributes:
        type: its type as C++ writes one without a name, such as `float[768]`.
        alignment: in bytes.
    """

    name: str
    type: str
    alignment: int


@dataclass(slots=True)
class _Kernel:
    name: str
    most_threads: int
    cluster: tuple[int, ...]
    arrays: list[SharedArray] = field(default_factory=list)


def translate(source: str, target: str = "", *, watched: bool = False) -> str:
    """C++ that exports each kernel of CUDA C as a packed function of its name.

    Args:
        target: a text that the library keeps.
        watched: whether elements of shared arrays are watched, too (`cpp/banks.hpp`).

    Raises:
        ValueError: it has assembly, or shared memory in a place, that the emulated device does not
            know; the text names it.
    """
    kernels = {kernel.name: kernel for kernel in _kernels(source)}
    source = without_assembly(source)
    source = _check_alignment(_fit_casts(_DEFINITION.sub(_charge, source)))
    body = _SHARED.sub(lambda found: _declare(found, source, kernels), source)
    if watched:
        body = _watch_elements(body, source)
    forward = "".join(f"static size_t {name}_place(int); " for name in kernels)
    head = f'#include "kernels.h"\n{forward}\n#line 1 "kernels.cu"\n'
    kept = f'const char* const emu::target_text = R"kept({target})kept";'
    return "\n".join([head + body, *map(_export, kernels.values()), kept, ""])


def _fit_casts(source: str) -> str:
    """Casts of floats to integers become ones that a device's are like: what does not fit is the
    nearest that does. Only a name, or the call of a function, is seen to be a float."""
    names = "|".join(sorted({*_FLOAT.findall(source)}))
    operand = rf"\(*(?:{names})\b" if names else "(?!)"
    return re.sub(
        rf"(?<=[(,;=] )\((int|unsigned|uint|int64_t)\)(?={operand}|\w+f\()|"
        rf"(?<=[(,;=])\((int|unsigned|uint|int64_t)\)(?={operand}|\w+f\()",
        lambda found: f"emu::Fitting<{found[1] or found[2]}>{{}} ->* ",
        source,
    )


def _check_alignment(source: str) -> str:
    """Accesses to vectors ask whether the address is one that a device takes."""
    return _ACCESS.sub(
        lambda found: f"*emu::aligned<{found['cast'] or found['named']}>(__LINE__, ", source
    )


def _charge(found: re.Match[str]) -> str:
    return found["head"] + charge(found["body"], found["parameters"])


def _kernels(source: str) -> Iterator[_Kernel]:
    known = set()
    for found in _KERNEL.finditer(source):
        if found["name"] not in known:
            known.add(found["name"])
            most = (found["most"] or "0").split(",")[0].strip()
            cluster = [int(size) for size in (found["cluster"] or "1").split(",")]
            yield _Kernel(found["name"], int(most), (*cluster, 1, 1)[:3])


def _declare(found: re.Match[str], source: str, kernels: dict[str, _Kernel]) -> str:
    """The declaration of arrays in shared memory as one of pointers, or of references."""
    names, kind = [name.strip() for name in found["names"].split(",")], found["type"]
    if found["extern"]:
        name = names[0].partition("[")[0].strip()
        return f"{kind}* const {name} = static_cast<{kind}*>(emu::dynamic_shared());"
    owner = None
    for kernel in _KERNEL.finditer(source, 0, found.start()):
        owner = kernels[kernel["name"]]
    if owner is None:
        raise ValueError(
            f"the emulated device does not know shared memory outside of kernels: {names[0]}"
        )
    return " ".join(_reference(owner, name, kind, found["align"]) for name in names)


def _watch_elements(body: str, source: str) -> str:
    """Uses of elements of shared arrays say where they are; those of their addresses do not. Other
    kernels may have other arrays of the same names."""
    numbers, each = count(), (_OWN.split(text) for text in (body, source))
    return "".join(_watch_own(part, before, numbers) for part, before in zip(*each, strict=True))


def _watch_own(body: str, source: str, numbers: Iterator[int]) -> str:
    declared = [name for found in _SHARED.finditer(source) for name in found["names"].split(",")]
    names = "|".join(sorted({name.partition("[")[0].strip() for name in declared}))
    if not names:
        return body

    def watch(found: re.Match[str]) -> str:
        return f"emu::watch(__LINE__ * {_PLACES} + {next(numbers) % _PLACES}, {found['array']})["

    array = rf"(?P<array>\(\((?:const )?[\w ]+\*\)(?:{names})\)|\b(?:{names}))\["
    return re.sub(rf"(?<!&\(){array}", watch, body)


def _reference(owner: _Kernel, declared: str, kind: str, alignment: str | None) -> str:
    name, bracket, dims = declared.partition("[")
    name = name.strip()
    whole = SharedArray(name, kind + bracket + dims, int(alignment or _USUAL_ALIGNMENT))
    owner.arrays.append(whole)
    place = f"emu::static_shared({owner.name}_place({len(owner.arrays) - 1}))"
    return f"auto& {name} = *static_cast<std::type_identity_t<{whole.type}>*>({place});"


def _export(kernel: _Kernel) -> str:
    """The packed function of a kernel, with where its arrays lie in shared memory."""
    arrays = ", ".join(
        f'emu::Array{{"{a.name}", sizeof({a.type}), {a.alignment}}}' for a in kernel.arrays
    )
    name, count = kernel.name, len(kernel.arrays)
    return (
        f"static constexpr auto {name}_layout = "
        f"emu::laid_out(std::array<emu::Array, {count}>{{{arrays}}});\n"
        f"static size_t {name}_place(int i) {{ return {name}_layout.places[i]; }}\n"
        f"EMU_KERNEL({name}, {kernel.most_threads}, {name}_layout.bytes, {name}_layout.zones, "
        f"{', '.join(map(str, kernel.cluster))})"
    )
