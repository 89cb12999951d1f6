// What is in flight in the block that runs.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "async.hpp"

namespace emu::ptx {

struct Mbarrier {
  uint32_t count, pending;  // arrivals of a phase, and those still to come
  int64_t bytes;            // of copies still to come
  uint64_t phase;
  bool fenced;  // whether units beside the threads may use it
  uint64_t fenced_after;  // so many of the cluster's barriers
  // Of what other blocks did to it: 0, or one more than the cluster's barriers before the last of
  // that. In this phase, and in phases before it that no thread of the block waited for.
  uint64_t by_peers, by_peers_unseen;
};

struct Copy {
  void* to;
  const void* from;
  uint32_t bytes, from_bytes;
  uint64_t number;  // of all copies that were begun
};

template <class T>
struct Groups {
  std::vector<T> open;
  std::deque<std::vector<T>> closed;
  void close() {
    closed.push_back(std::move(open));
    open.clear();
  }
};

// A store of a unit beside the threads: it reads shared memory when it happens.
struct BulkStore {
  virtual ~BulkStore() = default;
  virtual void happen() = 0;
};

struct Wgmma {
  int n, k;
  Kind d_kind, a_kind, b_kind;
  uint64_t a_descriptor, b;
  Scales scales;
  bool a_in_registers;
  std::vector<void*> d;         // the places of the accumulators, lane by lane
  std::vector<uint64_t> a;      // fragments of A, lane by lane
  std::vector<uint32_t> saved;  // accumulators as they were, for the first product on them
};

struct Warpgroup {
  Groups<Wgmma> products;
  bool fenced = false;
  std::unordered_map<void*, uint32_t> left;  // accumulators as the last product left them
  uint32_t registers = 0;
};

struct AsyncState : Notes {
  std::unordered_map<uint32_t, Mbarrier> mbarriers;
  std::unordered_map<unsigned, Groups<Copy>> copies;  // by thread
  uint64_t copies_begun = 0;
  std::unordered_map<unsigned, Groups<BulkStore*>> stores;
  std::unordered_map<unsigned, Warpgroup> warpgroups;
  void check_end() override;
  ~AsyncState() override {
    for (auto& [thread, groups] : stores) {
      for (BulkStore* store : groups.open) delete store;
      for (auto& group : groups.closed) {
        for (BulkStore* store : group) delete store;
      }
    }
  }
};

inline AsyncState& in_flight() {
  if (async_notes[here] == nullptr) async_notes[here] = new AsyncState;
  return *static_cast<AsyncState*>(async_notes[here]);
}

}  // namespace emu::ptx
