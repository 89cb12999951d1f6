// Shuffles, votes and reductions of a warp, atomics, fences, addresses (CUDA C++ programming guide,
// "Warp Shuffle Functions", "Warp Vote Functions", "Atomic Functions", "Memory Fence Functions").
#pragma once

namespace emu {

enum class Shuffle { kIndex, kUp, kDown, kXor };

struct Shuffled {
  uint64_t value, result;
  Shuffle kind;
  unsigned by, width;
};

inline unsigned source_lane(const Shuffled& own, unsigned lane) {
  unsigned first = lane & ~(own.width - 1);
  unsigned source = lane;
  switch (own.kind) {
    case Shuffle::kIndex: return first + (own.by & (own.width - 1));
    case Shuffle::kUp: source = lane - own.by; return lane < first + own.by ? lane : source;
    case Shuffle::kDown: source = lane + own.by; break;
    case Shuffle::kXor: source = lane ^ own.by; break;
  }
  return source < first + own.width ? source : lane;
}

inline void apply_shuffle(const Lanes& lanes) {
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    auto* own = lanes.of<Shuffled>(lane);
    if (own == nullptr) continue;
    auto* from = lanes.of<Shuffled>(source_lane(*own, lane));
    // What a lane that takes no part would bring is not defined.
    own->result = from ? from->value : 0x7FF57FF57FF57FF5ull;
  }
}

template <class T>
T shuffle(Shuffle kind, uint32_t mask, T value, unsigned by, int width, int line) {
  static_assert(sizeof(T) <= 8);
  Shuffled own{0, 0, kind, by, static_cast<unsigned>(width)};
  memcpy(&own.value, &value, sizeof(T));
  meet_warp("a shuffle", line, mask, &own, apply_shuffle);
  T result;
  memcpy(&result, &own.result, sizeof(T));
  return result;
}

struct Vote {
  uint32_t predicate, ballot, members;
};

inline Vote vote(uint32_t mask, bool predicate, int line) {
  Vote own{predicate, 0, 0};
  meet_warp("a vote", line, mask, &own, [](const Lanes& lanes) {
    uint32_t ballot = 0, members = 0;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      auto* other = lanes.of<Vote>(lane);
      if (other == nullptr) continue;
      members |= 1u << lane;
      ballot |= other->predicate << lane;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (auto* other = lanes.of<Vote>(lane)) other->ballot = ballot, other->members = members;
    }
  });
  return own;
}

// Of each lane, the lanes whose value is equal to its own.
struct Matched {
  uint64_t value;
  uint32_t equal, members;
};

template <class T>
Matched match(uint32_t mask, T value, int line) {
  Matched own{0, 0, 0};
  memcpy(&own.value, &value, sizeof(T));
  meet_warp("a match", line, mask, &own, [](const Lanes& lanes) {
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      auto* one = lanes.of<Matched>(lane);
      for (unsigned other = 0; one && other < kWarp; ++other) {
        auto* two = lanes.of<Matched>(other);
        if (two == nullptr) continue;
        one->members |= 1u << other;
        if (one->value == two->value) one->equal |= 1u << other;
      }
    }
  });
  return own;
}

enum class Fold { kAdd, kMin, kMax, kAnd, kOr, kXor };

template <class T>
struct Folded {
  T value, result;
  Fold kind;
};

template <class T>
T folded(Fold kind, T a, T b) {
  switch (kind) {
    case Fold::kAdd: return a + b;
    case Fold::kMin: return a < b ? a : b;
    case Fold::kMax: return a > b ? a : b;
    case Fold::kAnd: return a & b;
    case Fold::kOr: return a | b;
    case Fold::kXor: return a ^ b;
  }
  __builtin_unreachable();
}

template <class T>
T reduce(Fold kind, uint32_t mask, T value, int line) {
  Folded<T> own{value, value, kind};
  meet_warp("a reduction", line, mask, &own, [](const Lanes& lanes) {
    bool begun = false;
    T total{};
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      auto* other = lanes.of<Folded<T>>(lane);
      if (other == nullptr) continue;
      total = begun ? folded(other->kind, total, other->value) : other->value;
      begun = true;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (auto* other = lanes.of<Folded<T>>(lane)) other->result = total;
    }
  });
  return own.result;
}

template <class T, class F>
T exchanged(T* place, F change) {
  T before = *place;
  *place = change(before);
  return before;
}

template <class... A>
int width_or_warp(A... width) {
  if constexpr (sizeof...(A) == 0) return 32;
  else return (width, ...);
}

}  // namespace emu

#define EMU_SHUFFLE(kind, mask, value, by, ...)                                               \
  emu::shuffle(emu::Shuffle::kind, static_cast<uint32_t>(mask), (value),                      \
               static_cast<unsigned>(by), emu::width_or_warp(__VA_ARGS__), __LINE__)
