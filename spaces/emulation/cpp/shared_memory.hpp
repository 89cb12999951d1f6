// Shared memory for the code that runs blocks.
#pragma once

#include "machine.hpp"

namespace emu {

// Bytes after an array of shared memory that nobody may write.
struct Zone {
  const char* name;
  size_t offset;
  size_t bytes;
};

// Once for a launch.
EMU_HIDDEN void lay_out_shared(size_t static_bytes, size_t dynamic_bytes);
// That of a block of the cluster is the one that is meant from now on.
EMU_HIDDEN void select_shared(unsigned block);
// Before a block and after it, of the one that is meant.
EMU_HIDDEN void begin_shared();
EMU_HIDDEN void check_shared(const Zone* zones, size_t count);

}  // namespace emu
