// What each program of kernels begins with; kept compiled, and so under a name that none includes.
#pragma once

#include "cuda.h"
