// Watching how warps use the banks of shared memory.
#pragma once

#include <string>

#include "machine.hpp"

namespace emu {

// Whether accesses are watched, which takes time.
EMU_HIDDEN void watch_banks(bool on);
// Each matrix of "ldmatrix" or "stmatrix" is eight rows of 16 bytes.
EMU_HIDDEN void touch_rows(const char* what, int line, const uint32_t* rows, int matrices);
// After a cluster: what only some lanes of a warp did is counted, too.
EMU_HIDDEN void end_watched_cluster();
// What was seen since the last call, a line for each place in the program: what it is, its line,
// the bytes of a lane, how often a warp did it, the wavefronts that this took, and the least.
EMU_HIDDEN std::string watched();

}  // namespace emu
