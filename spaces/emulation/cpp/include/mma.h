// `nvcuda::wmma` (CUDA C++ programming guide, "Warp Matrix Functions").
//
// A fragment's layout is not defined there: here each lane holds a row-major run of elements.
// Products are summed in float32 (integers in int32) and rounded once to the accumulator's type.
#pragma once

#include "cuda_fp16.h"
#include "cuda_bf16.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
 public:
  using Stored = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M;
  static constexpr int columns = std::is_same_v<Use, matrix_a> ? K : N;
  static constexpr int num_elements = rows * columns / 32;
  enum { num_storage_elements = num_elements };
  Stored x[num_elements];
};

template <class Use, int M, int N, int K, class T, class L, class V>
void fill_fragment(fragment<Use, M, N, K, T, L>& a, V value) {
  for (auto& element : a.x) element = static_cast<decltype(a.x[0] + a.x[0])>(value);
}

template <bool kRows, class F, class P>
void load(F& a, const P* from, unsigned stride) {
  int first = static_cast<int>(emu::now->lane) * F::num_elements;
  if (emu::is_shared(from)) emu::charge(0, 0, F::num_elements * sizeof(P));
  else emu::charge(0, F::num_elements * sizeof(P), 0);
  for (int i = 0; i < F::num_elements; ++i) {
    int row = (first + i) / F::columns, column = (first + i) % F::columns;
    a.x[i] = from[kRows ? row * stride + column : column * stride + row];
  }
}

template <class Use, int M, int N, int K, class T, class L, class P>
void load_matrix_sync(fragment<Use, M, N, K, T, L>& a, const P* from, unsigned stride) {
  load<std::is_same_v<L, row_major>>(a, from, stride);
}

template <int M, int N, int K, class T, class P>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& a, const P* from, unsigned stride,
                      layout_t layout) {
  if (layout == mem_row_major) load<true>(a, from, stride);
  else load<false>(a, from, stride);
}

template <class P, int M, int N, int K, class T>
void store_matrix_sync(P* to, const fragment<accumulator, M, N, K, T>& a, unsigned stride,
                       layout_t layout) {
  using F = fragment<accumulator, M, N, K, T>;
  int first = static_cast<int>(emu::now->lane) * F::num_elements;
  for (int i = 0; i < F::num_elements; ++i) {
    int row = (first + i) / F::columns, column = (first + i) % F::columns;
    to[layout == mem_row_major ? row * stride + column : column * stride + row] = a.x[i];
  }
}

template <class A, class B, class C, class D>
struct Product {
  const A* a;
  const B* b;
  const C* c;
  D* d;
};

template <class Sum, class F>
void gather(Sum* to, const emu::Lanes& lanes, const F* (*part)(void*)) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    const F* own = part(lanes.operands[lane]);
    for (int i = 0; i < F::num_elements; ++i) {
      to[lane * F::num_elements + i] = static_cast<Sum>(own->x[i]);
    }
  }
}

template <class D, class A, class B, class C>
void multiply(const emu::Lanes& lanes) {
  using P = Product<A, B, C, D>;
  using T = typename D::Stored;
  using Sum = std::conditional_t<std::is_integral_v<T>, int,
                                 std::conditional_t<std::is_same_v<T, double>, double, float>>;
  constexpr int m = D::rows, n = D::columns, k = A::columns;
  emu::work.tensor_operations += 2ull * m * n * k;
  Sum a[m * k], b[k * n], d[m * n];
  gather<Sum, A>(a, lanes, [](void* p) { return static_cast<P*>(p)->a; });
  gather<Sum, B>(b, lanes, [](void* p) { return static_cast<P*>(p)->b; });
  gather<Sum, C>(d, lanes, [](void* p) { return static_cast<P*>(p)->c; });
  for (int i = 0; i < m; ++i) {
    for (int l = 0; l < k; ++l) {
      for (int j = 0; j < n; ++j) d[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    D* own = static_cast<P*>(lanes.operands[lane])->d;
    for (int i = 0; i < D::num_elements; ++i) {
      own->x[i] = static_cast<T>(d[lane * D::num_elements + i]);
    }
  }
}

template <class D, class A, class B, class C>
void multiply_together(D& d, const A& a, const B& b, const C& c, int line) {
  Product<A, B, C, D> own{&a, &b, &c, &d};
  emu::meet_warp("mma_sync", line, ~0u, &own, multiply<D, A, B, C>);
}

template <class T>
inline float __float_to_tf32(T value) {
  return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, float(value)) + 0x1000 & ~0x1FFFu);
}

}  // namespace nvcuda::wmma

#define mma_sync(...) multiply_together(__VA_ARGS__, __LINE__)
