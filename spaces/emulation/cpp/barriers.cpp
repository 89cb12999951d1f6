// Barriers of a block, and the one of a cluster (PTX ISA, "Parallel Synchronization and Communication
// Instructions: bar", "barrier.cluster").
#include <vector>

#include "meetings.hpp"

namespace emu {
namespace {

constexpr unsigned kBarriers = 16;

struct Barrier {
  std::vector<Thread*> waiting;
  unsigned arrived = 0;
  unsigned threads = 0;  // that it waits for; 0: all that are left
  int line = 0;
  int sum = 0;
};

// The barrier of all threads of a cluster that have not ended.
struct ClusterBarrier {
  std::vector<Thread*> waiting;
  unsigned arrived = 0;
  uint64_t passed = 0;
};

Barrier barriers[kMostBlocks][kBarriers];
ClusterBarrier cluster_barrier;

void open_barrier(Barrier& barrier) {
  int sum = barrier.sum;
  ++work.barriers;
  for (Thread* thread : barrier.waiting) {
    thread->barrier_sum = sum;
    set_ready(thread);
  }
  barrier.waiting.clear();
  barrier.arrived = 0;
  barrier.threads = 0;
  barrier.sum = 0;
}

void open_if_complete(Barrier& barrier) {
  unsigned needed = barrier.threads ? barrier.threads : count_alive(here);
  if (barrier.arrived > 0 && barrier.arrived >= needed) open_barrier(barrier);
}

// The last one to come goes on with the others.
void wait_at(Barrier& barrier, const char* what, int line, uint64_t number) {
  barrier.waiting.push_back(now);
  start_waiting(what, line, number);
  open_if_complete(barrier);
  reschedule();
}

void open_cluster_if_complete() {
  if (cluster_barrier.arrived == 0 || cluster_barrier.arrived < count_alive()) return;
  ++cluster_barrier.passed;
  cluster_barrier.arrived = 0;
  for (Thread* thread : cluster_barrier.waiting) set_ready(thread);
  cluster_barrier.waiting.clear();
}

}  // namespace

void clear_barriers() {
  for (auto& own : barriers) {
    for (Barrier& barrier : own) barrier = Barrier{};
  }
  cluster_barrier = ClusterBarrier{};
}

void leave_barriers() {
  open_if_complete(barriers[here][0]);
  if (now->cluster_phase > cluster_barrier.passed) --cluster_barrier.arrived;
  open_cluster_if_complete();
}

// "barrier.cluster.arrive", "barrier.cluster.wait": of all threads that have not ended.
void cluster_arrive(int line) {
  if (now->cluster_phase != 0) {
    fail("RuntimeError", "%s arrives again at barrier.cluster, line %d, and has not waited",
         thread_text(), line);
  }
  now->cluster_phase = cluster_barrier.passed + 1;
  ++cluster_barrier.arrived;
  open_cluster_if_complete();
}

void cluster_wait(int line) {
  if (now->cluster_phase == 0) {
    fail("RuntimeError", "%s waits at barrier.cluster, line %d, and has not arrived", thread_text(),
         line);
  }
  if (cluster_barrier.passed < now->cluster_phase) {
    cluster_barrier.waiting.push_back(now);
    block_at("barrier.cluster.wait", line, 0);
  }
  now->cluster_phase = 0;
}

uint64_t cluster_barriers() { return cluster_barrier.passed; }

void sync_threads(int line) {
  Barrier& barrier = barriers[here][0];
  if (barrier.arrived > 0 && barrier.line != line) {
    fail("RuntimeError",
         "threads of block (%u, %u, %u) part at a barrier: %s is at line %d, others are at line %d",
         block_index.x, block_index.y, block_index.z, thread_text(), line, barrier.line);
  }
  barrier.line = line;
  ++barrier.arrived;
  wait_at(barrier, "__syncthreads", line, 0);
}

int sync_threads_count(int predicate, int line) {
  barriers[here][0].sum += predicate != 0;
  sync_threads(line);
  return now->barrier_sum;
}

void named_barrier(unsigned number, unsigned wanted, bool waits, int line) {
  if (number >= kBarriers) fail("RuntimeError", "there is no barrier %u: there are 16", number);
  if (wanted == 0) wanted = count;
  if (wanted % kWarp != 0)
    fail("RuntimeError", "barrier %u is for %u threads: whole warps", number, wanted);
  Barrier& barrier = barriers[here][number];
  if (barrier.arrived > 0 && barrier.threads != wanted) {
    fail("RuntimeError", "barrier %u is for %u threads, and for %u: line %d", number,
         barrier.threads, wanted, line);
  }
  barrier.threads = wanted;
  barrier.line = line;
  ++barrier.arrived;
  if (waits) wait_at(barrier, "barrier", line, number);
  else open_if_complete(barrier);
}

}  // namespace emu
