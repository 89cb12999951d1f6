// What happens beside the threads: copies, mbarriers, products of warpgroups.
#pragma once

#include "machine.hpp"
#include "matrices.hpp"

namespace emu::ptx {

// cp.async: copies of a thread, in groups. They land when they are waited for.
EMU_HIDDEN void copy_async(uint32_t to, uint64_t from, uint32_t bytes, uint32_t from_bytes,
                           int line);
EMU_HIDDEN void commit_copies();
EMU_HIDDEN void wait_copies(uint32_t left);
EMU_HIDDEN void arrive_after_copies(uint32_t address, bool counts, int line);

// mbarrier.
EMU_HIDDEN void mbarrier_init(uint32_t address, uint32_t count, int line);
EMU_HIDDEN void mbarrier_inval(uint32_t address, int line);
EMU_HIDDEN void mbarrier_init_fence();
EMU_HIDDEN uint64_t mbarrier_arrive(uint32_t address, uint32_t count, uint32_t expected_bytes,
                                    bool drops, bool keeps_open, int line);
// At an mbarrier of any block of the cluster.
EMU_HIDDEN void mbarrier_arrive_in_cluster(uint32_t address, uint32_t count,
                                           uint32_t expected_bytes, bool drops, int line);
EMU_HIDDEN uint32_t mbarrier_pending_count(uint64_t state);
EMU_HIDDEN void mbarrier_expect(uint32_t address, uint32_t bytes, int line);
EMU_HIDDEN void mbarrier_complete(uint32_t address, uint32_t bytes, int line);
EMU_HIDDEN bool mbarrier_wait(uint32_t address, uint64_t state, bool parity, bool blocks, int line);
EMU_HIDDEN void check_mbarrier_for_proxy(uint32_t address, int line);
// The block that runs is visited by another one, which uses an mbarrier of it.
EMU_HIDDEN void check_mbarrier_for_peer(uint32_t address, int line);

// cp.async.bulk: copies by a unit of its own.
EMU_HIDDEN void load_tile(uint32_t to, uint64_t map, const int32_t* coordinates, int rank,
                          uint32_t mbarrier, int line);
// Into the same place of all blocks of a mask.
EMU_HIDDEN void load_tile_multicast(uint32_t to, uint64_t map, const int32_t* coordinates, int rank,
                                    uint32_t mbarrier, uint32_t mask, int line);
EMU_HIDDEN void store_tile(uint64_t map, const int32_t* coordinates, int rank, uint32_t from,
                           int line);
EMU_HIDDEN void load_bulk(uint32_t to, uint64_t from, uint32_t bytes, uint32_t mbarrier, int line);
EMU_HIDDEN void store_bulk(uint64_t to, uint32_t from, uint32_t bytes, int line);
EMU_HIDDEN void commit_bulk();
EMU_HIDDEN void wait_bulk(uint32_t left);

// wgmma: products of a warpgroup, in groups. They happen when they are waited for.
struct Scales {
  bool adds;   // to the accumulator; else it is overwritten
  int a, b;    // 1 or -1
  int turned_a, turned_b;
};
EMU_HIDDEN void wgmma(int n, int k, Kind d_kind, Kind a_kind, Kind b_kind, void* const* d, int nd,
                      const uint64_t* a, int na, uint64_t b, Scales scales, bool a_in_registers,
                      int line);
EMU_HIDDEN void wgmma_fence(int line);
EMU_HIDDEN void wgmma_commit(int line);
EMU_HIDDEN void wgmma_wait(uint32_t left, int line);
EMU_HIDDEN void set_registers(uint32_t count, int line);

inline void proxy_fence() { emu::proxy_fence(); mbarrier_init_fence(); }

}  // namespace emu::ptx
