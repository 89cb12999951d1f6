// Tensor maps, made by host code with `runtime.cuTensorMapEncodeTiled` (CUDA driver API, "Tensor
// Map Object Managment": what is refused is what the driver refuses), and read by copies of tiles
// (PTX ISA, "Tensor").
#include "tensor_map.hpp"

#include <tvm/ffi/c_api.h>

#include <cstdio>
#include <string>

namespace emu::ptx {
namespace {

constexpr uint64_t kMark = 0x74656e736f726d61;
constexpr int64_t kOfElements = -1, kTfloat32 = 11;  // of `CUtensorMapDataType`

struct Refused {
  std::string why;
};

int64_t taken(const TVMFFIAny* arguments, int32_t count, int32_t& place) {
  if (place >= count) return 0;
  return arguments[place++].v_int64;
}

// The bytes of an element, from a text such as "float16", or from a type.
int element_bytes(const TVMFFIAny& kind) {
  if (kind.type_index == kTVMFFIDataType) return (kind.v_dtype.bits + 7) / 8;
  const char* text = kind.type_index == kTVMFFIRawStr     ? kind.v_c_str
                     : kind.type_index == kTVMFFISmallStr ? kind.v_bytes
                     : kind.type_index == kTVMFFIStr ? TVMFFIBytesGetByteArrayPtr(kind.v_obj)->data
                                                     : "";
  std::string name = text;
  if (name.rfind("float8", 0) == 0) return 1;
  size_t digits = name.find_first_of("0123456789");
  return digits == std::string::npos ? 0 : std::atoi(name.c_str() + digits) / 8;
}

std::string wrong(const TensorMap& map) {
  static const uint32_t spans[] = {256 * 8, 32, 64, 128};
  if (map.rank < 1 || map.rank > 5) return "a rank of 1 to 5";
  if (reinterpret_cast<uint64_t>(map.global) % 16) return "a tensor at a multiple of 16 bytes";
  for (int i = 0; i + 1 < map.rank; ++i) {
    if (map.strides[i] % 16 || map.strides[i] >= 1ull << 40)
      return "strides that are multiples of 16 bytes";
  }
  for (int i = 0; i < map.rank; ++i) {
    if (map.sizes[i] == 0 || map.sizes[i] > 1ull << 32) return "sizes of 1 to 2^32";
    if (map.box[i] == 0 || map.box[i] > 256) return "boxes of 1 to 256";
  }
  uint32_t inner = map.box[0] * map.element_bytes;
  if (inner % 16) return "an inner box that is a multiple of 16 bytes";
  if (inner > spans[static_cast<int>(map.swizzle)]) return "an inner box no wider than the swizzle";
  return "";
}

// (map, type, rank, tensor, sizes, strides, boxes, element strides, interleave, swizzle, L2
// promotion, fill, and perhaps the driver's number of another type), as TVM's runtime takes them.
std::string encode(const TVMFFIAny* arguments, int32_t count) {
  TensorMap map{};
  int rank = count > 3 ? static_cast<int>(arguments[2].v_int64) : 0;
  if (rank < 1 || rank > 5 || count < 4 + 4 * rank + 3) return "the arguments of a tensor map";
  map.mark = kMark;
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = static_cast<uint8_t>(element_bytes(arguments[1]));
  map.global = static_cast<char*>(arguments[3].v_ptr);
  int32_t place = 4;
  for (int i = 0; i < rank; ++i)
    map.sizes[i] = static_cast<uint64_t>(taken(arguments, count, place));
  for (int i = 0; i + 1 < rank; ++i)
    map.strides[i] = static_cast<uint64_t>(taken(arguments, count, place));
  for (int i = 0; i < rank; ++i) map.box[i] = static_cast<uint16_t>(taken(arguments, count, place));
  for (int i = 0; i < rank; ++i) {
    if (taken(arguments, count, place) != 1)
      return "element strides of 1, which alone the emulated device knows";
  }
  if (taken(arguments, count, place) != 0)
    return "no interleave, which the emulated device does not know";
  int64_t swizzle = taken(arguments, count, place);
  if (swizzle < 0 || swizzle > 3) return "a swizzle of 0 to 3";
  map.swizzle = static_cast<Swizzle>(swizzle);
  taken(arguments, count, place);
  map.nan_outside = taken(arguments, count, place) != 0;
  if (map.nan_outside) return "zeros outside of the tensor, which alone the emulated device knows";
  int64_t kind = place < count ? taken(arguments, count, place) : kOfElements;
  map.rounds = kind == kTfloat32;
  if (kind != kOfElements && !(map.rounds && map.element_bytes == 4))
    return "its elements' type or, of float32, TF32";
  if (map.element_bytes == 0) return "a type whose size is known";
  memcpy(arguments[0].v_ptr, &map, sizeof map);
  return wrong(map);
}

// The row of a tile at these places of all dimensions but the first.
void add_row(std::vector<Run>& runs, const TensorMap& map, const int32_t* coordinates,
             const uint32_t* at, uint32_t shared) {
  uint32_t bytes = map.box[0] * map.element_bytes;
  char* row = map.global;
  bool inside = true;
  for (int i = 1; i < map.rank; ++i) {
    int64_t place = int64_t{coordinates[i]} + at[i];
    inside = inside && place >= 0 && place < static_cast<int64_t>(map.sizes[i]);
    row += place * static_cast<int64_t>(map.strides[i - 1]);
  }
  // Units of 16 bytes stay together, and may lie in part outside of the tensor.
  for (uint32_t unit = 0; unit < bytes; unit += 16) {
    uint32_t to = swizzled(map.swizzle, shared + unit);
    for (uint32_t i = 0; i < 16; i += map.element_bytes) {
      int64_t place = int64_t{coordinates[0]} + (unit + i) / map.element_bytes;
      bool is_in = inside && place >= 0 && place < static_cast<int64_t>(map.sizes[0]);
      char* from = is_in ? row + place * map.element_bytes : nullptr;
      Run* last = i ? &runs.back() : nullptr;
      if (last && (last->global != nullptr) == is_in) last->bytes += map.element_bytes;
      else runs.push_back({to + i, from, map.element_bytes, map.rounds});
    }
  }
}

}  // namespace

uint32_t TensorMap::tile_bytes() const {
  uint32_t bytes = element_bytes;
  for (int i = 0; i < rank; ++i) bytes *= box[i];
  return bytes;
}

const TensorMap& tensor_map(uint64_t address, int rank, int line) {
  auto* map = reinterpret_cast<const TensorMap*>(address);
  if (address % 64 || map->mark != kMark)
    fail("RuntimeError", "a copy of a tile without a tensor map, line %d", line);
  if (map->rank != rank)
    fail("RuntimeError", "a copy of a tile of %d dimensions, of a tensor of %d, line %d", rank,
         map->rank, line);
  return *map;
}

std::vector<Run> runs_of(const TensorMap& map, const int32_t* coordinates, uint32_t shared,
                         int line) {
  if (shared % 128)
    fail("RuntimeError", "a tile in shared memory at %u, which is no multiple of 128, line %d",
         shared, line);
  // Measured on an H100: an illegal instruction. Strides are multiples of 16 bytes already.
  if (coordinates[0] * int64_t{map.element_bytes} % 16) {
    fail("RuntimeError",
         "illegal instruction: a tile begins at element %d of its rows, of %d bytes each, which is "
         "no multiple of 16 bytes, line %d",
         coordinates[0], map.element_bytes, line);
  }
  from_shared(shared, map.tile_bytes());
  std::vector<Run> runs;
  uint32_t row_bytes = map.box[0] * map.element_bytes, rows = map.tile_bytes() / row_bytes;
  for (uint32_t number = 0; number < rows; ++number) {
    uint32_t at[5] = {}, rest = number;
    for (int i = 1; i < map.rank; ++i) {
      at[i] = rest % map.box[i];
      rest /= map.box[i];
    }
    add_row(runs, map, coordinates, at, shared + number * row_bytes);
  }
  return runs;
}

}  // namespace emu::ptx

extern "C" __attribute__((visibility("default"))) int encode_tensor_map(
    void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result)
    asm("__tvm_ffi_runtime.cuTensorMapEncodeTiled");
int encode_tensor_map(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  std::string why = emu::ptx::encode(arguments, count);
  if (why.empty()) return 0;
  TVMFFIErrorSetRaisedFromCStr("ValueError", ("a tensor map needs " + why).c_str());
  return -1;
}
