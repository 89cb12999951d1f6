// ldmatrix, stmatrix, mma.sync (PTX ISA, "Warp Level Matrix Instructions").
#include "matrices.hpp"

#include <cmath>
#include <type_traits>

#include "banks.hpp"
#include "include/byte_float.h"
#include "sums.hpp"

namespace emu::ptx {
namespace {

struct Moved {
  uint32_t* const* to;
  const uint32_t* from;
  int count;
  bool turned;
  uint32_t address;
  int line;
};

void watch(const char* what, const Lanes& lanes) {
  const Moved& first = *lanes.of<Moved>(0);
  uint32_t rows[kWarp];
  for (unsigned lane = 0; lane < kWarp; ++lane) rows[lane] = lanes.of<Moved>(lane)->address;
  touch_rows(what, first.line, rows, first.count);
}

// "ldmatrix": lanes 8i to 8i+7 have the addresses of the rows of matrix i. Lane l gets of row l/4
// elements 2(l%4) and the next; of a turned matrix, of the column in the row's place.
void load(const Lanes& lanes) {
  const Moved& first = *lanes.of<Moved>(0);
  charge(0, 0, 128 * static_cast<uint64_t>(first.count));
  if (watching) watch("ldmatrix", lanes);
  for (int matrix = 0; matrix < first.count; ++matrix) {
    const uint16_t* rows[8];
    for (int r = 0; r < 8; ++r) {
      uint32_t address = lanes.of<Moved>(8 * matrix + r)->address;
      if (address % 16)
        fail("RuntimeError", "ldmatrix of a row at %u: not a multiple of 16", address);
      rows[r] = static_cast<const uint16_t*>(from_shared(address, 16));
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      unsigned row = lane / 4, column = 2 * (lane % 4);
      uint32_t low = first.turned ? rows[column][row] : rows[row][column];
      uint32_t high = first.turned ? rows[column + 1][row] : rows[row][column + 1];
      *lanes.of<Moved>(lane)->to[matrix] = low | high << 16;
    }
  }
}

// "stmatrix": the other way.
void store(const Lanes& lanes) {
  const Moved& first = *lanes.of<Moved>(0);
  if (watching) watch("stmatrix", lanes);
  for (int matrix = 0; matrix < first.count; ++matrix) {
    uint16_t* rows[8];
    for (int r = 0; r < 8; ++r) {
      uint32_t address = lanes.of<Moved>(8 * matrix + r)->address;
      if (address % 16)
        fail("RuntimeError", "stmatrix of a row at %u: not a multiple of 16", address);
      rows[r] = static_cast<uint16_t*>(from_shared(address, 16));
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      unsigned row = lane / 4, column = 2 * (lane % 4);
      uint32_t word = lanes.of<Moved>(lane)->from[matrix];
      (first.turned ? rows[column][row] : rows[row][column]) = static_cast<uint16_t>(word);
      (first.turned ? rows[column + 1][row] : rows[row][column + 1]) =
          static_cast<uint16_t>(word >> 16);
    }
  }
}

struct Product {
  Shape shape;
  Kind d_kind, a_kind, b_kind, c_kind;
  void* const* d;
  const uint64_t *a, *b, *c;
};

struct Place {
  int row, column;
};

// "Matrix Fragments for mma": where element i of a lane's registers lies. A register holds as many
// elements side by side as fit in it; lanes of four hold a row, one below the other.
Place place_of_a(int lane, int i, int side, int m) {
  int group = lane / 4, quarter = lane % 4, register_number = i / side;
  // Registers go down 8 rows first, and then on by half of the columns.
  bool lower = register_number % 2;
  int column = quarter * side + i % side + (register_number / 2) * 4 * side;
  if (m == 8) return {group, quarter * side + i % side + register_number * 4 * side};
  return {group + (lower ? 8 : 0), column};
}

Place place_of_b(int lane, int i, int side) {
  int group = lane / 4, quarter = lane % 4;
  return {quarter * side + i % side + (i / side) * 4 * side, group};
}

Place place_of_c(int lane, int i) {
  return {lane / 4 + (i / 2) * 8, (lane % 4) * 2 + i % 2};
}

// Measured on an H100: each NaN is this one.
float canonical(float value) {
  return value == value ? value : __builtin_bit_cast(float, 0x7FFFFFFFu);
}

void put(Kind kind, void* const* registers, int index, double value) {
  switch (kind) {
    case Kind::kF16: {
      auto* word = static_cast<uint16_t*>(registers[index / 2]);
      word[index % 2] = Narrow<Fp16>(static_cast<float>(value)).bits();
      return;
    }
    case Kind::kF32:
      *static_cast<float*>(registers[index]) = canonical(static_cast<float>(value));
      return;
    case Kind::kF64: *static_cast<double*>(registers[index]) = value; return;
    case Kind::kS32: {
      auto whole = static_cast<int32_t>(static_cast<int64_t>(value));
      memcpy(registers[index], &whole, 4);
      return;
    }
    default: fail("RuntimeError", "mma.sync with results of a type that it does not have");
  }
}

// Products of floats that are not float64: see `sums.hpp`.
void add_as_measured(const Product& p, const float* a, const float* b, float* d) {
  const auto [m, n, k] = p.shape;
  static float turned[8 * 32];
  static int a_exponents[16 * 32], b_exponents[8 * 32];
  for (int i = 0; i < m * k; ++i) a_exponents[i] = factor_exponent(p.a_kind, a[i]);
  for (int j = 0; j < n; ++j) {
    for (int l = 0; l < k; ++l) {
      turned[j * k + l] = b[l * n + j];
      b_exponents[j * k + l] = factor_exponent(p.b_kind, b[l * n + j]);
    }
  }
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float& sum = d[i * n + j];
      sum = kept_sum(p.d_kind, p.a_kind,
                     sum_of_products(a + i * k, a_exponents + i * k, turned + j * k,
                                     b_exponents + j * k, k, sum, kept_bits(p.a_kind)));
    }
  }
}

