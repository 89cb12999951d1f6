// Which fiber of a cluster runs next: barriers, events, and what is said when none can go on.
#include "scheduler.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "fiber.hpp"
#include "meetings.hpp"
#include "shared_memory.hpp"

#if defined(__x86_64__)
asm(R"(
.text
.globl emu_switch
.hidden emu_switch
.type emu_switch, @function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch, .-emu_switch
)");
#endif

namespace emu {

Thread* now;
Index block_index, block_extent, grid_extent, cluster_extent;
unsigned here, cluster_blocks = 1;
Notes* async_notes[kMostBlocks];
Work work;
volatile bool expired;
volatile uint64_t switches;
unsigned count;
uint32_t warp_alive[kMostBlocks * kMostWarps];

namespace {

constexpr uint64_t kEndOfStack = 0x737461636b656e64;
constexpr unsigned kIdleRounds = 2000;  // of threads that poll, without any progress

struct Block {
  Index index;
  unsigned alive;  // threads that have not ended
};

Thread threads[kMostBlocks * kMostThreads];  // block by block
Block blocks[kMostBlocks];
char* stacks;
std::vector<Thread*> ready, polling;
std::vector<std::pair<Thread*, uint32_t*>> converging;
std::vector<std::unique_ptr<Event>> events;
void* main_stack;
void (*thread_body)();
uint64_t state = 88172645463325252ull;
unsigned idle_rounds;

}  // namespace

unsigned count_alive(unsigned block) { return blocks[block].alive; }

unsigned count_alive() {
  unsigned sum = 0;
  for (unsigned block = 0; block < cluster_blocks; ++block) sum += blocks[block].alive;
  return sum;
}

namespace {

char* stack_of(const Thread* thread) {
  return stacks + static_cast<size_t>(thread - threads) * kStackBytes;
}

// The lowest word of a stack, which nobody may reach.
uint64_t& end_of_stack(const Thread* thread) {
  return *reinterpret_cast<uint64_t*>(stack_of(thread));
}

}  // namespace

bool has_ended(unsigned block) { return blocks[block].alive == 0; }

void enter_block(unsigned block) {
  here = block;
  block_index = blocks[block].index;
  select_shared(block);
}

void set_ready(Thread* thread) {
  thread->waits_at = nullptr;
  ready.push_back(thread);
  idle_rounds = 0;
}

namespace {

std::string described(const Thread& thread) {
  char text[256];
  snprintf(text, sizeof text, "thread (%u, %u, %u) waits at %s", thread.index.x, thread.index.y,
           thread.index.z, thread.waits_at ? thread.waits_at : "nothing");
  std::string said = text;
  if (thread.waits_for) said += " " + std::to_string(thread.waits_for);
  if (thread.line) said += ", line " + std::to_string(thread.line);
  if (cluster_blocks > 1) said += ", in block " + std::to_string(thread.block) + " of its cluster";
  return said;
}

}  // namespace

std::string waiting_text() {
  std::string said;
  std::vector<std::pair<const Thread*, unsigned>> places;
  for (unsigned i = 0; i < count * cluster_blocks; ++i) {
    const Thread& thread = threads[i];
    if (thread.done || thread.waits_at == nullptr) continue;
    bool known = false;
    for (auto& [first, number] : places) {
      if (first->block == thread.block && first->line == thread.line &&
          first->waits_for == thread.waits_for &&
          strcmp(first->waits_at, thread.waits_at) == 0) {
        ++number;
        known = true;
      }
    }
    if (!known) places.push_back({&thread, 1});
  }
  for (size_t i = 0; i < places.size() && i < 6; ++i) {
    said += (i ? "; " : "") + described(*places[i].first);
    if (places[i].second > 1) said += " (and " + std::to_string(places[i].second - 1) + " more)";
  }
  return said;
}

namespace {

[[noreturn]] void fail_for_ever() {
  std::string said = waiting_text();
  unsigned all = count * cluster_blocks;
  fail("TimeoutError", "block (%u, %u, %u) never ends: %s; %u of %u threads have ended",
       block_index.x, block_index.y, block_index.z, said.c_str(), all - count_alive(), all);
}

bool resolve_converging() {
  if (converging.empty()) return false;
  auto found = std::move(converging);
  converging.clear();
  for (auto& [thread, result] : found) {
    *result = 0;
    for (auto& [other, unused] : found) {
      if (warp_of(other) == warp_of(thread) && other->line == thread->line) *result |= 1u << other->lane;
    }
  }
  for (auto& [thread, result] : found) set_ready(thread);
  return true;
}

bool land_one() {
  if (events.empty()) return false;
  size_t place = random_below(static_cast<uint32_t>(events.size()));
  std::unique_ptr<Event> event = std::move(events[place]);
  events[place] = std::move(events.back());
  events.pop_back();
  Visit there(event->block);
  event->happen();
  return true;
}

// No thread is ready: let something happen that makes one so.
void make_progress() {
  while (ready.empty()) {
    if (land_one() || resolve_converging()) continue;
    if (polling.empty() || ++idle_rounds > kIdleRounds) fail_for_ever();
    ready.swap(polling);
  }
}

}  // namespace

// Run another thread, until this one is ready again.
void reschedule() {
  switches = switches + 1;
  if (expired) {
    std::string said = waiting_text();
    fail("TimeoutError", "the launch took longer than its deadline; %s", said.c_str());
  }
  if (count_alive() == 0) {
    void* unused;
    now = nullptr;
    switch_fiber(&unused, main_stack);
  }
  if (ready.empty()) make_progress();
  size_t place = random_below(static_cast<uint32_t>(ready.size()));
  Thread* next = ready[place];
  ready[place] = ready.back();
  ready.pop_back();
  Thread* self = now;
  if (next == self) return;
  now = next;
  enter_block(next->block);
  switch_fiber(&self->stack_pointer, next->stack_pointer);
}

void start_waiting(const char* what, int line, uint64_t place) {
  now->waits_at = what;
  now->line = line;
  now->waits_for = place;
}

void block_at(const char* what, int line, uint64_t place) {
  start_waiting(what, line, place);
  reschedule();
}

namespace {

void fiber_main() {
  thread_body();
  if (end_of_stack(now) != kEndOfStack) {
    fail("RuntimeError", "%s has more local memory than the emulated device gives it",
         thread_text());
  }
  now->done = true;
  if (--blocks[here].alive == 0 && async_notes[here] != nullptr) async_notes[here]->check_end();
  warp_alive[warp_of(now)] &= ~(1u << now->lane);
  idle_rounds = 0;
  leave_barriers();
  reschedule();
  __builtin_unreachable();
}

}  // namespace

uint32_t random_below(uint32_t limit) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<uint32_t>(((state & 0xFFFFFFFFu) * limit) >> 32);
}

