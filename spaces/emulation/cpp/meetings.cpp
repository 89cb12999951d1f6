// Meetings of the lanes of a warp, or of a warpgroup: the last one to come does what all wait for.
#include "meetings.hpp"

#include <deque>
#include <vector>

namespace emu {

struct Meeting {
  const char* what = nullptr;  // null: nobody meets
  int line;
  uint32_t mask;
  unsigned arrived, expected;
  Apply apply;
  Lanes lanes;
  std::vector<Thread*> waiting;
};

namespace {

constexpr unsigned kMostWarpgroups = kMostThreads / kWarpgroup;

std::deque<Meeting> warp_meetings[kMostBlocks * kMostWarps];
Meeting warpgroup_meetings[kMostBlocks * kMostWarpgroups];

// The last one to come does it, and all go on.
void join(Meeting& meeting, unsigned lane, void* operands) {
  meeting.lanes.operands[lane] = operands;
  ++meeting.arrived;
  if (meeting.arrived < meeting.expected) {
    meeting.waiting.push_back(now);
    block_at(meeting.what, meeting.line, 0);
    return;
  }
  meeting.apply(meeting.lanes);
  for (Thread* thread : meeting.waiting) set_ready(thread);
  meeting.waiting.clear();
  meeting.what = nullptr;
}

void open_meeting(Meeting& meeting, const char* what, int line, uint32_t mask, unsigned expected,
                  unsigned lanes, Apply apply) {
  meeting.what = what;
  meeting.line = line;
  meeting.mask = mask;
  meeting.arrived = 0;
  meeting.expected = expected;
  meeting.apply = apply;
  meeting.lanes.count = lanes;
  memset(meeting.lanes.operands, 0, sizeof(void*) * lanes);
}

void check_same(const Meeting& meeting, const char* what, int line) {
  if (meeting.line == line && strcmp(meeting.what, what) == 0) return;
  fail(
      "RuntimeError",
      "lanes of warp %u of block (%u, %u, %u) part: %s waits at %s, line %d, others at %s, line %d",
      now->warp, block_index.x, block_index.y, block_index.z, thread_text(), what, line,
      meeting.what, meeting.line);
}

}  // namespace

void meet_warp(const char* what, int line, uint32_t mask, void* operands, Apply apply) {
  unsigned warp = now->warp;
  unsigned lanes = count - warp * kWarp;
  uint32_t exist = lanes >= kWarp ? ~0u : (1u << lanes) - 1;
  if (!(mask >> now->lane & 1)) {
    fail("RuntimeError", "%s is not among the lanes %08x of its %s, line %d", thread_text(), mask,
         what, line);
  }
  if (uint32_t gone = mask & exist & ~warp_alive[warp_of(now)]) {
    fail("RuntimeError", "lanes %08x of warp %u have ended: %s, line %d, is for them too", gone,
         warp, what, line);
  }
  Meeting* free = nullptr;
  for (Meeting& meeting : warp_meetings[warp_of(now)]) {
    if (meeting.what == nullptr) {
      free = &meeting;
    } else if (meeting.mask == mask) {
      check_same(meeting, what, line);
      return join(meeting, now->lane, operands);
    }
  }
  if (free == nullptr) free = &warp_meetings[warp_of(now)].emplace_back();
  open_meeting(*free, what, line, mask, static_cast<unsigned>(__builtin_popcount(mask & exist)),
               kWarp, apply);
  join(*free, now->lane, operands);
}

void meet_warpgroup(const char* what, int line, void* operands, Apply apply) {
  unsigned group = now->rank / kWarpgroup;
  Meeting& meeting = warpgroup_meetings[now->block * kMostWarpgroups + group];
  if (meeting.what != nullptr) {
    check_same(meeting, what, line);
  } else {
    if (count < (group + 1) * kWarpgroup) {
      fail("RuntimeError", "%s, line %d, is for 128 threads: the block has %u", what, line, count);
    }
    open_meeting(meeting, what, line, ~0u, kWarpgroup, kWarpgroup, apply);
  }
  join(meeting, now->rank % kWarpgroup, operands);
}

void clear_meetings() {
  for (auto& meetings : warp_meetings) meetings.clear();
  for (Meeting& meeting : warpgroup_meetings) {
    meeting.what = nullptr;
    meeting.waiting.clear();
  }
}

}  // namespace emu
