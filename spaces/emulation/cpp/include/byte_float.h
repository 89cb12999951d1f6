// Floats of 8 bits (PTX ISA, "Alternate Floating-Point Data Formats": .e4m3, .e5m2): rounded to the
// nearest, ties to even; what is too large becomes the largest (`.satfinite`).
#pragma once

#include <cmath>
#include <cstdint>

#include "narrow_float.h"

namespace emu {

template <int kMantissa, int kBias, uint8_t kMost>
uint8_t byte_of(float value) {
  uint8_t sign = __builtin_signbit(value) ? 0x80 : 0;
  if (value != value) return 0x7F;
  if (std::isinf(value)) return sign | kMost;
  int exponent = value == 0 ? 1 - kBias : std::ilogb(value);
  if (exponent < 1 - kBias) exponent = 1 - kBias;
  // In steps of the last bit; the sum of the exponent's code and these carries over by itself.
  auto steps = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), kMantissa - exponent)));
  int code = ((exponent + kBias - 1) << kMantissa) + steps;
  return sign | static_cast<uint8_t>(code > kMost ? kMost : code);
}

struct E4m3 {
  static constexpr int kLeast = -6;  // exponent of a normal number
  static float widened(uint8_t code) {
    if ((code & 0x7F) == 0x7F) return __builtin_nanf("");
    auto bits = static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7F) << 7);
    return Fp16::widened(bits) * 256;
  }
  static uint8_t narrowed(float value) { return byte_of<3, 7, 0x7E>(value); }
};

struct E5m2 {
  static constexpr int kLeast = -14;
  static float widened(uint8_t code) { return Fp16::widened(static_cast<uint16_t>(code << 8)); }
  static uint8_t narrowed(float value) { return byte_of<2, 15, 0x7B>(value); }
};

// Exponents alone, without a sign (.ue8m0), rounded up.
struct E8m0 {
  static float widened(uint8_t code) {
    return code == 0xFF ? __builtin_nanf("") : std::ldexp(1.0f, code - 127);
  }
  static uint8_t narrowed(float value) {
    if (value != value) return 0xFF;
    int exponent = -127;
    float part = value > 0 ? std::frexp(value, &exponent) : 0.5f;
    int code = exponent + 126 + (part > 0.5f);
    return static_cast<uint8_t>(std::isinf(value) || code > 0xFE ? 0xFE : code < 0 ? 0 : code);
  }
};

// "cvt.rn.f16x2.e4m3x2", which is exact.
template <class Format>
uint32_t halves_of(uint16_t pair) {
  auto half = [](int code) {
    return static_cast<uint32_t>(Fp16::narrowed(Format::widened(static_cast<uint8_t>(code))));
  };
  return half(pair >> 8) << 16 | half(pair & 0xFF);
}

}  // namespace emu
