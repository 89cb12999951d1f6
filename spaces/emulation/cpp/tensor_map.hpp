// Tensor maps: how tiles of a tensor in global memory lie in shared memory.
#pragma once

#include <vector>

#include "machine.hpp"

namespace emu::ptx {

enum class Swizzle : uint8_t { kNone, k32, k64, k128 };

// What the emulated device keeps in the 128 bytes of a `CUtensorMap`.
struct TensorMap {
  uint64_t mark;
  char* global;
  uint64_t sizes[5];
  uint64_t strides[4];  // in bytes, of all dimensions but the first
  uint16_t box[5];
  uint8_t rank, element_bytes;
  Swizzle swizzle;
  bool nan_outside;
  bool rounds;  // float32 to TF32
  uint32_t tile_bytes() const;
};
static_assert(sizeof(TensorMap) <= 128);

// A run of bytes that lies together in both memories; `global` is null outside of the tensor.
struct Run {
  uint32_t shared;
  char* global;
  uint32_t bytes;
  bool rounds = false;  // see `TensorMap`
};

EMU_HIDDEN const TensorMap& tensor_map(uint64_t address, int rank, int line);
EMU_HIDDEN std::vector<Run> runs_of(const TensorMap& map, const int32_t* coordinates,
                                    uint32_t shared, int line);

// Where a byte of a swizzled pattern lies: units of 16 bytes change places by the bits of the
// address above them (PTX ISA, "Tensor: Swizzling Modes").
inline uint32_t swizzled(Swizzle swizzle, uint32_t address) {
  uint32_t mask = swizzle == Swizzle::kNone ? 0
                  : swizzle == Swizzle::k32 ? 1
                  : swizzle == Swizzle::k64 ? 3
                                            : 7;
  return address ^ ((address >> 7 & mask) << 4);
}

}  // namespace emu::ptx
