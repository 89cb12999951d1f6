// Vectors of scalars, with the sizes and alignments of CUDA's ("Built-in Types: char, short, int,
// long, longlong, float, double" in its programming guide).
#pragma once

#define EMU_VECTORS(type, name, a1, a2, a3, a4)                                               \
  struct alignas(a1) name##1 { type x; };                                                     \
  struct alignas(a2) name##2 { type x, y; };                                                  \
  struct alignas(a3) name##3 { type x, y, z; };                                               \
  struct alignas(a4) name##4 { type x, y, z, w; };                                            \
  inline name##1 make_##name##1(type x) { return {x}; }                                       \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                 \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

EMU_VECTORS(signed char, char, 1, 2, 1, 4)
EMU_VECTORS(unsigned char, uchar, 1, 2, 1, 4)
EMU_VECTORS(short, short, 2, 4, 2, 8)
EMU_VECTORS(unsigned short, ushort, 2, 4, 2, 8)
EMU_VECTORS(int, int, 4, 8, 4, 16)
EMU_VECTORS(unsigned int, uint, 4, 8, 4, 16)
EMU_VECTORS(float, float, 4, 8, 4, 16)
EMU_VECTORS(long long, longlong, 8, 16, 8, 16)
EMU_VECTORS(unsigned long long, ulonglong, 8, 16, 8, 16)
EMU_VECTORS(double, double, 8, 16, 8, 16)

#undef EMU_VECTORS

namespace emu {

// A pointer to a vector, which a device reads and writes as a whole: at a multiple of its alignment
// ("Device Memory Accesses" in the programming guide; an H100 stops at another: "misaligned
// address").
template <class T>
T* aligned(int line, const volatile void* place) {
  if (reinterpret_cast<uintptr_t>(place) % alignof(T)) [[unlikely]]
    misaligned(sizeof(T), alignof(T), place, line);
  if (watching) [[unlikely]] {
    auto* address = const_cast<const void*>(place);
    if (is_shared(address)) touch("vector", line * 64, to_shared(address), sizeof(T));
  }
  return static_cast<T*>(const_cast<void*>(place));
}

}  // namespace emu
