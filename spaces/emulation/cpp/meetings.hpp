// What meetings of lanes need of the scheduler, and it of them.
#pragma once

#include "scheduler.hpp"

namespace emu {

constexpr unsigned kMostThreads = 1024;

EMU_HIDDEN extern unsigned count;                              // threads of a block
EMU_HIDDEN extern uint32_t warp_alive[kMostThreads / kWarp];  // lanes that have not ended

EMU_HIDDEN void set_ready(Thread* thread);
// Let others run until this thread is ready again.
EMU_HIDDEN void block_at(const char* what, int line, uint64_t place);
// Before a block.
EMU_HIDDEN void clear_meetings();

}  // namespace emu