void seed_with(uint64_t seed) { state = (seed + 1) * 0x9E3779B97F4A7C15ull | 1; }

const char* thread_text() {
  static char text[96];
  snprintf(text, sizeof text, "thread (%u, %u, %u)", now->index.x, now->index.y, now->index.z);
  return text;
}

uint32_t active_mask(int line) {
  uint32_t result = 0;
  converging.push_back({now, &result});
  block_at("__activemask", line, 0);
  return result;
}

void yield(const char* what, int line) {
  polling.push_back(now);
  block_at(what, line, 0);
}

void wait_for(const char* what, int line, uint64_t place) {
  now->blocked = true;
  block_at(what, line, place);
}

void wake(uint64_t place) {
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads[here * count + i];
    if (thread.blocked && thread.waits_for == place) {
      thread.blocked = false;
      set_ready(&thread);
    }
  }
  idle_rounds = 0;
}

void later(Event* event) {
  event->block = here;
  events.emplace_back(event);
}

void prepare_stacks(unsigned wanted) {
  if (stacks == nullptr) {
    void* made = mmap(nullptr, kMostBlocks * kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) fail("MemoryError", "no memory for the stacks of threads");
    stacks = static_cast<char*>(made);
  }
  count = wanted;
}

__attribute__((destructor)) static void drop_stacks() {
  if (stacks != nullptr) munmap(stacks, kMostBlocks * kMostThreads * kStackBytes);
}

namespace {

void begin_block(unsigned block, Index index) {
  blocks[block] = Block{index, count};
  delete async_notes[block];
  async_notes[block] = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    unsigned x = i % block_extent.x, rest = i / block_extent.x;
    Thread* thread = &threads[block * count + i];
    *thread = Thread{};
    thread->index = {x, rest % block_extent.y, rest / block_extent.y};
    thread->block = block;
    thread->rank = i;
    thread->lane = i % kWarp;
    thread->warp = i / kWarp;
    thread->stack_pointer = begin_fiber(stack_of(thread), fiber_main);
    end_of_stack(thread) = kEndOfStack;
    ready.push_back(thread);
    uint32_t& lanes = warp_alive[warp_of(thread)];
    lanes = (thread->lane == 0 ? 0 : lanes) | 1u << thread->lane;
  }
}

}  // namespace

void run_cluster(Index first, void (*body)()) {
  thread_body = body;
  ready.clear();
  polling.clear();
  converging.clear();
  events.clear();
  idle_rounds = 0;
  clear_barriers();
  clear_meetings();
  for (unsigned block = 0; block < cluster_blocks; ++block) {
    unsigned x = block % cluster_extent.x, rest = block / cluster_extent.x;
    begin_block(block, {first.x + x, first.y + rest % cluster_extent.y,
                        first.z + rest / cluster_extent.y});
    enter_block(block);
    begin_shared();
  }
  now = ready.back();
  ready.pop_back();
  enter_block(now->block);
  switch_fiber(&main_stack, now->stack_pointer);
  while (land_one()) continue;  // copies to global memory that nobody waited for
}

}  // namespace emu
