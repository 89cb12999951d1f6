// cp.async, whose copies belong to threads, and cp.async.bulk, whose copies belong to nobody (PTX
// ISA, "Data Movement and Conversion Instructions: Asynchronous copy").
#include <algorithm>

#include "async_state.hpp"
#include "tensor_map.hpp"

namespace emu::ptx {
namespace {

void land(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    memcpy(copy.to, copy.from, copy.from_bytes);
    memset(static_cast<char*>(copy.to) + copy.from_bytes, 0, copy.bytes - copy.from_bytes);
  }
}

// Land those that were begun before a number, and only once: what they wrote may be written anew.
void land_before(std::vector<Copy>& copies, uint64_t number) {
  auto late = std::find_if(copies.begin(), copies.end(),
                           [=](const Copy& copy) { return copy.number >= number; });
  land({copies.begin(), late});
  copies.erase(copies.begin(), late);
}

struct ArrivalAfterCopies : Event {
  unsigned thread;
  uint64_t number;
  uint32_t address;
  int line;
  void happen() override {
    auto& own = in_flight().copies[thread];
    for (auto& group : own.closed) land_before(group, number);
    land_before(own.open, number);
    mbarrier_arrive(address, 1, 0, false, false, line);
  }
};

// Float32 as TF32, to the nearest, ties to even, but for what is no number: what a device with
// tensor maps of that type did (https://github.com/triton-lang/triton/pull/11751). The manuals do
// not say it.
void round_to_tf32(char* words, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += 4) {
    uint32_t word;
    memcpy(&word, words + i, 4);
    if ((word & 0x7F800000) == 0x7F800000) continue;
    word = (word + 0xFFF + (word >> 13 & 1)) & ~0x1FFFu;
    memcpy(words + i, &word, 4);
  }
}

struct Load : Event {
  std::vector<Run> runs;  // from global memory; null: zeros
  uint32_t bytes, mbarrier;
  int line;
  bool by_peer;
  void happen() override {
    if (by_peer) check_mbarrier_for_peer(mbarrier, line);
    for (const Run& run : runs) {
      for (uint32_t i = 0; i < run.bytes; i += 16) {
        uint32_t step = run.bytes - i < 16 ? run.bytes - i : 16;
        char unit[16] = {};
        if (run.global) memcpy(unit, run.global + i, step);
        if (run.rounds) round_to_tf32(unit, step);
        proxy_write(run.shared + i, unit, step);
      }
    }
    mbarrier_complete(mbarrier, bytes, line);
  }
};

struct Store : BulkStore {
  std::vector<Run> runs;
  void happen() override {
    for (const Run& run : runs) {
      if (run.global) memcpy(run.global, proxy_view(run.shared, run.bytes), run.bytes);
    }
  }
};

// What a copy is to write may not be read until it has: whoever reads it gets NaN.
void poison_for_proxy(const std::vector<Run>& runs) {
  static const uint16_t words[8] = {kPoison, kPoison, kPoison, kPoison,
                                    kPoison, kPoison, kPoison, kPoison};
  for (const Run& run : runs) {
    for (uint32_t i = 0; i < run.bytes; i += 16) {
      proxy_write(run.shared + i, words, run.bytes - i < 16 ? run.bytes - i : 16);
    }
  }
}

void begin_load(std::vector<Run> runs, uint32_t bytes, uint32_t mbarrier, int line,
                bool by_peer = false) {
  if (by_peer) check_mbarrier_for_peer(mbarrier, line);
  check_mbarrier_for_proxy(mbarrier, line);
  charge(0, 0, bytes);
  poison_for_proxy(runs);
  auto* load = new Load;
  load->runs = std::move(runs);
  load->bytes = bytes;
  load->mbarrier = mbarrier;
  load->line = line;
  load->by_peer = by_peer;
  later(load);
}

void begin_store(std::vector<Run> runs) {
  auto* store = new Store;
  for (const Run& run : runs) charge(0, run.global ? run.bytes : 0, run.bytes);
  store->runs = std::move(runs);
  in_flight().stores[now->rank].open.push_back(store);
}

