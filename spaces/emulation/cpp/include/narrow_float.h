// Floats of 16 bits. Each operation is done in float32, or float64 where that would round twice,
// and rounded to the nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace emu {

// Sign, exponent and mantissa of IEEE's binary16 (PTX ISA, "Fundamental Types": .f16).
struct Fp16 {
  static float widened(uint16_t bits) {
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    uint32_t rest = static_cast<uint32_t>(bits & 0x7FFF) << 13;
    if (rest >= 0x0F800000) return __builtin_bit_cast(float, sign | (rest + 0x70000000));
    // Scaling by a power of two makes normal numbers of subnormal ones.
    float scaled = __builtin_bit_cast(float, rest) * 0x1p112f;
    return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, scaled));
  }
  static uint16_t narrowed(float value) {
    uint32_t bits = __builtin_bit_cast(uint32_t, value);
    uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) return 0x7FFF;
    if (bits >= 0x477FF000) return sign | 0x7C00;  // rounds to infinity
    if (bits < 0x38800000) {                       // subnormal: let the adder round
      float shifted = __builtin_bit_cast(float, bits) + 0.5f;
      return sign | static_cast<uint16_t>(__builtin_bit_cast(uint32_t, shifted) - 0x3F000000);
    }
    bits += 0xFFF + (bits >> 13 & 1);
    return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
  }
};

// The upper half of a float32 (PTX ISA, "Alternate Floating-Point Data Formats": .bf16).
struct Bf16 {
  static float widened(uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }
  static uint16_t narrowed(float value) {
    uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
};

// A float32 that rounds to the same narrow float as a float64 does: it is odd where it is inexact.
inline float rounded_to_odd(double value) {
  float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || near != near) return near;
  uint32_t bits = __builtin_bit_cast(uint32_t, near);
  bool away = (near < 0 ? -near : near) > (value < 0 ? -value : value);
  if (bits & 1) return near;
  return __builtin_bit_cast(float, away ? bits - 1 : bits + 1);
}

// The sum of two float64, odd where it is inexact.
inline double sum_to_odd(double a, double b) {
  double sum = a + b, part = sum - a;
  double error = (a - (sum - part)) + (b - part);
  uint64_t bits = __builtin_bit_cast(uint64_t, sum);
  if (error == 0 || error != error || (bits & 1)) return sum;
  return __builtin_bit_cast(double, (error < 0) == (sum < 0) ? bits | 1 : bits - 1);
}

// A float rounded to a narrow one another way than to the nearest (CUDA Math API: `_rz` towards
// zero, `_rd` down, `_ru` up), from the nearest.
enum class Way { kZero, kDown, kUp };
template <class Format>
uint16_t narrowed(float value, Way way) {
  uint16_t near = Format::narrowed(value);
  float back = Format::widened(near);
  if (back == value || value != value) return near;
  bool over = back > value;  // else it is under
  bool wants_lower = way == Way::kDown || (way == Way::kZero && value > 0);
  if (over == wants_lower) {
    bool away = over == (near >> 15 == 0);  // whether the wanted one is nearer to zero
    near = away ? near - 1 : near + 1;
    if (near == 0xFFFF) near = 0x8000;
  }
  return near;
}

// Of two numbers the one that is no NaN; of zeros the one with the sign that counts.
template <class T>
T larger(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a < b ? a : b;
}

template <class Format>
class Narrow {
 public:
  Narrow() = default;
  Narrow(float value) : bits_(Format::narrowed(value)) {}
  Narrow(double value) : bits_(Format::narrowed(rounded_to_odd(value))) {}
  template <class I>
    requires std::is_integral_v<I>
  Narrow(I value) : Narrow(static_cast<double>(value)) {}
  operator float() const { return Format::widened(bits_); }
  // Templates, so that copies stay trivial: of shared memory that several threads add up in.
  template <class N>
    requires std::is_same_v<N, Narrow>
  Narrow(const volatile N& other) : bits_(other.bits_) {}
  template <class N>
    requires std::is_same_v<N, Narrow>
  void operator=(N other) volatile {
    bits_ = other.bits_;
  }

  static Narrow of(uint16_t bits) {
    Narrow made;
    made.bits_ = bits;
    return made;
  }
  uint16_t bits() const { return bits_; }

  friend Narrow operator+(Narrow a, Narrow b) { return float(a) + float(b); }
  friend Narrow operator-(Narrow a, Narrow b) { return float(a) - float(b); }
  friend Narrow operator*(Narrow a, Narrow b) { return float(a) * float(b); }
  friend Narrow operator/(Narrow a, Narrow b) { return float(a) / float(b); }
  friend Narrow operator-(Narrow a) { return of(a.bits_ ^ 0x8000); }
  friend Narrow operator+(Narrow a) { return a; }
  friend bool operator==(Narrow a, Narrow b) { return float(a) == float(b); }
  friend bool operator!=(Narrow a, Narrow b) { return float(a) != float(b); }
  friend bool operator<(Narrow a, Narrow b) { return float(a) < float(b); }
  friend bool operator>(Narrow a, Narrow b) { return float(a) > float(b); }
  friend bool operator<=(Narrow a, Narrow b) { return float(a) <= float(b); }
  friend bool operator>=(Narrow a, Narrow b) { return float(a) >= float(b); }
  Narrow& operator+=(Narrow b) { return *this = *this + b; }
  Narrow& operator-=(Narrow b) { return *this = *this - b; }
  Narrow& operator*=(Narrow b) { return *this = *this * b; }
  Narrow& operator/=(Narrow b) { return *this = *this / b; }