#define __shfl_sync(mask, value, by, ...) EMU_SHUFFLE(kIndex, mask, value, by, __VA_ARGS__)
#define __shfl_up_sync(mask, value, by, ...) EMU_SHUFFLE(kUp, mask, value, by, __VA_ARGS__)
#define __shfl_down_sync(mask, value, by, ...) EMU_SHUFFLE(kDown, mask, value, by, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, by, ...) EMU_SHUFFLE(kXor, mask, value, by, __VA_ARGS__)

#define __ballot_sync(mask, p) (emu::vote((mask), (p) != 0, __LINE__).ballot)
#define __any_sync(mask, p) static_cast<int>(emu::vote((mask), (p) != 0, __LINE__).ballot != 0)
#define __all_sync(mask, p)                                                                   \
  ([&](emu::Vote v) { return static_cast<int>(v.ballot == v.members); }(                      \
      emu::vote((mask), (p) != 0, __LINE__)))
#define __match_any_sync(mask, value) (emu::match((mask), (value), __LINE__).equal)
#define __match_all_sync(mask, value, all)                                                    \
  ([&](emu::Matched m) { *(all) = m.equal == m.members; return *(all) ? m.members : 0u; }(    \
      emu::match((mask), (value), __LINE__)))
#define __activemask() emu::active_mask(__LINE__)
inline void emu_sync_warp(int line, uint32_t mask = ~0u) {
  int own;
  emu::meet_warp("__syncwarp", line, mask, &own, [](const emu::Lanes&) {});
}
#define __syncwarp(...) emu_sync_warp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __reduce_add_sync(mask, v) emu::reduce(emu::Fold::kAdd, (mask), (v), __LINE__)
#define __reduce_min_sync(mask, v) emu::reduce(emu::Fold::kMin, (mask), (v), __LINE__)
#define __reduce_max_sync(mask, v) emu::reduce(emu::Fold::kMax, (mask), (v), __LINE__)
#define __reduce_and_sync(mask, v) emu::reduce(emu::Fold::kAnd, (mask), (v), __LINE__)
#define __reduce_or_sync(mask, v) emu::reduce(emu::Fold::kOr, (mask), (v), __LINE__)
#define __reduce_xor_sync(mask, v) emu::reduce(emu::Fold::kXor, (mask), (v), __LINE__)

// Threads of a block take turns, and blocks do: each of these happens at once.
// Measured on an H100: sums of float32 in global memory take subnormal numbers for zero and make
// none; those in shared memory keep them.
inline float emu_flushed(float x) { return ::fabsf(x) < 0x1p-126f ? ::copysignf(0.0f, x) : x; }
template <class T, class V>
T atomicAdd(T* place, V value) {
  if constexpr (std::is_same_v<T, float>) {
    if (!emu::is_shared(place)) {
      return emu::exchanged(place, [=](float old) {
        return emu_flushed(emu_flushed(old) + emu_flushed(static_cast<float>(value)));
      });
    }
  }
  return emu::exchanged(place, [=](T old) { return static_cast<T>(old + static_cast<T>(value)); });
}
template <class T, class V>
T atomicSub(T* place, V value) {
  return emu::exchanged(place, [=](T old) { return static_cast<T>(old - static_cast<T>(value)); });
}
template <class T, class V>
T atomicExch(T* place, V value) {
  return emu::exchanged(place, [=](T) { return static_cast<T>(value); });
}
template <class T, class V>
T atomicMax(T* place, V value) {
  return emu::exchanged(
      place, [=](T old) { return old < static_cast<T>(value) ? static_cast<T>(value) : old; });
}
template <class T, class V>
T atomicMin(T* place, V value) {
  return emu::exchanged(
      place, [=](T old) { return static_cast<T>(value) < old ? static_cast<T>(value) : old; });
}
template <class T, class V>
T atomicAnd(T* place, V value) {
  return emu::exchanged(place, [=](T old) { return static_cast<T>(old & static_cast<T>(value)); });
}
template <class T, class V>
T atomicOr(T* place, V value) {
  return emu::exchanged(place, [=](T old) { return static_cast<T>(old | static_cast<T>(value)); });
}
template <class T, class V>
T atomicXor(T* place, V value) {
  return emu::exchanged(place, [=](T old) { return static_cast<T>(old ^ static_cast<T>(value)); });
}
inline unsigned atomicInc(unsigned* place, unsigned most) {
  return emu::exchanged(place, [=](unsigned old) { return old >= most ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned* place, unsigned most) {
  return emu::exchanged(place,
                        [=](unsigned old) { return old == 0 || old > most ? most : old - 1; });
}
template <class T, class C, class V>
T atomicCAS(T* place, C compare, V value) {
  return emu::exchanged(
      place, [=](T old) { return old == static_cast<T>(compare) ? static_cast<T>(value) : old; });
}

template <class T>
T __ldg(const T* place) {
  return *place;
}
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emu::yield("__nanosleep", 0); }
inline uint32_t emu_to_shared(const void* pointer) { return emu::to_shared(pointer); }
#define __cvta_generic_to_shared(pointer) emu_to_shared(reinterpret_cast<const void*>(pointer))
