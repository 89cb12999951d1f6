// `__dp4a`, which `math_functions.h` has.
#pragma once