template <class Sum>
void multiply(const Lanes& lanes) {
  const Product& first = *lanes.of<Product>(0);
  const auto [m, n, k] = first.shape;
  work.tensor_operations += 4ull * m * n * k / elements_of(first.a_kind);
  static Sum a[16 * 64], b[64 * 8], d[16 * 8];
  int side_a = elements_of(first.a_kind), side_b = elements_of(first.b_kind);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Product& own = *lanes.of<Product>(lane);
    for (int i = 0; i < m * k / 32; ++i) {
      Place p = place_of_a(static_cast<int>(lane), i, side_a, m);
      a[p.row * k + p.column] = static_cast<Sum>(element(own.a_kind, own.a, i));
    }
    for (int i = 0; i < k * n / 32; ++i) {
      Place p = place_of_b(static_cast<int>(lane), i, side_b);
      b[p.row * n + p.column] = static_cast<Sum>(element(own.b_kind, own.b, i));
    }
    for (int i = 0; i < m * n / 32; ++i) {
      Place p = place_of_c(static_cast<int>(lane), i);
      d[p.row * n + p.column] = static_cast<Sum>(element(own.c_kind, own.c, i));
    }
  }
  if constexpr (std::is_same_v<Sum, float>) {
    add_as_measured(first, a, b, d);
  } else {
    for (int i = 0; i < m; ++i) {
      for (int l = 0; l < k; ++l) {
        for (int j = 0; j < n; ++j) d[i * n + j] += a[i * k + l] * b[l * n + j];
      }
    }
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Product& own = *lanes.of<Product>(lane);
    for (int i = 0; i < m * n / 32; ++i) {
      Place p = place_of_c(static_cast<int>(lane), i);
      put(own.d_kind, own.d, i, static_cast<double>(d[p.row * n + p.column]));
    }
  }
}

// m8n8k4 of float16 is four products, each of eight lanes: 4q to 4q+3, and those 16 further on
// ("Matrix Fragments for mma.m8n8k4 with .f16 floating point type").
Place place_of_quad_sum(int lane, int i, Kind kind) {
  int lower = lane < 16 ? 0 : 4;
  if (kind == Kind::kF16) return {lane % 4 + lower, i};
  return {(lane & 1) + (i & 2) + lower, (i & 4) + (lane & 2) + (i & 1)};
}

void multiply_quads(const Lanes& lanes) {
  work.tensor_operations += 4 * 2 * 8 * 8 * 4;
  for (int quad = 0; quad < 4; ++quad) {
    float a[8][4], b[4][8], d[8][8];
    auto each = [&](auto visit) {
      for (int l = 0; l < 8; ++l) {
        int lane = quad * 4 + l % 4 + l / 4 * 16;
        visit(lane, *lanes.of<Product>(static_cast<unsigned>(lane)));
      }
    };
    each([&](int lane, const Product& own) {
      int place = lane % 4 + (lane < 16 ? 0 : 4);
      for (int i = 0; i < 4; ++i) {
        a[place][i] = static_cast<float>(element(own.a_kind, own.a, i));
        b[i][place] = static_cast<float>(element(own.b_kind, own.b, i));
      }
      for (int i = 0; i < 8; ++i) {
        Place p = place_of_quad_sum(lane, i, own.c_kind);
        d[p.row][p.column] = static_cast<float>(element(own.c_kind, own.c, i));
      }
    });
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) {
        for (int l = 0; l < 4; ++l) d[i][j] += a[i][l] * b[l][j];
      }
    }
    each([&](int lane, const Product& own) {
      for (int i = 0; i < 8; ++i) {
        Place p = place_of_quad_sum(lane, i, own.d_kind);
        put(own.d_kind, own.d, i, static_cast<double>(d[p.row][p.column]));
      }
    });
  }
}

bool is_of_quads(Shape s, Kind a) { return s.m == 8 && s.n == 8 && s.k == 4 && a == Kind::kF16; }

