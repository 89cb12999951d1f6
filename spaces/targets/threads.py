"""How many threads kernels run with in processes of ours, and how bound: one decision."""

from __future__ import annotations


def thread_variables(threads: int) -> dict[str, str]:
    """Variables of a process in which TVM runs kernels, to be set before it runs the first.

    A library sets up the same by itself (`library_threads.c`): so many threads, none of them bound
    to a CPU. TVM would bind its workers and leave the calling thread free to share their cores.
    """
    return {"TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}
