"""The toolchain that kernels are compiled with."""

from __future__ import annotations

from spaces.ir import tvm_compat
from spaces.targets.backends import backend_of, load


def toolchain_fingerprint(target: str = "") -> str:
    """The versions that kernels depend on, including that of our own passes.

    Args:
        target: canonical JSON of the target, where its kernels are compiled by more than TVM; empty
            for a CPU's.
    """
    import tvm
    import tvm_ffi

    from spaces.passes.cpu_passes import VERSION

    stock = f"tvm={tvm.__version__} ffi={tvm_ffi.__version__} llvm={tvm_compat.llvm_version()}"
    name = backend_of(target).toolchain if target else ""
    return " ".join([stock, f"passes={VERSION}", *([load(name)(target)] if name else [])])
