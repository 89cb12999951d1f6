// wgmma: products of a warpgroup on matrices in shared memory (PTX ISA, "Asynchronous Warpgroup
// Level Matrix Instructions"). A product happens when its group is waited for: it reads shared
// memory then, as the proxy sees it, and its accumulators are NaN until then.
#include "async_state.hpp"
#include "include/byte_float.h"
#include "sums.hpp"
#include "tensor_map.hpp"

#pragma GCC optimize("O3")

namespace emu::ptx {
namespace {

constexpr int kRows = 64, kMostTerms = 32;
constexpr uint32_t kNan = 0x7FF57FF5;

// "Matrix Descriptor Format".
struct Descriptor {
  uint32_t start, leading, stride;
  Swizzle swizzle;
};

Descriptor described(uint64_t bits, int line) {
  static const Swizzle kinds[] = {Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
  if (bits >> 49 & 7)
    fail("RuntimeError",
         "a matrix descriptor with a base offset, which the emulated device does not know, line %d",
         line);
  auto field = [&](int shift) { return static_cast<uint32_t>(bits >> shift & 0x3FFF) << 4; };
  return {field(0), field(16), field(32), kinds[bits >> 62]};
}

// Where an element lies: `major` counts along M or N, `k` along K ("Shared Memory Matrix Layout":
// K-major; or, turned, M- or N-major). Units of 16 bytes are first laid out plainly, with as many
// side by side as the swizzle spans, and then change places.
uint32_t place_of(const Descriptor& d, int major, int k, int bytes, bool turned) {
  uint32_t units = d.swizzle == Swizzle::kNone ? 1
                   : d.swizzle == Swizzle::k32 ? 2
                   : d.swizzle == Swizzle::k64 ? 4
                                               : 8;
  uint32_t along =
      static_cast<uint32_t>(turned ? major : k) * bytes;  // bytes in the direction that is dense
  uint32_t across = static_cast<uint32_t>(turned ? k : major);
  uint32_t unit = along / 16, address = d.start + along % 16 + (across % 8) * units * 16;
  if (d.swizzle == Swizzle::kNone) {
    address += turned ? unit * d.stride + across / 8 * d.leading
                      : unit * d.leading + across / 8 * d.stride;
  } else if (turned) {
    address += unit % units * 16 + unit / units * d.leading + across / 8 * d.stride;
  } else {
    address += unit * 16 + across / 8 * d.stride;
  }
  return swizzled(d.swizzle, address);
}

// "Register Fragments": rows of a warp's quarter of the matrix.
struct Place {
  int row, column;
};
Place place_of_d(int lane, int i) {
  int warp = lane / 32, l = lane % 32;
  return {warp * 16 + l / 4 + (i / 2 % 2) * 8, i / 4 * 8 + l % 4 * 2 + i % 2};
}

template <class Sum>
void read_matrix(Sum* to, const Descriptor& d, Kind kind, int rows, int k, bool turned) {
  int bytes = 4 / elements_of(kind);
  for (int major = 0; major < rows; ++major) {
    for (int l = 0; l < k; ++l) {
      uint32_t bits = 0;
      memcpy(&bits, proxy_view(place_of(d, major, l, bytes, turned), static_cast<size_t>(bytes)),
             static_cast<size_t>(bytes));
      uint64_t word = bits;
      to[major * k + l] = static_cast<Sum>(element(kind, &word, 0));
    }
  }
}

template <class Sum>
void read_fragments(Sum* to, const Wgmma& product) {
  int side = elements_of(product.a_kind), count = static_cast<int>(product.a.size()) / 128;
  for (int lane = 0; lane < 128; ++lane) {
    for (int i = 0; i < count * side; ++i) {
      int reg = i / side, row = lane / 32 * 16 + lane % 32 / 4 + (reg % 2) * 8;
      int column = lane % 4 * side + i % side + reg / 2 * 4 * side;
      to[row * product.k + column] =
          static_cast<Sum>(element(product.a_kind, &product.a[lane * count], i));
    }
  }
}

template <class Sum>
Sum accumulator(const Wgmma& p, int lane, int i) {
  int side = elements_of(p.d_kind), count = static_cast<int>(p.d.size()) / 128;
  void* place = p.d[lane * count + i / side];
  if (p.d_kind != Kind::kF16) return *static_cast<Sum*>(place);
  return Fp16::widened(static_cast<uint16_t*>(place)[i % 2]);
}

template <class Sum>
void put(const Wgmma& p, int lane, int i, Sum value) {
  int side = elements_of(p.d_kind), count = static_cast<int>(p.d.size()) / 128;
  void* place = p.d[lane * count + i / side];
  if (p.d_kind != Kind::kF16) *static_cast<Sum*>(place) = value;
  else static_cast<uint16_t*>(place)[i % 2] = Fp16::narrowed(value);
}

template <class Sum>
void multiply(Sum* d, const Sum* a, const Sum* b, int n, int k) {
  for (int i = 0; i < kRows; ++i) {
    for (int l = 0; l < k; ++l) {
      Sum factor = a[i * k + l];
      for (int j = 0; j < n; ++j) d[i * n + j] += factor * b[l * n + j];
    }
  }
}

// Products of floats, see `sums.hpp`; B is turned.
void add_as_measured(float* d, const float* a, float* b, const Wgmma& p) {
  static int a_exponents[kRows * kMostTerms], b_exponents[256 * kMostTerms];
  for (int i = 0; i < kRows * p.k; ++i) a_exponents[i] = factor_exponent(p.a_kind, a[i]);
  for (int i = 0; i < p.n * p.k; ++i) {
    b_exponents[i] = factor_exponent(p.b_kind, b[i]);
    b[i] *= p.scales.b;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < p.n; ++j) {
      float& sum = d[i * p.n + j];
      sum = kept_sum(p.d_kind, p.a_kind,
                     sum_of_products(a + i * p.k, a_exponents + i * p.k, b + j * p.k,
                                     b_exponents + j * p.k, p.k, sum, kept_bits(p.a_kind)));
    }
  }
}

template <class Sum>
void happen(Wgmma& p, Warpgroup& group, int line) {
  static Sum a[kRows * kMostTerms], turned_b[256 * kMostTerms], b[kMostTerms * 256], d[kRows * 256];
  for (size_t i = 0; i < p.saved.size(); ++i) memcpy(p.d[i], &p.saved[i], 4);
  if (p.a_in_registers) read_fragments(a, p);
  else read_matrix(a, described(p.a_descriptor, line), p.a_kind, kRows, p.k, p.scales.turned_a);
  read_matrix(turned_b, described(p.b, line), p.b_kind, p.n, p.k, p.scales.turned_b);
  for (int j = 0; j < p.n; ++j) {
    for (int l = 0; l < p.k; ++l) b[l * p.n + j] = turned_b[j * p.k + l] * p.scales.b;
  }
  for (int i = 0; i < kRows * p.k; ++i) a[i] *= p.scales.a;
  int elements = kRows * p.n / 128;
  for (int lane = 0; lane < 128; ++lane) {
    for (int i = 0; i < elements; ++i) {
      Place at = place_of_d(lane, i);
      d[at.row * p.n + at.column] = p.scales.adds ? accumulator<Sum>(p, lane, i) : Sum{};
    }
  }
  if constexpr (std::is_same_v<Sum, float>) add_as_measured(d, a, turned_b, p);
  else multiply(d, a, b, p.n, p.k);
  work.tensor_operations += 4ull * kRows * p.n * p.k / elements_of(p.a_kind);
  for (int lane = 0; lane < 128; ++lane) {
    for (int i = 0; i < elements; ++i) {
      Place at = place_of_d(lane, i);
      put(p, lane, i, d[at.row * p.n + at.column]);
    }
  }
  for (void* place : p.d) memcpy(&group.left[place], place, 4);
}

struct Request {
  int n, k, nd, na, line;
  Kind d_kind, a_kind, b_kind;
  void* const* d;
  const uint64_t* a;
  uint64_t b;
  Scales scales;
  bool a_in_registers;
};

bool is_pending(const Warpgroup& group, void* place) {
  for (const auto& closed : group.products.closed) {
    for (const Wgmma& p : closed) if (p.d[0] == place) return true;
  }
  for (const Wgmma& p : group.products.open) if (p.d[0] == place) return true;
  return false;
}

// "wgmma.fence": before the first product, and after threads changed registers that it uses; one is
// enough for all products of a group.
void check_fence(Warpgroup& group, const Wgmma& p, int line) {
  bool changed = group.left.empty() || p.a_in_registers;
  for (size_t i = 0; i < p.d.size() && !changed && p.scales.adds; ++i) {
    auto left = group.left.find(p.d[i]);
    changed = left == group.left.end() || memcmp(&left->second, p.d[i], 4) != 0;
  }
  if (changed && !group.fenced) {
    fail("RuntimeError",
         "wgmma.mma_async of registers that threads wrote, line %d, without wgmma.fence", line);
  }
}

void begin(const Lanes& lanes) {
  const Request& first = *lanes.of<Request>(0);
  Warpgroup& group = in_flight().warpgroups[now->rank / kWarpgroup];
  Wgmma p{first.n, first.k, first.d_kind, first.a_kind, first.b_kind, first.a[0], first.b,
          first.scales, first.a_in_registers, {}, {}, {}};
  for (unsigned lane = 0; lane < kWarpgroup; ++lane) {
    const Request& own = *lanes.of<Request>(lane);
    if (own.b != first.b || (!own.a_in_registers && own.a[0] != first.a[0])) {
      fail("RuntimeError", "threads of a warpgroup have different matrix descriptors, line %d",
           first.line);
    }
    p.d.insert(p.d.end(), own.d, own.d + own.nd);
    if (own.a_in_registers) p.a.insert(p.a.end(), own.a, own.a + own.na);
  }
  if (!is_pending(group, p.d[0])) {
    check_fence(group, p, first.line);
    for (void* place : p.d) {
      uint32_t bits;
      memcpy(&bits, place, 4);
      p.saved.push_back(bits);
      memcpy(place, &kNan, 4);
    }
  }
  group.products.open.push_back(std::move(p));
}

Warpgroup& own_group() { return in_flight().warpgroups[now->rank / kWarpgroup]; }

struct Simple {
  uint32_t value;
  int line;
};

}  // namespace

void wgmma(int n, int k, Kind d_kind, Kind a_kind, Kind b_kind, void* const* d, int nd,
           const uint64_t* a, int na, uint64_t b, Scales scales, bool a_in_registers, int line) {
  bool is_whole = d_kind == Kind::kS32;
  bool is_known =
      elements_of(a_kind) == elements_of(b_kind) &&
      (elements_of(a_kind) == 4 ? is_whole == (a_kind == Kind::kS8 || a_kind == Kind::kU8)
                                : a_kind == b_kind) &&
      k == 8 * elements_of(a_kind) && n % 8 == 0 && n >= 8 && n <= 256 &&
      (is_whole ? d_kind == Kind::kS32
                : d_kind == Kind::kF32 || (d_kind == Kind::kF16 && a_kind == Kind::kF16)) &&
      nd * elements_of(d_kind) == kRows * n / 128 && na == (a_in_registers ? 4 : 1) &&
      (elements_of(a_kind) == 2 || !(scales.turned_a || scales.turned_b));
  if (!is_known)
    fail("RuntimeError",
         "the emulated device does not know wgmma.mma_async of m64n%dk%d in this form, line %d", n,
         k, line);
  Request own{n, k, nd, na, line, d_kind, a_kind, b_kind, d, a, b, scales, a_in_registers};
  meet_warpgroup("wgmma.mma_async", line, &own, begin);
}

void wgmma_fence(int line) {
  Simple own{};
  meet_warpgroup("wgmma.fence", line, &own, [](const Lanes&) { own_group().fenced = true; });
}

void wgmma_commit(int line) {
  Simple own{};
  meet_warpgroup("wgmma.commit_group", line, &own, [](const Lanes&) {
    own_group().products.close();
    own_group().fenced = false;
  });
}

void wgmma_wait(uint32_t left, int line) {
  Simple own{left, line};
  meet_warpgroup("wgmma.wait_group", line, &own, [](const Lanes& lanes) {
    Warpgroup& group = own_group();
    const Simple& first = *lanes.of<Simple>(0);
    while (group.products.closed.size() > first.value) {
      for (Wgmma& p : group.products.closed.front()) {
        if (p.d_kind == Kind::kS32) happen<int32_t>(p, group, first.line);
        else happen<float>(p, group, first.line);
      }
      group.products.closed.pop_front();
    }
  });
}

// "setmaxnreg": the registers of all warpgroups together are those of a multiprocessor.
void set_registers(uint32_t count, int line) {
  if (count < 24 || count > 256 || count % 8)
    fail("RuntimeError", "setmaxnreg to %u registers, line %d", count, line);
  Simple own{count, line};
  meet_warpgroup("setmaxnreg", line, &own, [](const Lanes& lanes) {
    own_group().registers = lanes.of<Simple>(0)->value;
    uint64_t sum = 0;
    for (auto& [number, group] : in_flight().warpgroups) sum += group.registers * kWarpgroup;
    if (sum > 65536)
      fail("RuntimeError", "setmaxnreg: warpgroups ask for %lu registers of 65536, line %d", sum,
           lanes.of<Simple>(0)->line);
  });
}

}  // namespace emu::ptx
