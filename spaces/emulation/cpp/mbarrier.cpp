// mbarrier objects (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier").
//
// A phase is complete when all arrivals and all bytes of copies have come. Their bits in shared
// memory are opaque; here they are a mark, and the state is beside it.
#include <algorithm>

#include "async_state.hpp"

namespace emu::ptx {
namespace {

constexpr uint64_t kMark = 0x6d62617272696572;
constexpr unsigned kPendingBits = 20;
constexpr uint32_t kMost = (1 << kPendingBits) - 1;

uint64_t* bits_of(uint32_t address, int line) {
  if (address % 8)
    fail("RuntimeError", "an mbarrier at %u, which is no multiple of 8, line %d", address, line);
  return static_cast<uint64_t*>(from_shared(address, 8));
}

Mbarrier& known(uint32_t address, int line) {
  uint64_t mark = *bits_of(address, line);
  auto found = in_flight().mbarriers.find(address);
  if (found == in_flight().mbarriers.end()) {
    fail("RuntimeError", "%s uses the mbarrier at %u, line %d, before mbarrier.init", thread_text(),
         address, line);
  }
  if (mark != (kMark ^ address)) {
    fail("RuntimeError", "the mbarrier at %u was written over, seen at line %d", address, line);
  }
  return found->second;
}

// The opaque state: a phase, and the arrivals that it waited for.
uint64_t state_of(const Mbarrier& barrier) {
  return barrier.phase << kPendingBits | barrier.pending;
}

void complete(Mbarrier& barrier, uint32_t address) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.by_peers_unseen = std::max(barrier.by_peers, barrier.by_peers_unseen);
  barrier.by_peers = 0;
  wake(address);
}

}  // namespace

void mbarrier_init(uint32_t address, uint32_t count, int line) {
  if (count == 0 || count > kMost)
    fail("RuntimeError", "mbarrier.init for %u arrivals, line %d", count, line);
  *bits_of(address, line) = kMark ^ address;
  in_flight().mbarriers[address] = {count, count, 0, 0, false, 0, 0, 0};
}

void mbarrier_inval(uint32_t address, int line) {
  known(address, line);
  in_flight().mbarriers.erase(address);
}

// "fence.mbarrier_init": what was initialised before is seen by all that use it later.
void mbarrier_init_fence() {
  for (auto& [address, barrier] : in_flight().mbarriers) {
    if (!barrier.fenced) barrier.fenced_after = cluster_barriers();
    barrier.fenced = true;
  }
}

void check_mbarrier_for_proxy(uint32_t address, int line) {
  if (!known(address, line).fenced) {
    fail("RuntimeError",
         "a copy is to complete at the mbarrier at %u, line %d, and no fence.mbarrier_init or "
         "fence.proxy.async came after its mbarrier.init", address, line);
  }
}

// A peer has to know that this block has begun and set it up, and that it is still there.
void check_mbarrier_for_peer(uint32_t address, int line) {
  if (has_ended(here)) {
    fail("RuntimeError",
         "the mbarrier at %u of block (%u, %u, %u) is used by another block, line %d, and all "
         "threads of its own have ended", address, block_index.x, block_index.y, block_index.z,
         line);
  }
  Mbarrier& barrier = known(address, line);
  if (!barrier.fenced || barrier.fenced_after >= cluster_barriers()) {
    fail("RuntimeError",
         "the mbarrier at %u of block (%u, %u, %u) is used by another block, line %d, and no "
         "fence.mbarrier_init with a barrier.cluster after it came after its mbarrier.init",
         address, block_index.x, block_index.y, block_index.z, line);
  }
  barrier.by_peers = cluster_barriers() + 1;
}

// What other blocks did to shared memory is over, and threads of the block, or of the whole cluster,
// waited for it: else a peer may use what another block has by then.
void AsyncState::check_end() {
  for (auto& [address, barrier] : mbarriers) {
    if (std::max(barrier.by_peers, barrier.by_peers_unseen) <= cluster_barriers()) continue;
    fail("RuntimeError",
         "block (%u, %u, %u) ends, and nothing waits for what another block does to the mbarrier "
         "at %u", block_index.x, block_index.y, block_index.z, address);
  }
}

void mbarrier_arrive_in_cluster(uint32_t address, uint32_t count, uint32_t expected_bytes,
                                bool drops, int line) {
  auto [block, place] = find_peer(address);
  bool is_peer = block != here;
  Visit there(block);
  if (is_peer) check_mbarrier_for_peer(place, line);
  mbarrier_arrive(place, count, expected_bytes, drops, false, line);
}

uint64_t mbarrier_arrive(uint32_t address, uint32_t count, uint32_t expected_bytes, bool drops,
                         bool keeps_open, int line) {
  Mbarrier& barrier = known(address, line);
  uint64_t state = state_of(barrier);
  barrier.bytes += expected_bytes;
  if (count > barrier.pending) {
    fail("RuntimeError", "%u arrivals too many at the mbarrier at %u, line %d, by %s",
         count - barrier.pending, address, line, thread_text());
  }
  if (keeps_open && (count == barrier.pending)) {
    fail("RuntimeError",
         "mbarrier.arrive.noComplete completes the phase of the mbarrier at %u, line %d", address,
         line);
  }
  barrier.pending -= count;
  if (drops) barrier.count -= count;
  complete(barrier, address);
  return state;
}

void mbarrier_expect(uint32_t address, uint32_t bytes, int line) {
  known(address, line).bytes += bytes;
}

void mbarrier_complete(uint32_t address, uint32_t bytes, int line) {
  Mbarrier& barrier = known(address, line);
  barrier.bytes -= bytes;
  if (barrier.bytes > kMost || -barrier.bytes > kMost) {
    fail("RuntimeError", "the count of bytes of the mbarrier at %u is out of its range", address);
  }
  complete(barrier, address);
}

uint32_t mbarrier_pending_count(uint64_t state) { return static_cast<uint32_t>(state & kMost); }

bool mbarrier_wait(uint32_t address, uint64_t state, bool parity, bool blocks, int line) {
  for (;;) {
    Mbarrier& barrier = known(address, line);
    bool done = parity ? (barrier.phase & 1) != (state & 1) : barrier.phase > state >> kPendingBits;
    if (done) {
      barrier.by_peers_unseen = 0;
      return true;
    }
    if (!blocks) {
      yield("mbarrier.test_wait", line);
      return false;
    }
    wait_for("mbarrier.try_wait of the mbarrier at", line, address);
  }
}

}  // namespace emu::ptx
