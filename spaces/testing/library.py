"""What a library of one's own keeps to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_artifact
from spaces.ir import tvm_compat
from spaces.libraries.calls import candidate_of, make_call
from spaces.libraries.registration import register
from spaces.testing import programs
from tuner.contracts.seams import Provides


class LibraryContract:
    """Subclass it as `Test...` with `made`, which makes a library from nothing; and with
    `programs`, PrimFuncs that it has functions for, where these are not `usual`."""

    made: Callable[[], Provides]
    programs: Sequence[Any] = ()

    def test_it_has_functions_for_some_programs(self) -> None:
        assert self._serve()

    def test_it_names_functions_that_it_has(self) -> None:
        import tvm_ffi

        register(type(self).made())
        missing = {
            symbol
            for _, symbol in self._serve()
            if tvm_ffi.get_global_func(symbol, allow_missing=True) is None
        }
        assert missing == set()

    def test_it_says_the_same_again_and_leaves_programs_as_they_are(self) -> None:
        before = [str(program) for program in self._programs()]
        assert [symbol for _, symbol in self._serve()] == [s for _, s in self._serve()]
        assert [str(program) for program in self._programs()] == before

    def test_its_functions_compute_the_programs_and_leave_their_inputs_alone(self) -> None:
        import tvm

        register(type(self).made())
        for program, symbol in self._serve():
            module = tvm_compat.normalize(program)
            call = make_call(module["main"], candidate_of(symbol, "library:theirs"))
            artifact = build_artifact(tvm_compat.normalize(call), programs.TARGET)
            kernel = load_artifact(artifact)["main"]
            for case in reference(module, symbol).cases:
                count = len(case.arguments)
                tensors = [tvm.runtime.tensor(case.fresh(i)) for i in range(count)]
                kernel(*tensors)
                for i, argument in enumerate(case.arguments):
                    if argument.written:
                        assert case.wrong(i, tensors[i].numpy()) is None
                    else:
                        np.testing.assert_array_equal(tensors[i].numpy(), case.fresh(i))

    def _programs(self) -> Sequence[Any]:
        return [*programs.usual(), *type(self).programs]

    def _serve(self) -> list[tuple[Any, str]]:
        library = type(self).made()
        pairs = [(program, library.symbol(program)) for program in self._programs()]
        return [(program, symbol) for program, symbol in pairs if symbol is not None]
