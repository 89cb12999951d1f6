"""What kernels are compiled with."""

from __future__ import annotations

from spaces.ir import tvm_compat


def toolchain_fingerprint() -> str:
    """Versions that change a kernel, that of our own passes among them."""
    import tvm
    import tvm_ffi

    from spaces.passes.cpu_passes import VERSION

    stock = f"tvm={tvm.__version__} ffi={tvm_ffi.__version__} llvm={tvm_compat.llvm_version()}"
    return f"{stock} passes={VERSION}"
