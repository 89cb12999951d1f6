"""Property tests draw the same examples each time, so that a passing revision goes on passing.

`make fuzz` draws others.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("fuzz", derandomize=False, print_blob=True)
settings.load_profile("steady")
