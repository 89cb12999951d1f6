// How tensor cores sum products of floats, as measured on an H100 (benchmarks/results/gpu,
// questions `ask.sum`): the products of one instruction and what is there before are cut to 25 bits
// behind the point of the largest of them, where a product counts as large as its factors'
// exponents say; they are added exactly; and the sum is cut to a float32, or rounded to a float16.
// No device was asked about factors of 8 bits: of these it is assumed that 13 bits are kept, of the
// sum too (spaces/templates/tensor_cores/elements/byte_float_fragments.py).
#pragma once

#include <cmath>
#include <cstdint>

#include "include/byte_float.h"
#include "matrices.hpp"

namespace emu::ptx {

constexpr int kOfZero = -100'000, kOfNoNumber = 1'000'000;

inline bool is_byte_float(Kind kind) { return kind == Kind::kE4m3 || kind == Kind::kE5m2; }

inline int kept_bits(Kind kind) { return is_byte_float(kind) ? 13 : 25; }

// A factor's exponent; that of a subnormal one is its format's least.
inline int factor_exponent(Kind kind, double value) {
  if (value == 0) return kOfZero;
  if (!std::isfinite(value)) return kOfNoNumber;
  int exponent = std::ilogb(value);
  int least = kind == Kind::kF16     ? -14
              : kind == Kind::kE4m3 ? E4m3::kLeast
              : kind == Kind::kE5m2 ? E5m2::kLeast
                                    : -126;
  return exponent < least ? least : exponent;
}

inline double sum_of_products(const float* a, const int* a_exponents, const float* b,
                              const int* b_exponents, int k, float before, int kept) {
  int top = before == 0                ? kOfZero
            : std::isfinite(before) ? std::ilogb(before)
                                    : kOfNoNumber;
  for (int l = 0; l < k; ++l) {
    int exponent = a_exponents[l] + b_exponents[l];
    top = exponent > top ? exponent : top;
  }
  if (top <= kOfZero / 2) return 0;
  double sum = 0;
  if (top >= kOfNoNumber / 2) {
    for (int l = 0; l < k; ++l) sum += static_cast<double>(a[l]) * b[l];
    return sum + before;
  }
  double scale = std::ldexp(1.0, kept - top);
  for (int l = 0; l < k; ++l) sum += static_cast<int32_t>(static_cast<double>(a[l]) * b[l] * scale);
  return (sum + static_cast<int32_t>(before * scale)) / scale;
}

// The float32 that a sum is kept in; one that rounds to the same float16 where that is wanted.
inline float kept_sum(Kind kind, Kind factors, double sum) {
  if (is_byte_float(factors) && std::isfinite(sum) && sum != 0) {
    int last = std::ilogb(sum) - kept_bits(factors);
    sum = std::ldexp(std::trunc(std::ldexp(sum, -last)), last);
  }
  if (kind == Kind::kF16) return rounded_to_odd(sum);
  float near = static_cast<float>(sum);
  bool over = std::fabs(static_cast<double>(near)) > std::fabs(sum);
  bool cut = over && std::fabs(sum) < 0x1p128;
  return cut ? std::nextafterf(near, 0.0f) : near;
}

}  // namespace emu::ptx
