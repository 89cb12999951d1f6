// Operands of assembly, and instructions that are short. What others do is said where they are.
// Numbers of sections are not given: the PTX ISA's change between its versions, names do not.
#pragma once

#include "../async.hpp"
#include "../matrices.hpp"
#include "byte_float.h"

namespace emu::ptx {

template <class T, class V>
T& output(V& variable) {
  static_assert(sizeof(T) == sizeof(V), "an operand of another size than its constraint");
  return reinterpret_cast<T&>(variable);
}

template <class T, class V>
T input(V value) {
  if constexpr (std::is_pointer_v<V>) {
    return reinterpret_cast<T>(value);
  } else if constexpr (std::is_floating_point_v<T> || std::is_integral_v<V>) {
    return static_cast<T>(value);
  } else {
    static_assert(sizeof(T) == sizeof(V), "an operand of another size than its constraint");
    return __builtin_bit_cast(T, value);
  }
}

// A register's bits as a number of an instruction's type: registers have none of their own.
template <class T, class V>
T bits(V value) {
  if constexpr (std::is_floating_point_v<T> == std::is_floating_point_v<V>) {
    return static_cast<T>(value);
  } else if constexpr (sizeof(T) == sizeof(V)) {
    return __builtin_bit_cast(T, value);
  } else {
    static_assert(sizeof(T) == sizeof(V), "a register of another size than the instruction's");
  }
}

template <class T, class V>
void set(T& target, V value) {
  if constexpr (std::is_floating_point_v<T> == std::is_floating_point_v<V>) {
    target = static_cast<T>(value);
  } else {
    target = __builtin_bit_cast(T, value);
  }
}

template <class T>
uint64_t word(T value) {
  uint64_t made = 0;
  memcpy(&made, &value, sizeof(T));
  return made;
}

// "Data Movement and Conversion Instructions: mov" of vectors: the first element is the lowest.
template <class W, class... P>
void pack(W& whole, P... parts) {
  uint64_t made = 0;
  unsigned shift = 0;
  ((made |= word(parts) << shift, shift += 8 * sizeof(P)), ...);
  memcpy(&whole, &made, sizeof(W));
}
template <class W, class... P>
void unpack(W whole, P&... parts) {
  uint64_t rest = word(whole);
  ((memcpy(&parts, &rest, sizeof(P)), rest = sizeof(P) < 8 ? rest >> (8 * sizeof(P) % 64) : 0),
   ...);
}

// "Logic and Shift Instructions": a shift by more than the size gives what shifting bit by bit
// does.
template <class T>
T shl(T a, uint32_t by) { return by < 8 * sizeof(T) ? a << by : 0; }
template <class T>
T shr(T a, uint32_t by) {
  if (by < 8 * sizeof(T)) return a >> by;
  return std::is_signed_v<T> && a < 0 ? T(-1) : T(0);
}

template <class T>
T fused(T a, T b, T c) {
  if constexpr (std::is_same_v<T, float>) return ::fmaf(a, b, c);
  else if constexpr (std::is_same_v<T, double>) return ::fma(a, b, c);
  else return a * b + c;
}

// "Integer Arithmetic Instructions: dp4a".
template <bool kSignedA, bool kSignedB>
uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 4; ++i) {
    int x = static_cast<int>(a >> (8 * i) & 0xFF), y = static_cast<int>(b >> (8 * i) & 0xFF);
    c += (kSignedA ? static_cast<int8_t>(x) : x) * (kSignedB ? static_cast<int8_t>(y) : y);
  }
  return c;
}

// "cvt.rna.tf32": to the nearest with 10 bits of mantissa, ties away from zero.
inline uint32_t tf32(float value) {
  return (__builtin_bit_cast(uint32_t, value) + 0x1000) & ~0x1FFFu;
}

template <class T>
T* generic_place(uint64_t address, int count, int line) {
  size_t bytes = sizeof(T) * count;
  if (address % bytes) misaligned(bytes, bytes, reinterpret_cast<const void*>(address), line);
  return reinterpret_cast<T*>(address);
}
template <class T>
T* shared_place(uint64_t address, int count, int line) {
  size_t bytes = sizeof(T) * count;
  auto* place = static_cast<T*>(from_shared(static_cast<uint32_t>(address), bytes));
  if (address % bytes)
    misaligned(bytes, bytes, const_cast<const void*>(static_cast<const volatile void*>(place)),
               line);
  if (watching) touch("vector", line * 64, static_cast<uint32_t>(address), bytes);
  return place;
}

// "shfl.sync": the value of another lane of a segment, and whether there is such a lane.
struct ShuffledWord {
  uint32_t value;
  bool inside;
};
inline ShuffledWord shuffle(Shuffle kind, uint32_t value, uint32_t by, uint32_t clamp,
                            uint32_t mask, int line) {
  uint32_t segment = clamp >> 8 & 0x1F;
  unsigned width = 32 - segment;
  unsigned lane = now->lane, first = lane & segment;
  Shuffled probe{0, 0, kind, kind == Shuffle::kIndex ? by : by & 0x1F, width};
  uint32_t got = emu::shuffle(kind, mask, value, probe.by, static_cast<int>(width), line);
  bool inside = true;
  if (kind == Shuffle::kUp) inside = lane >= first + probe.by;
  if (kind == Shuffle::kDown) inside = lane + probe.by < first + width;
  if (kind == Shuffle::kXor) inside = (lane ^ probe.by) < first + width;
  return {got, inside};
}

// "cvt" of two floats to a word of two narrow ones: the first is the upper.
template <class Format, bool kNearest>
uint32_t narrow_pair(float high, float low) {
  auto one = [](float x) {
    return kNearest ? Format::narrowed(x) : narrowed<Format>(x, Way::kZero);
  };
  return static_cast<uint32_t>(one(high)) << 16 | one(low);
}

// "vote.sync", "elect.sync".
inline uint32_t vote_ballot(uint32_t mask, bool predicate, int line) {
  return emu::vote(mask, predicate, line).ballot;
}
inline bool vote_any(uint32_t mask, bool predicate, int line) {
  return emu::vote(mask, predicate, line).ballot != 0;
}
inline bool vote_all(uint32_t mask, bool predicate, int line) {
  Vote v = emu::vote(mask, predicate, line);
  return v.ballot == v.members;
}
inline bool vote_uni(uint32_t mask, bool predicate, int line) {
  Vote v = emu::vote(mask, predicate, line);
  return v.ballot == v.members || v.ballot == 0;
}
inline uint32_t elected(uint32_t mask, int line) {
  return static_cast<uint32_t>(__builtin_ctz(emu::vote(mask, true, line).members));
}

// "cvta" between generic addresses and those of the shared window.
inline uint64_t shared_of(uint64_t address) {
  return to_shared(reinterpret_cast<const void*>(address));
}
inline uint64_t generic_of(uint64_t address) {
  return reinterpret_cast<uint64_t>(from_shared(static_cast<uint32_t>(address), 0));
}

inline uint32_t number_in_cluster(int dimension) {
  if (dimension == 0) return here % cluster_extent.x;
  if (dimension == 1) return here / cluster_extent.x % cluster_extent.y;
  return here / cluster_extent.x / cluster_extent.y;
}

inline void barrier(uint32_t number, uint32_t threads, bool waits, int line) {
  named_barrier(number, threads, waits, line);
}

}  // namespace emu::ptx
