// What a kernel may ask of the machine that runs it: who it is, barriers, meetings of lanes,
// shared memory, things that happen later.
//
// The threads of a cluster's blocks are fibers of one CPU thread. A fiber runs as compiled code until
// it waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define EMU_HIDDEN __attribute__((visibility("hidden")))

namespace emu {

struct Index {
  unsigned x, y, z;
};

struct Meeting;

// A thread of the running cluster.
struct Thread {
  Index index;
  unsigned block;  // the number in the cluster of its block
  unsigned rank;  // its number in the block, x fastest
  unsigned lane;  // its number in its warp
  unsigned warp;  // its warp's number in the block
  bool done;
  bool blocked;
  void* stack_pointer;
  const char* waits_at;  // what it waits at, for reports; null while it runs
  int line;              // the line of the kernel's source where it waits
  uint64_t waits_for;    // which one: a barrier's number, the place of an mbarrier
  int barrier_sum;       // of the predicates at the last barrier that counted them
  uint64_t cluster_phase;  // of the cluster's barrier that it arrived at; 0: at none
};

EMU_HIDDEN extern Thread* now;  // the thread that runs
EMU_HIDDEN extern Index block_index, block_extent, grid_extent, cluster_extent;

constexpr unsigned kWarp = 32;
constexpr unsigned kWarpgroup = 128;
constexpr unsigned kMostThreads = 1024, kMostBlocks = 8;  // of a block; of a cluster
constexpr uint16_t kPoison = 0x7FF5;  // a NaN in float16, bfloat16, float32 and float64

// End the launch with an error of Python's kind `kind`.
[[noreturn]] EMU_HIDDEN void fail(const char* kind, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// End it for an access to `bytes` bytes at an address that is no multiple of `alignment`.
[[noreturn]] EMU_HIDDEN void misaligned(size_t bytes, size_t alignment,
                                        const volatile void* place, int line);

// The thread that runs, in words.
EMU_HIDDEN const char* thread_text();

// Barriers of a block (PTX ISA, "Parallel Synchronization and Communication Instructions: bar").
EMU_HIDDEN void sync_threads(int line);
EMU_HIDDEN int sync_threads_count(int predicate, int line);
EMU_HIDDEN void named_barrier(unsigned number, unsigned threads, bool waits, int line);

// Lanes that do an instruction together. Each brings operands; the last one to come does it for
// all of them, and all go on.
struct Lanes {
  void* operands[kWarpgroup];  // of each lane, null for one that takes no part
  unsigned count;              // lanes in the group: 32 or 128
  template <class T>
  T* of(unsigned lane) const {
    return static_cast<T*>(operands[lane]);
  }
};
using Apply = void (*)(const Lanes&);
EMU_HIDDEN void meet_warp(const char* what, int line, uint32_t mask, void* operands, Apply apply);
EMU_HIDDEN void meet_warpgroup(const char* what, int line, void* operands, Apply apply);
EMU_HIDDEN uint32_t active_mask(int line);  // lanes that are here too, once no other can come

// Blocks of the running cluster, by their numbers in it: the one that runs, how many there are, and
// whether all threads of one have ended.
EMU_HIDDEN extern unsigned here, cluster_blocks;
EMU_HIDDEN bool has_ended(unsigned block);
EMU_HIDDEN void enter_block(unsigned block);

// While it lives, another block is the one that runs: shared memory and what is in flight are its.
class Visit {
 public:
  explicit Visit(unsigned block) : before_(here) { enter_block(block); }
  ~Visit() { enter_block(before_); }
  Visit(const Visit&) = delete;

 private:
  unsigned before_;
};

// Barriers of a cluster, and how many of them all its threads have passed (PTX ISA,
// "barrier.cluster").
EMU_HIDDEN void cluster_arrive(int line);
EMU_HIDDEN void cluster_wait(int line);
EMU_HIDDEN uint64_t cluster_barriers();

// Let other threads go first.
EMU_HIDDEN void yield(const char* what, int line);

// Block until `wake(place)`.
EMU_HIDDEN void wait_for(const char* what, int line, uint64_t place);
EMU_HIDDEN void wake(uint64_t place);

// Something that another unit of the device does at a time of its own, but no later than when
// all threads wait.
struct Event {
  unsigned block;  // where it happens
  virtual ~Event() = default;
  virtual void happen() = 0;
};
EMU_HIDDEN void later(Event* event);  // in the block that runs; takes ownership

// Shared memory of the block that runs. Addresses in its window are 32 bits wide.
EMU_HIDDEN uint32_t to_shared(const void* pointer);
EMU_HIDDEN void* from_shared(uint32_t address, size_t bytes);
EMU_HIDDEN bool is_shared(const void* pointer);
// The same place in another block of the cluster (PTX ISA, "mapa"), and of such an address, or of
// one in the block's own window, the block, and the address there.
struct Peer {
  unsigned block;
  uint32_t address;
};
EMU_HIDDEN uint32_t map_to_peer(uint32_t address, uint32_t block, int line);
EMU_HIDDEN Peer find_peer(uint32_t address);
EMU_HIDDEN void* static_shared(size_t offset);
EMU_HIDDEN void* dynamic_shared();
EMU_HIDDEN void poison(void* start, size_t bytes);

// What the asynchronous proxy sees of shared memory: what threads wrote before a proxy fence, and
// what the proxy itself wrote (PTX ISA, "Memory Consistency Model: Proxies").
EMU_HIDDEN const void* proxy_view(uint32_t address, size_t bytes);
EMU_HIDDEN void proxy_write(uint32_t address, const void* from, size_t bytes);
EMU_HIDDEN void proxy_fence();

// Accesses of lanes to shared memory, watched where somebody asks (`banks.hpp`): what it is, its
// place in the program, and where. A place is a line and a number of places within it.
EMU_HIDDEN extern bool watching;
EMU_HIDDEN void touch(const char* what, int place, uint32_t address, size_t bytes);

// An array whose elements are watched as they are used, at a place of the program.
template <class T>
struct Watched {
  int place;
  T* elements;
  template <class I>
  T& operator[](I i) const {
    auto* address = const_cast<const void*>(static_cast<const volatile void*>(elements + i));
    if (watching && is_shared(address)) touch("element", place, to_shared(address), sizeof(T));
    return elements[i];
  }
};
template <class T>
Watched<T> watch(int place, T* elements) {
  return {place, elements};
}

// What threads did, for the model of time: floats' operations and bytes as the program says them,
// operations of tensor cores and barriers as they were done.
struct Work {
  uint64_t operations, global_bytes, shared_bytes, tensor_operations, barriers;
};
EMU_HIDDEN extern Work work;
inline void charge(uint64_t operations, uint64_t global_bytes, uint64_t shared_bytes) {
  work.operations += operations;
  work.global_bytes += global_bytes;
  work.shared_bytes += shared_bytes;
}

// Notes kept for a block, dropped at its end.
struct Notes {
  virtual ~Notes() = default;
  virtual void check_end() = 0;  // once its last thread has ended
};
EMU_HIDDEN extern Notes* async_notes[kMostBlocks];  // of copies, mbarriers and products in flight

}  // namespace emu
