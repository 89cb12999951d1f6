// Instructions on matrices that a warp holds in its registers.
#pragma once

#include "machine.hpp"

namespace emu::ptx {

struct Shape {
  int m, n, k;
};
enum class Kind { kF16, kBf16, kTf32, kF32, kF64, kS8, kU8, kS32, kE4m3, kE5m2 };

EMU_HIDDEN void ldmatrix(uint32_t* const* registers, int count, bool turned, uint32_t address,
                         int line);
EMU_HIDDEN uint32_t movmatrix(uint32_t word, int line);
EMU_HIDDEN void stmatrix(const uint32_t* registers, int count, bool turned, uint32_t address,
                         int line);
// The registers of each operand; those of `d` are places.
EMU_HIDDEN void mma(Shape shape, Kind d_kind, Kind a_kind, Kind b_kind, Kind c_kind,
                    void* const* d, const uint64_t* a, const uint64_t* b, const uint64_t* c, int nd,
                    int na, int nb, int nc, int line);

// One element of a register, widened, and the other way.
EMU_HIDDEN double element(Kind kind, const uint64_t* registers, int index);
EMU_HIDDEN float widened(Kind kind, uint32_t bits);
EMU_HIDDEN int elements_of(Kind kind);  // in a register

}  // namespace emu::ptx
