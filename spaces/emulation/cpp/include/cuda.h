// What CUDA C++ knows without an include, and the driver's tensor map, for the emulated device.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../launch.hpp"
#include "vector_types.h"

#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

#define threadIdx (emu::now->index)
#define blockIdx (emu::block_index)
#define blockDim (emu::block_extent)
#define gridDim (emu::grid_extent)
#define warpSize 32

#define __syncthreads() emu::sync_threads(__LINE__)
#define __syncthreads_count(p) emu::sync_threads_count((p), __LINE__)
#define __syncthreads_or(p) (emu::sync_threads_count((p), __LINE__) != 0)
#define __syncthreads_and(p) (emu::sync_threads_count(!(p), __LINE__) == 0)

struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};

#include "narrow_float.h"
#include "math_functions.h"
#include "warp_functions.h"
#include "ptx.h"
