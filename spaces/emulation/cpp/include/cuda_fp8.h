// Floats of 8 bits, as CUDA names them (CUDA Math API, "FP8 Intrinsics").
#pragma once

#include "byte_float.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef uint8_t __nv_fp8_storage_t;
typedef uint16_t __nv_fp8x2_storage_t;
typedef uint32_t __nv_fp8x4_storage_t;

namespace emu {

template <class Format>
struct Byte {
  uint8_t __x;
  Byte() = default;
  explicit Byte(float value) : __x(Format::narrowed(value)) {}
  template <class T>
    requires std::is_convertible_v<T, float>
  explicit Byte(T value) : Byte(static_cast<float>(value)) {}
  explicit operator float() const { return Format::widened(__x); }
  template <class T>
    requires std::is_constructible_v<T, float>
  explicit operator T() const {
    return static_cast<T>(Format::widened(__x));
  }
};

template <class Format>
struct alignas(2) Byte2 {
  uint16_t __x;
  Byte2() = default;
  explicit Byte2(float2 value) : Byte2(value.x, value.y) {}
  template <class N>
  explicit Byte2(Narrow2<N> value) : Byte2(float(value.x), float(value.y)) {}
  explicit operator float2() const { return {at(0), at(1)}; }
  template <class N>
  explicit operator Narrow2<N>() const {
    return {Narrow<N>(at(0)), Narrow<N>(at(1))};
  }

 private:
  Byte2(float x, float y)
      : __x(static_cast<uint16_t>(Format::narrowed(x) | Format::narrowed(y) << 8)) {}
  float at(int i) const { return Format::widened(static_cast<uint8_t>(__x >> 8 * i)); }
};

template <class Format>
struct alignas(4) Byte4 {
  uint32_t __x;
  Byte4() = default;
  explicit Byte4(float4 value) {
    const float all[] = {value.x, value.y, value.z, value.w};
    __x = 0;
    for (int i = 0; i < 4; ++i) __x |= static_cast<uint32_t>(Format::narrowed(all[i])) << 8 * i;
  }
  explicit operator float4() const {
    float all[4];
    for (int i = 0; i < 4; ++i) all[i] = Format::widened(static_cast<uint8_t>(__x >> 8 * i));
    return {all[0], all[1], all[2], all[3]};
  }
};

}  // namespace emu

using __nv_fp8_e4m3 = emu::Byte<emu::E4m3>;
using __nv_fp8x2_e4m3 = emu::Byte2<emu::E4m3>;
using __nv_fp8x4_e4m3 = emu::Byte4<emu::E4m3>;
using __nv_fp8_e5m2 = emu::Byte<emu::E5m2>;
using __nv_fp8x2_e5m2 = emu::Byte2<emu::E5m2>;
using __nv_fp8x4_e5m2 = emu::Byte4<emu::E5m2>;

using __nv_fp8_e8m0 = emu::Byte<emu::E8m0>;
using __nv_fp8x2_e8m0 = emu::Byte2<emu::E8m0>;
using __nv_fp8x4_e8m0 = emu::Byte4<emu::E8m0>;
