// From a packed call of TVM's host code to a grid of blocks.
#pragma once

#include <tvm/ffi/c_api.h>

#include <array>
#include <type_traits>
#include <utility>

#include "shared_memory.hpp"

namespace emu {

// A kernel as compiled.
struct Kernel {
  const char* name;
  int parameters;
  unsigned most_threads;  // of `__launch_bounds__`; 0 where it has none
  size_t static_bytes;    // of shared memory
  const Zone* zones;      // after its arrays of static shared memory
  size_t zone_count;
  unsigned cluster[3];  // of `__cluster_dims__`, where a launch does not say
  void (*run)(const TVMFFIAny* arguments);
};

// The device that the kernels are for, as whoever compiled them says it.
EMU_HIDDEN extern const char* const target_text;

// Run a grid. The call's arguments are the kernel's own, then its launch parameters, then their
// tags as text, separated by commas.
EMU_HIDDEN int launch(const Kernel& kernel, const TVMFFIAny* arguments, int count);

// An array in shared memory, and where all of a kernel's lie: each with a red zone behind it.
struct Array {
  const char* name;
  size_t bytes;
  size_t alignment;
};

template <size_t N>
struct Layout {
  std::array<size_t, N> places;
  std::array<Zone, N> zones;
  size_t bytes;
};

template <size_t N>
constexpr Layout<N> laid_out(const std::array<Array, N>& arrays) {
  constexpr size_t kZone = 64;
  Layout<N> made{};
  for (size_t i = 0; i < N; ++i) {
    size_t step = arrays[i].alignment;
    made.places[i] = (made.bytes + step - 1) / step * step;
    size_t end = (made.places[i] + arrays[i].bytes + 1) & ~size_t{1};
    made.zones[i] = {arrays[i].name, end, kZone};
    made.bytes = end + kZone;
  }
  return made;
}

template <class T>
T decoded(const TVMFFIAny& value) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(value.v_ptr);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value.v_float64);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value.v_int64);
  } else {
    return *static_cast<const T*>(value.v_ptr);  // a tensor map, by value
  }
}

template <class... P, size_t... I>
void call(void (*kernel)(P...), const TVMFFIAny* arguments, std::index_sequence<I...>) {
  kernel(decoded<std::remove_cv_t<P>>(arguments[I])...);
}

template <class... P>
void call(void (*kernel)(P...), const TVMFFIAny* arguments) {
  call(kernel, arguments, std::index_sequence_for<P...>{});
}

template <class... P>
constexpr int parameters(void (*)(P...)) {
  return static_cast<int>(sizeof...(P));
}

}  // namespace emu

#define EMU_KERNEL(name, most_threads, static_bytes, zones, x, y, z)                          \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##name(                     \
      void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {                  \
    static const emu::Kernel kernel = {#name,        emu::parameters(name), most_threads,     \
                                       static_bytes, zones.data(),          zones.size(),     \
                                       {x, y, z},                                             \
                                       [](const TVMFFIAny* a) { emu::call(name, a); }};       \
    result->type_index = kTVMFFINone;                                                         \
    return emu::launch(kernel, arguments, count);                                             \
  }
