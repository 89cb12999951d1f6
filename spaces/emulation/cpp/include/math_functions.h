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
#define __frsqrt_rn(x) (static_cast<float>(1.0 / ::sqrt(static_cast<double>(x))))
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
#define fmaxf(a, b) (emu::larger<float>((a), (b)))
#define fminf(a, b) (emu::smaller<float>((a), (b)))
#define fmax(a, b) (emu::larger<double>((a), (b)))
#define fmin(a, b) (emu::smaller<double>((a), (b)))
inline float max(float a, float b) { return emu::larger(a, b); }
inline float min(float a, float b) { return emu::smaller(a, b); }
inline double max(double a, double b) { return emu::larger(a, b); }
inline double min(double a, double b) { return emu::smaller(a, b); }
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

inline unsigned __brev(unsigned x) {
  unsigned made = 0;
  for (int i = 0; i < 32; ++i) made |= (x >> i & 1) << (31 - i);
  return made;
}
// The upper, or lower, word of two words next to each other that are shifted.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32 | low) << (by & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (by & 31));
}
// Bytes of two words, each chosen by three bits of four; the fourth of `prmt` repeats its sign (PTX
// ISA, "Data Movement and Conversion Instructions: prmt"; CUDA Math API, "Integer Intrinsics").
inline unsigned emu_bytes(unsigned x, unsigned y, unsigned selector) {
  uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned made = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned choice = selector >> (4 * i) & 0xF;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7)) & 0xFF);
    if (choice & 8) byte = byte & 0x80 ? 0xFF : 0;
    made |= byte << (8 * i);
  }
  return made;
}

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  return emu_bytes(x, y, selector & 0x7777);
}

// Conversions between integers and floats (CUDA Math API, "Type Casting Intrinsics"): what does not
// fit becomes the nearest that does, NaN becomes 0.
namespace emu {
template <class I>
I fitted(double value) {
  if (value != value) return 0;
  double least = static_cast<double>(std::numeric_limits<I>::min());
  double most = static_cast<double>(std::numeric_limits<I>::max());
  if (value <= least) return std::numeric_limits<I>::min();
  return value >= most ? std::numeric_limits<I>::max() : static_cast<I>(value);
}
// `(int)x` of a float: C++ does not say what it is where it does not fit.
template <class I>
struct Fitting {
  template <class T>
  friend constexpr I operator->*(Fitting, T value) {
    if constexpr (std::is_integral_v<T>) return static_cast<I>(value);
    else return fitted<I>(static_cast<double>(value));
  }
};
inline float towards_zero(double x) {
  float near = static_cast<float>(x);
  return ::fabs(static_cast<double>(near)) > ::fabs(x) ? ::nextafterf(near, 0.0f) : near;
}
inline float down(double x) {
  float near = static_cast<float>(x);
  return near > x ? ::nextafterf(near, -__builtin_inff()) : near;
}
inline float up(double x) { return -down(-x); }
}  // namespace emu
inline int __float2int_rn(float x) { return emu::fitted<int>(::nearbyintf(x)); }
inline int __float2int_rz(float x) { return emu::fitted<int>(::truncf(x)); }
inline int __float2int_rd(float x) { return emu::fitted<int>(::floorf(x)); }
inline int __float2int_ru(float x) { return emu::fitted<int>(::ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return emu::fitted<unsigned>(::nearbyintf(x)); }
inline unsigned __float2uint_rz(float x) { return emu::fitted<unsigned>(::truncf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __int2float_rz(int x) { return emu::towards_zero(x); }
inline float __int2float_rd(int x) { return emu::down(x); }
inline float __int2float_ru(int x) { return emu::up(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

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
