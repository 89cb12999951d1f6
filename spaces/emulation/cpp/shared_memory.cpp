// Shared memory of the cluster's blocks, what the asynchronous proxy sees of it, and its red zones.
#include "shared_memory.hpp"

#include <sys/mman.h>

#include <cstdio>

#include "fiber.hpp"

namespace emu {
namespace {

constexpr uint32_t kFirst = 1024;  // the window's first bytes are the system's
constexpr size_t kWindow = 256 << 10;
constexpr size_t kDynamicAlignment = 1024;

constexpr unsigned kPeerShift = 24;  // of a block's number, and one, in the addresses of its peers

// Of one block.
struct Memory {
  char* pages;   // the window's memory, a guard page on each side
  char* proxy;   // the same as the proxy sees it
  char* window;  // where address 0 of the window would be
  bool proxy_behind;
};

Memory memories[kMostBlocks];
Memory* own = memories;  // of the block that runs
size_t end_place;        // past a block's last byte
size_t dynamic_place;

char* mapped(size_t bytes) {
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) fail("MemoryError", "no memory for the emulated device");
  return static_cast<char*>(made);
}

void check(const char* name, size_t place, size_t bytes) {
  auto* words = reinterpret_cast<const uint16_t*>(own->window + place);
  for (size_t i = 0; i < bytes / 2; ++i) {
    if (words[i] != kPoison) {
      fail("RuntimeError", "block (%u, %u, %u) wrote into shared memory past the end of %s",
           block_index.x, block_index.y, block_index.z, name);
    }
  }
}

}  // namespace

void poison(void* start, size_t bytes) {
  auto* words = static_cast<uint16_t*>(start);
  for (size_t i = 0; i < bytes / 2; ++i) words[i] = kPoison;
  if (bytes % 2) static_cast<char*>(start)[bytes - 1] = 0x75;
}

void lay_out_shared(size_t static_bytes, size_t dynamic_bytes) {
  for (unsigned block = 0; block < cluster_blocks; ++block) {
    Memory& memory = memories[block];
    if (memory.pages != nullptr) continue;
    memory.pages = mapped(kWindow + 2 * kPage);
    memory.proxy = mapped(kWindow);
    mprotect(memory.pages, kPage, PROT_NONE);
    mprotect(memory.pages + kPage + kWindow, kPage, PROT_NONE);
  }
  size_t first = kFirst + static_bytes;
  dynamic_place = static_bytes == 0 ? first
                                    : (first + kDynamicAlignment - 1) / kDynamicAlignment *
                                          kDynamicAlignment;
  end_place = (dynamic_bytes == 0 ? first : dynamic_place + dynamic_bytes) + 1;
  end_place &= ~size_t{1};
  if (end_place > kWindow) {
    fail("ValueError", "a block asks for %zu bytes of shared memory", static_bytes + dynamic_bytes);
  }
  // The block's memory ends where the guard page begins, but for what alignment asks for.
  size_t whole = (end_place + kFirst - 1) / kFirst * kFirst;
  for (unsigned block = 0; block < cluster_blocks; ++block)
    memories[block].window = memories[block].pages + kPage + kWindow - whole;
}

void select_shared(unsigned block) { own = &memories[block]; }

void begin_shared() {
  char* last = own->pages + kPage + kWindow;
  poison(own->window + kFirst, static_cast<size_t>(last - own->window) - kFirst);
  poison(own->proxy, end_place);
  own->proxy_behind = false;
}

void check_shared(const Zone* zones, size_t count) {
  for (size_t i = 0; i < count; ++i) check(zones[i].name, kFirst + zones[i].offset, zones[i].bytes);
  size_t left = static_cast<size_t>(own->pages + kPage + kWindow - own->window) - end_place;
  check("all of it", end_place, left);
}

__attribute__((destructor)) static void drop_window() {
  for (Memory& memory : memories) {
    if (memory.pages == nullptr) continue;
    munmap(memory.pages, kWindow + 2 * kPage);
    munmap(memory.proxy, kWindow);
  }
}

bool is_shared(const void* pointer) {
  auto* p = static_cast<const char*>(pointer);
  return own->window != nullptr && p >= own->window + kFirst && p < own->pages + kPage + kWindow;
}

uint32_t to_shared(const void* pointer) {
  if (!is_shared(pointer)) {
    fail("RuntimeError", "a pointer that does not point to shared memory is used as one that does");
  }
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - own->window);
}

void* from_shared(uint32_t address, size_t bytes) {
  if (address < kFirst || address + bytes > end_place) {
    fail("RuntimeError",
         "shared memory at %u, %zu bytes, is outside of the block's: it has %zu bytes from %u",
         address, bytes, end_place - kFirst, kFirst);
  }
  return own->window + address;
}

uint32_t map_to_peer(uint32_t address, uint32_t block, int line) {
  from_shared(address, 0);
  if (block >= cluster_blocks)
    fail("RuntimeError", "mapa to block %u of a cluster of %u, line %d", block, cluster_blocks, line);
  return address | (block + 1) << kPeerShift;
}

Peer find_peer(uint32_t address) {
  uint32_t number = address >> kPeerShift;
  if (number == 0 || number > cluster_blocks) return {here, address};
  return {number - 1, address & ((1u << kPeerShift) - 1)};
}

void* static_shared(size_t offset) { return own->window + kFirst + offset; }

void* dynamic_shared() { return own->window + dynamic_place; }

void proxy_fence() { own->proxy_behind = true; }

const void* proxy_view(uint32_t address, size_t bytes) {
  from_shared(address, bytes);
  if (own->proxy_behind) {
    memcpy(own->proxy + kFirst, own->window + kFirst, end_place - kFirst);
    own->proxy_behind = false;
  }
  return own->proxy + address;
}

void proxy_write(uint32_t address, const void* from, size_t bytes) {
  memcpy(from_shared(address, bytes), from, bytes);
  memcpy(own->proxy + address, from, bytes);
}

}  // namespace emu