void check_bulk(uint64_t global, uint32_t shared, uint32_t bytes, int line) {
  if (global % 16 || shared % 16 || bytes % 16) {
    fail("RuntimeError",
         "cp.async.bulk of %u bytes between %lx and shared memory at %u, line %d: multiples of 16",
         bytes, global, shared, line);
  }
}

}  // namespace

void copy_async(uint32_t to, uint64_t from, uint32_t bytes, uint32_t from_bytes, int line) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || from_bytes > bytes) {
    fail("RuntimeError", "cp.async of %u of %u bytes, line %d", from_bytes, bytes, line);
  }
  if (from % bytes) misaligned(bytes, bytes, reinterpret_cast<const void*>(from), line);
  if (to % bytes) misaligned(bytes, bytes, from_shared(to, bytes), line);
  void* place = from_shared(to, bytes);
  if (watching) touch("cp.async", line * 64, to, bytes);
  charge(0, from_bytes, bytes);
  poison(place, bytes);
  in_flight().copies[now->rank].open.push_back(
      {place, reinterpret_cast<const void*>(from), bytes, from_bytes, in_flight().copies_begun++});
}

void commit_copies() { in_flight().copies[now->rank].close(); }

// "cp.async.wait_group": the youngest groups may be left in flight.
void wait_copies(uint32_t left) {
  auto& groups = in_flight().copies[now->rank].closed;
  while (groups.size() > left) {
    land(groups.front());
    groups.pop_front();
  }
}

// "cp.async.mbarrier.arrive": arrives when the thread's copies so far have landed. Unless it is
// `.noinc`, it adds the arrival to those that the phase waits for.
void arrive_after_copies(uint32_t address, bool counts, int line) {
  auto* arrival = new ArrivalAfterCopies;
  arrival->thread = now->rank;
  arrival->number = in_flight().copies_begun;
  arrival->address = address;
  arrival->line = line;
  if (counts) ++in_flight().mbarriers[address].pending;
  later(arrival);
}

void load_tile(uint32_t to, uint64_t map, const int32_t* coordinates, int rank, uint32_t mbarrier,
               int line) {
  const TensorMap& tensor = tensor_map(map, rank, line);
  charge(0, tensor.tile_bytes(), 0);
  begin_load(runs_of(tensor, coordinates, to, line), tensor.tile_bytes(), mbarrier, line);
}

void load_tile_multicast(uint32_t to, uint64_t map, const int32_t* coordinates, int rank,
                         uint32_t mbarrier, uint32_t mask, int line) {
  const TensorMap& tensor = tensor_map(map, rank, line);
  if (mask == 0 || mask >> cluster_blocks)
    fail("RuntimeError", "a copy to the blocks %x of a cluster of %u, line %d", mask,
         cluster_blocks, line);
  charge(0, tensor.tile_bytes(), 0);
  unsigned self = here;
  for (unsigned block = 0; block < cluster_blocks; ++block) {
    if (!(mask >> block & 1)) continue;
    Visit there(block);
    begin_load(runs_of(tensor, coordinates, to, line), tensor.tile_bytes(), mbarrier, line,
               block != self);
  }
}

void store_tile(uint64_t map, const int32_t* coordinates, int rank, uint32_t from, int line) {
  begin_store(runs_of(tensor_map(map, rank, line), coordinates, from, line));
}

void load_bulk(uint32_t to, uint64_t from, uint32_t bytes, uint32_t mbarrier, int line) {
  check_bulk(from, to, bytes, line);
  from_shared(to, bytes);
  charge(0, bytes, 0);
  begin_load({{to, reinterpret_cast<char*>(from), bytes}}, bytes, mbarrier, line);
}

void store_bulk(uint64_t to, uint32_t from, uint32_t bytes, int line) {
  check_bulk(to, from, bytes, line);
  begin_store({{from, reinterpret_cast<char*>(to), bytes}});
}

void commit_bulk() { in_flight().stores[now->rank].close(); }

void wait_bulk(uint32_t left) {
  auto& groups = in_flight().stores[now->rank].closed;
  while (groups.size() > left) {
    for (BulkStore* store : groups.front()) {
      store->happen();
      delete store;
    }
    groups.pop_front();
  }
}

}  // namespace emu::ptx
