"""The number of threads that kernels run with in our processes, and their binding to CPUs."""

from __future__ import annotations


def thread_variables(threads: int) -> dict[str, str]:
    """Variables of a process in which TVM runs kernels, to be set before it runs the first.

    A library sets up the same by itself (`library_threads.c`): as many threads, none of them bound
    to a CPU. TVM would bind its workers and leave the calling thread free to share their cores.
    """
    return {"TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}
