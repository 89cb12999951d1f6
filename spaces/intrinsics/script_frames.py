"""TVMScript in a module that is being imported, parsed without asking every other module.

For each function TVM's parser takes the whole stack (`inspect.stack`), and of a frame whose code
is of no file `inspect` asks all modules of the process whether it is theirs, to learn that it is
nobody's. While a module is imported there are some of importlib's. Of 17 s that
`tvm.s_tir.tensor_intrin` took in a process with 1,100 modules 14 went there, and more where a user
has imported more.
"""

from __future__ import annotations

import inspect

_OF_NO_FILE = (
    *("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"),
    *("<frozen runpy>", "<string>", "<stdin>", "<ast>"),
)
_NOBODY = ""


def know_frames_of_no_file() -> None:
    """Have `inspect` know at once that code of these names is no module's, from now on."""
    inspect.modulesbyfile.update(dict.fromkeys(_OF_NO_FILE, _NOBODY))
