// Half precision, as CUDA names it.
#pragma once

#include "cuda.h"
#include "narrow_float.h"

using __half = emu::Narrow<emu::Fp16>;
using half = __half;
using __half2 = emu::Narrow2<emu::Fp16>;
using half2 = __half2;
struct __half_raw { unsigned short x; };

inline half __float2half(float x) { return x; }
inline half __float2half_rn(float x) { return x; }
inline half __double2half(double x) { return x; }
inline float __half2float(half x) { return x; }
inline half __float2half_rz(float x) {
  return half::of(emu::narrowed<emu::Fp16>(x, emu::Way::kZero));
}
inline half __float2half_rd(float x) {
  return half::of(emu::narrowed<emu::Fp16>(x, emu::Way::kDown));
}
inline half __float2half_ru(float x) {
  return half::of(emu::narrowed<emu::Fp16>(x, emu::Way::kUp));
}
inline int __half2int_rn(half x) { return __float2int_rn(x); }
inline int __half2int_rz(half x) { return __float2int_rz(x); }
inline int __half2int_rd(half x) { return __float2int_rd(x); }
inline int __half2int_ru(half x) { return __float2int_ru(x); }
inline half __int2half_rz(int x) { return __float2half_rz(emu::towards_zero(x)); }
inline half __int2half_rd(int x) { return __float2half_rd(emu::down(x)); }
inline half __int2half_ru(int x) { return __float2half_ru(emu::up(x)); }
inline half __int2half_rn(int x) { return x; }
inline half __uint2half_rn(unsigned x) { return x; }
inline unsigned __half2uint_rz(half x) { return __float2uint_rz(x); }
inline unsigned short __half_as_ushort(half x) { return x.bits(); }
inline short __half_as_short(half x) { return static_cast<short>(x.bits()); }
inline half __ushort_as_half(unsigned short x) { return half::of(x); }
inline half __short_as_half(short x) { return half::of(static_cast<unsigned short>(x)); }

inline half2 make_half2(half x, half y) { return {x, y}; }
inline half2 __halves2half2(half x, half y) { return {x, y}; }
inline half2 __half2half2(half x) { return {x, x}; }
inline half2 __float2half2_rn(float x) { return {half(x), half(x)}; }
inline half2 __floats2half2_rn(float x, float y) { return {half(x), half(y)}; }
inline half2 __float22half2_rn(float2 x) { return {half(x.x), half(x.y)}; }
inline float2 __half22float2(half2 x) { return {float(x.x), float(x.y)}; }
inline float __low2float(half2 x) { return x.x; }
inline float __high2float(half2 x) { return x.y; }