bool exists(Shape s, Kind a) {
  switch (a) {
    case Kind::kF16: return s.m == 16 && s.n == 8 && (s.k == 8 || s.k == 16);
    case Kind::kBf16: return s.m == 16 && s.n == 8 && (s.k == 8 || s.k == 16);
    case Kind::kTf32: return s.m == 16 && s.n == 8 && (s.k == 4 || s.k == 8);
    case Kind::kE4m3:
    case Kind::kE5m2: return s.m == 16 && s.n == 8 && (s.k == 16 || s.k == 32);
    case Kind::kS8:
    case Kind::kU8:
      return s.n == 8 && ((s.m == 16 && (s.k == 16 || s.k == 32)) || (s.m == 8 && s.k == 16));
    case Kind::kF64: return s.m == 8 && s.n == 8 && s.k == 4;
    default: return false;
  }
}

}  // namespace

int elements_of(Kind kind) {
  switch (kind) {
    case Kind::kF16:
    case Kind::kBf16: return 2;
    case Kind::kE4m3:
    case Kind::kE5m2:
    case Kind::kS8:
    case Kind::kU8: return 4;
    default: return 1;
  }
}

float widened(Kind kind, uint32_t bits) {
  switch (kind) {
    case Kind::kF16: return Fp16::widened(static_cast<uint16_t>(bits));
    case Kind::kBf16: return Bf16::widened(static_cast<uint16_t>(bits));
    case Kind::kE4m3: return E4m3::widened(static_cast<uint8_t>(bits));
    case Kind::kE5m2: return E5m2::widened(static_cast<uint8_t>(bits));
    case Kind::kTf32: return __builtin_bit_cast(float, bits & ~0x1FFFu);  // 10 bits of mantissa
    default: return __builtin_bit_cast(float, bits);
  }
}

double element(Kind kind, const uint64_t* registers, int index) {
  switch (kind) {
    case Kind::kF16:
    case Kind::kBf16:
      return widened(kind, static_cast<uint32_t>(registers[index / 2] >> (16 * (index % 2))));
    case Kind::kTf32:
    case Kind::kF32: return widened(kind, static_cast<uint32_t>(registers[index]));
    case Kind::kE4m3:
    case Kind::kE5m2:
      return widened(kind, static_cast<uint32_t>(registers[index / 4] >> (8 * (index % 4))));
    case Kind::kF64: return __builtin_bit_cast(double, registers[index]);
    case Kind::kS8: return static_cast<int8_t>(registers[index / 4] >> (8 * (index % 4)));
    case Kind::kU8: return static_cast<uint8_t>(registers[index / 4] >> (8 * (index % 4)));
    case Kind::kS32: return static_cast<int32_t>(registers[index]);
  }
  __builtin_unreachable();
}

void ldmatrix(uint32_t* const* registers, int count, bool turned, uint32_t address, int line) {
  Moved own{registers, nullptr, count, turned, address, line};
  meet_warp("ldmatrix", line, ~0u, &own, load);
}

// "movmatrix": a matrix turned, in registers.
uint32_t movmatrix(uint32_t word, int line) {
  uint32_t result = 0;
  uint32_t* to[] = {&result};
  Moved own{to, &word, 1, true, 0, line};
  meet_warp("movmatrix", line, ~0u, &own, [](const Lanes& lanes) {
    auto at = [&](unsigned row, unsigned column) {
      uint32_t from = *lanes.of<Moved>(row * 4 + column / 2)->from;
      return column % 2 ? from >> 16 : from & 0xFFFF;
    };
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      unsigned row = lane / 4, column = 2 * (lane % 4);
      *lanes.of<Moved>(lane)->to[0] = at(column, row) | at(column + 1, row) << 16;
    }
  });
  return result;
}

void stmatrix(const uint32_t* registers, int count, bool turned, uint32_t address, int line) {
  Moved own{nullptr, registers, count, turned, address, line};
  meet_warp("stmatrix", line, ~0u, &own, store);
}

void mma(Shape shape, Kind d_kind, Kind a_kind, Kind b_kind, Kind c_kind, void* const* d,
         const uint64_t* a, const uint64_t* b, const uint64_t* c, int nd, int na, int nb, int nc,
         int line) {
  auto [m, n, k] = shape;
  Product own{shape, d_kind, a_kind, b_kind, c_kind, d, a, b, c};
  if (is_of_quads(shape, a_kind) && b_kind == Kind::kF16 && na == 2 && nb == 2 &&
      nd * elements_of(d_kind) == 8 && nc * elements_of(c_kind) == 8) {
    meet_warp("mma.sync", line, ~0u, &own, multiply_quads);
    return;
  }
  bool fits = exists(shape, a_kind) && (elements_of(a_kind) == elements_of(b_kind)) &&
              nd * elements_of(d_kind) == m * n / 32 && nc * elements_of(c_kind) == m * n / 32 &&
              na * elements_of(a_kind) == m * k / 32 && nb * elements_of(b_kind) == k * n / 32;
  if (!fits) {
    fail("RuntimeError", "the emulated device does not know mma.sync of m%dn%dk%d, line %d", m, n,
         k, line);
  }
  bool exact = a_kind == Kind::kF64 || d_kind == Kind::kS32;  // integers in float64 are exact
  meet_warp("mma.sync", line, ~0u, &own, exact ? multiply<double> : multiply<float>);
}

}  // namespace emu::ptx
