// Shared memory of the running block, what the asynchronous proxy sees of it, and its red zones.
#include "shared_memory.hpp"

#include <sys/mman.h>

#include <cstdio>

#include "fiber.hpp"

namespace emu {
namespace {

constexpr uint32_t kFirst = 1024;  // the window's first bytes are the system's
constexpr size_t kWindow = 256 << 10;
constexpr size_t kDynamicAlignment = 1024;

char* pages;       // the window's memory, a guard page on each side
char* proxy;       // the same as the proxy sees it
char* window;      // where address 0 of the window would be
size_t end_place;  // past the block's last byte
size_t dynamic_place;
bool proxy_behind;

char* mapped(size_t bytes) {
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) fail("MemoryError", "no memory for the emulated device");
  return static_cast<char*>(made);
}

void check(const char* name, size_t place, size_t bytes) {
  auto* words = reinterpret_cast<const uint16_t*>(window + place);
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
  if (pages == nullptr) {
    pages = mapped(kWindow + 2 * kPage);
    proxy = mapped(kWindow);
    mprotect(pages, kPage, PROT_NONE);
    mprotect(pages + kPage + kWindow, kPage, PROT_NONE);
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
  window = pages + kPage + kWindow - whole;
}

void begin_shared() {
  char* last = pages + kPage + kWindow;
  poison(window + kFirst, static_cast<size_t>(last - window) - kFirst);
  poison(proxy, end_place);
  proxy_behind = false;
}

void check_shared(const Zone* zones, size_t count) {
  for (size_t i = 0; i < count; ++i) check(zones[i].name, kFirst + zones[i].offset, zones[i].bytes);
  size_t left = static_cast<size_t>(pages + kPage + kWindow - window) - end_place;
  check("all of it", end_place, left);
}

__attribute__((destructor)) static void drop_window() {
  if (pages == nullptr) return;
  munmap(pages, kWindow + 2 * kPage);
  munmap(proxy, kWindow);
}

bool is_shared(const void* pointer) {
  auto* p = static_cast<const char*>(pointer);
  return window != nullptr && p >= window + kFirst && p < pages + kPage + kWindow;
}

uint32_t to_shared(const void* pointer) {
  if (!is_shared(pointer)) {
    fail("RuntimeError", "a pointer that does not point to shared memory is used as one that does");
  }
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - window);
}

void* from_shared(uint32_t address, size_t bytes) {
  if (address < kFirst || address + bytes > end_place) {
    fail("RuntimeError",
         "shared memory at %u, %zu bytes, is outside of the block's: it has %zu bytes from %u",
         address, bytes, end_place - kFirst, kFirst);
  }
  return window + address;
}

void* static_shared(size_t offset) { return window + kFirst + offset; }

void* dynamic_shared() { return window + dynamic_place; }

void proxy_fence() { proxy_behind = true; }

const void* proxy_view(uint32_t address, size_t bytes) {
  from_shared(address, bytes);
  if (proxy_behind) {
    memcpy(proxy + kFirst, window + kFirst, end_place - kFirst);
    proxy_behind = false;
  }
  return proxy + address;
}

void proxy_write(uint32_t address, const void* from, size_t bytes) {
  memcpy(from_shared(address, bytes), from, bytes);
  memcpy(proxy + address, from, bytes);
}

}  // namespace emu
