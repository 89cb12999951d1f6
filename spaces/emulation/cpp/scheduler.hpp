// Clusters of blocks, run one after another, for the code that launches grids.
#pragma once

#include <string>

#include "machine.hpp"

namespace emu {

EMU_HIDDEN void seed_with(uint64_t seed);
EMU_HIDDEN uint32_t random_below(uint32_t limit);
// Memory for the stacks of blocks of so many threads.
EMU_HIDDEN void prepare_stacks(unsigned threads);
// Run the threads of a cluster's blocks, of which the first has that index, to their end, `body` in
// each.
EMU_HIDDEN void run_cluster(Index first, void (*body)());
// Where threads wait, one for each place, with how many there are; empty where none does.
EMU_HIDDEN std::string waiting_text();
// Whether a thread runs as compiled code, and how often threads were switched: for the watchdog.
EMU_HIDDEN extern volatile bool expired;
EMU_HIDDEN extern volatile uint64_t switches;

}  // namespace emu
