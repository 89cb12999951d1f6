"""The toolchain that kernels are compiled with."""

from __future__ import annotations

from spaces.ir import tvm_compat


def toolchain_fingerprint() -> str:
    """The versions that kernels depend on, including that of our own passes."""
    import tvm
    import tvm_ffi

    from spaces.passes.cpu_passes import VERSION

    stock = f"tvm={tvm.__version__} ffi={tvm_ffi.__version__} llvm={tvm_compat.llvm_version()}"
    return f"{stock} passes={VERSION}"
