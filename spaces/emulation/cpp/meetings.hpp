// What meetings of lanes, and barriers, need of the scheduler, and it of them.
#pragma once

#include "scheduler.hpp"

namespace emu {

constexpr unsigned kMostWarps = kMostThreads / kWarp;

EMU_HIDDEN extern unsigned count;  // threads of a block
// Lanes that have not ended, of each warp of each block.
EMU_HIDDEN extern uint32_t warp_alive[kMostBlocks * kMostWarps];
// The number of a thread's warp among those of the cluster.
inline unsigned warp_of(const Thread* thread) { return thread->block * kMostWarps + thread->warp; }

EMU_HIDDEN void set_ready(Thread* thread);
// Let others run until this thread is ready again.
EMU_HIDDEN void block_at(const char* what, int line, uint64_t place);
// The two halves of that: say where this thread waits, and let others run.
EMU_HIDDEN void start_waiting(const char* what, int line, uint64_t place);
EMU_HIDDEN void reschedule();
// Threads that have not ended, of a block and of the cluster.
EMU_HIDDEN unsigned count_alive(unsigned block);
EMU_HIDDEN unsigned count_alive();
// A thread has ended: others do not wait for it.
EMU_HIDDEN void leave_barriers();
// Before a cluster.
EMU_HIDDEN void clear_barriers();
EMU_HIDDEN void clear_meetings();

}  // namespace emu
