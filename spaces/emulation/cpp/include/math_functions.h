// Mathematical functions of CUDA that C++ lacks, or has under another name.
//
// Those that a GPU computes with an instruction of few right bits (`__expf` and its kin) are
// computed as well as the CPU can: whether a program bears the device's error is not asked here.
#pragma once

#define __expf(x) (::expf(x))
#define __exp10f(x) (::powf(10.0f, (x)))
#define __logf(x) (::logf(x))
#define __log2f(x) (::log2f(x))
#define __log10f(x) (::log10f(x))
#define __sinf(x) (::sinf(x))
#define __cosf(x) (::cosf(x))
#define __tanf(x) (::tanf(x))
#define __tanhf(x) (::tanhf(x))
#define __powf(x, y) (::powf((x), (y)))
#define __fdividef(x, y) ((x) / (y))
#define __frcp_rn(x) (1.0f / (x))
#define __fsqrt_rn(x) (::sqrtf(x))
#define __frsqrt_rn(x) (1.0f / ::sqrtf(x))
#define __fmaf_rn(x, y, z) (::fmaf((x), (y), (z)))

inline float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
#if !defined(__USE_GNU)
inline float exp10f(float x) { return ::powf(10.0f, x); }
inline double exp10(double x) { return ::pow(10.0, x); }
#endif
inline float __saturatef(float x) { return !(x > 0.0f) ? 0.0f : x > 1.0f ? 1.0f : x; }
inline float normcdff(float x) { return 0.5f * ::erfcf(-x * 0.70710678118654752f); }

// Of two numbers the one that is no NaN.
inline float max(float a, float b) { return ::fmaxf(a, b); }
inline float min(float a, float b) { return ::fminf(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
template <class T>
  requires std::is_integral_v<T>
T max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
  requires std::is_integral_v<T>
T min(T a, T b) {
  return a < b ? a : b;
}
template <class A, class B>
  requires(std::is_integral_v<A> && std::is_integral_v<B> && !std::is_same_v<A, B>)
std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}
template <class A, class B>
  requires(std::is_integral_v<A> && std::is_integral_v<B> && !std::is_same_v<A, B>)
std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}

inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __ffsll(unsigned long long x) { return __builtin_ffsll(static_cast<long long>(x)); }
inline int __mulhi(int a, int b) { return static_cast<int>((1ll * a * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((1ull * a * b) >> 32);
}

inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }

// The sum of four products of bytes (PTX ISA, "Integer Arithmetic Instructions: dp4a").
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<signed char>(a >> (8 * i)) * static_cast<signed char>(b >> (8 * i));
  }
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 0xFF) * (b >> (8 * i) & 0xFF);
  return c;
}
