// bfloat16, as CUDA names it.
#pragma once

#include "cuda.h"
#include "narrow_float.h"

using __nv_bfloat16 = emu::Narrow<emu::Bf16>;
using nv_bfloat16 = __nv_bfloat16;
using __nv_bfloat162 = emu::Narrow2<emu::Bf16>;
using nv_bfloat162 = __nv_bfloat162;

inline nv_bfloat16 __float2bfloat16(float x) { return x; }
inline nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline nv_bfloat16 __double2bfloat16(double x) { return x; }
inline nv_bfloat16 __float2bfloat16_rz(float x) {
  return nv_bfloat16::of(emu::narrowed<emu::Bf16>(x, emu::Way::kZero));
}
inline nv_bfloat16 __float2bfloat16_rd(float x) {
  return nv_bfloat16::of(emu::narrowed<emu::Bf16>(x, emu::Way::kDown));
}
inline nv_bfloat16 __float2bfloat16_ru(float x) {
  return nv_bfloat16::of(emu::narrowed<emu::Bf16>(x, emu::Way::kUp));
}
inline float __bfloat162float(nv_bfloat16 x) { return x; }
inline unsigned short __bfloat16_as_ushort(nv_bfloat16 x) { return x.bits(); }
inline nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return nv_bfloat16::of(x); }

inline nv_bfloat162 make_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
inline nv_bfloat162 __halves2bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
inline nv_bfloat162 __bfloat162bfloat162(nv_bfloat16 x) { return {x, x}; }
inline nv_bfloat162 __float2bfloat162_rn(float x) { return {nv_bfloat16(x), nv_bfloat16(x)}; }
inline nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {nv_bfloat16(x), nv_bfloat16(y)};
}
inline nv_bfloat162 __float22bfloat162_rn(float2 x) {
  return {nv_bfloat16(x.x), nv_bfloat16(x.y)};
}
inline float2 __bfloat1622float2(nv_bfloat162 x) { return {float(x.x), float(x.y)}; }