 private:
  uint16_t bits_;
};

template <class Format>
struct alignas(4) Narrow2 {
  Narrow<Format> x, y;
  Narrow2() = default;
  Narrow2(Narrow<Format> x, Narrow<Format> y) : x(x), y(y) {}
  friend Narrow2 operator+(Narrow2 a, Narrow2 b) { return {a.x + b.x, a.y + b.y}; }
  friend Narrow2 operator-(Narrow2 a, Narrow2 b) { return {a.x - b.x, a.y - b.y}; }
  friend Narrow2 operator*(Narrow2 a, Narrow2 b) { return {a.x * b.x, a.y * b.y}; }
  friend Narrow2 operator/(Narrow2 a, Narrow2 b) { return {a.x / b.x, a.y / b.y}; }
};

}  // namespace emu

// Functions of both formats (CUDA Math API, "Half Precision Intrinsics" and "Bfloat16 Precision
// Intrinsics").
#define EMU_UNARY(name, expression)                                                           \
  template <class F>                                                                          \
  emu::Narrow<F> name(emu::Narrow<F> a) {                                                     \
    float x = a;                                                                              \
    return expression;                                                                        \
  }                                                                                           \
  template <class F>                                                                          \
  emu::Narrow2<F> h2##name(emu::Narrow2<F> a) {                                               \
    return {name(a.x), name(a.y)};                                                            \
  }
EMU_UNARY(hexp, ::expf(x))
EMU_UNARY(hexp2, ::exp2f(x))
EMU_UNARY(hexp10, ::powf(10.0f, x))
EMU_UNARY(hlog, ::logf(x))
EMU_UNARY(hlog2, ::log2f(x))
EMU_UNARY(hlog10, ::log10f(x))
EMU_UNARY(hsqrt, ::sqrtf(x))
EMU_UNARY(hrsqrt, 1.0f / ::sqrtf(x))
EMU_UNARY(hrcp, 1.0f / x)
EMU_UNARY(hsin, ::sinf(x))
EMU_UNARY(hcos, ::cosf(x))
EMU_UNARY(htanh, ::tanhf(x))
EMU_UNARY(hfloor, ::floorf(x))
EMU_UNARY(hceil, ::ceilf(x))
EMU_UNARY(htrunc, ::truncf(x))
EMU_UNARY(hrint, ::nearbyintf(x))
EMU_UNARY(__habs, ::fabsf(x))
EMU_UNARY(__hneg, -x)
#undef EMU_UNARY

#define EMU_BINARY(name, expression)                                                          \
  template <class F>                                                                          \
  emu::Narrow<F> name(emu::Narrow<F> a, emu::Narrow<F> b) {                                   \
    return expression;                                                                        \
  }                                                                                           \
  template <class F>                                                                          \
  emu::Narrow2<F> name##2(emu::Narrow2<F> a, emu::Narrow2<F> b) {                             \
    return {name(a.x, b.x), name(a.y, b.y)};                                                  \
  }
EMU_BINARY(__hadd, a + b)
EMU_BINARY(__hsub, a - b)
EMU_BINARY(__hmul, a * b)
EMU_BINARY(__hdiv, a / b)
EMU_BINARY(__hmax, emu::larger<float>(a, b))
EMU_BINARY(__hmin, emu::smaller<float>(a, b))
#undef EMU_BINARY

#define EMU_COMPARE(name, expression)                                                         \
  template <class F>                                                                          \
  bool name(emu::Narrow<F> a, emu::Narrow<F> b) {                                             \
    return expression;                                                                        \
  }
EMU_COMPARE(__heq, a == b)
EMU_COMPARE(__hne, a < b || a > b)
EMU_COMPARE(__hlt, a < b)
EMU_COMPARE(__hle, a <= b)
EMU_COMPARE(__hgt, a > b)
EMU_COMPARE(__hge, a >= b)
EMU_COMPARE(__hequ, !(a < b) && !(a > b))
EMU_COMPARE(__hneu, !(a == b))
EMU_COMPARE(__hltu, !(a >= b))
EMU_COMPARE(__hleu, !(a > b))
EMU_COMPARE(__hgtu, !(a <= b))
EMU_COMPARE(__hgeu, !(a < b))
#undef EMU_COMPARE

template <class F>
bool __hisnan(emu::Narrow<F> a) {
  return a != a;
}
template <class F>
int __hisinf(emu::Narrow<F> a) {
  return std::isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0;
}
template <class F>
emu::Narrow<F> __hfma(emu::Narrow<F> a, emu::Narrow<F> b, emu::Narrow<F> c) {
  return emu::sum_to_odd(static_cast<double>(float(a)) * float(b), float(c));
}
template <class F>
emu::Narrow2<F> __hfma2(emu::Narrow2<F> a, emu::Narrow2<F> b, emu::Narrow2<F> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class F>
emu::Narrow<F> __low2half(emu::Narrow2<F> a) { return a.x; }
template <class F>
emu::Narrow<F> __high2half(emu::Narrow2<F> a) { return a.y; }
template <class F>
bool isnan(emu::Narrow<F> a) { return a != a; }
template <class F>
bool isinf(emu::Narrow<F> a) { return std::isinf(float(a)); }
template <class F>
bool isfinite(emu::Narrow<F> a) { return std::isfinite(float(a)); }
