"""The contract of a library, for the example and for a library that has one program's function."""

from __future__ import annotations

import pytest

from examples.numpy_blas import NumpyBlas
from tests.spaces.libraries.cumsum import Sums, cumsum
from tuner.testing import LibraryContract

pytestmark = pytest.mark.tvm


class TestExample(LibraryContract):
    made = NumpyBlas


class TestSums(LibraryContract):
    made = Sums
    programs = (cumsum(4, 32),)
