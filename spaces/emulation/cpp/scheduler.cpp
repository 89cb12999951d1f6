// Which fiber runs next: barriers, events, and what is said when none can go on.
#include "scheduler.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "fiber.hpp"
#include "meetings.hpp"

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
Index block_index, block_extent, grid_extent;
Notes* async_notes;
Work work;
volatile bool expired;
volatile uint64_t switches;
unsigned count;
uint32_t warp_alive[kMostThreads / kWarp];

namespace {

constexpr unsigned kBarriers = 16;
constexpr uint64_t kEndOfStack = 0x737461636b656e64;
constexpr unsigned kIdleRounds = 2000;  // of threads that poll, without any progress

struct Barrier {
  std::vector<Thread*> waiting;
  unsigned arrived = 0;
  unsigned threads = 0;  // that it waits for; 0: all that are left
  int line = 0;
  int sum = 0;
};

Thread threads[kMostThreads];
char* stacks;
unsigned alive;
std::vector<Thread*> ready, polling;
std::vector<std::pair<Thread*, uint32_t*>> converging;
std::vector<std::unique_ptr<Event>> events;
Barrier barriers[kBarriers];
int barrier_sums[kMostThreads];
void* main_stack;
void (*thread_body)();
uint64_t state = 88172645463325252ull;
unsigned idle_rounds;

// The lowest word of a stack, which nobody may reach.
uint64_t& end_of_stack(unsigned rank) {
  return *reinterpret_cast<uint64_t*>(stacks + rank * kStackBytes);
}

}  // namespace

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
  return said;
}

}  // namespace

std::string waiting_text() {
  std::string said;
  std::vector<std::pair<const Thread*, unsigned>> places;
  for (unsigned i = 0; i < count; ++i) {
    const Thread& thread = threads[i];
    if (thread.done || thread.waits_at == nullptr) continue;
    bool known = false;
    for (auto& [first, number] : places) {
      if (first->line == thread.line && first->waits_for == thread.waits_for &&
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
  fail("TimeoutError", "block (%u, %u, %u) never ends: %s; %u of %u threads have ended",
       block_index.x, block_index.y, block_index.z, said.c_str(), count - alive, count);
}

bool resolve_converging() {
  if (converging.empty()) return false;
  auto found = std::move(converging);
  converging.clear();
  for (auto& [thread, result] : found) {
    *result = 0;
    for (auto& [other, unused] : found) {
      if (other->warp == thread->warp && other->line == thread->line) *result |= 1u << other->lane;
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

// Run another thread, until this one is ready again.
void reschedule() {
  switches = switches + 1;
  if (expired) {
    std::string said = waiting_text();
    fail("TimeoutError", "the launch took longer than its deadline; %s", said.c_str());
  }
  if (alive == 0) {
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
  switch_fiber(&self->stack_pointer, next->stack_pointer);
}

}  // namespace

void block_at(const char* what, int line, uint64_t place) {
  now->waits_at = what;
  now->line = line;
  now->waits_for = place;
  reschedule();
}

namespace {

void open_barrier(Barrier& barrier) {
  int sum = barrier.sum;
  ++work.barriers;
  for (Thread* thread : barrier.waiting) {
    barrier_sums[thread->rank] = sum;
    set_ready(thread);
  }
  barrier.waiting.clear();
  barrier.arrived = 0;
  barrier.threads = 0;
  barrier.sum = 0;
  idle_rounds = 0;
}

void open_if_complete(Barrier& barrier) {
  unsigned needed = barrier.threads ? barrier.threads : alive;
  if (barrier.arrived > 0 && barrier.arrived >= needed) open_barrier(barrier);
}

void fiber_main() {
  thread_body();
  if (end_of_stack(now->rank) != kEndOfStack) {
    fail("RuntimeError", "%s has more local memory than the emulated device gives it",
         thread_text());
  }
  now->done = true;
  --alive;
  warp_alive[now->warp] &= ~(1u << now->lane);
  idle_rounds = 0;
  open_if_complete(barriers[0]);
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

void sync_threads(int line) {
  Barrier& barrier = barriers[0];
  if (barrier.arrived > 0 && barrier.line != line) {
    fail("RuntimeError",
         "threads of block (%u, %u, %u) part at a barrier: %s is at line %d, others are at line %d",
         block_index.x, block_index.y, block_index.z, thread_text(), line, barrier.line);
  }
  barrier.line = line;
  barrier.waiting.push_back(now);
  ++barrier.arrived;
  now->waits_at = "__syncthreads";
  now->line = line;
  now->waits_for = 0;
  open_if_complete(barrier);
  reschedule();
}

int sync_threads_count(int predicate, int line) {
  barriers[0].sum += predicate != 0;
  sync_threads(line);
  return barrier_sums[now->rank];
}

void named_barrier(unsigned number, unsigned wanted, bool waits, int line) {
  if (number >= kBarriers) fail("RuntimeError", "there is no barrier %u: there are 16", number);
  if (wanted == 0) wanted = count;
  if (wanted % kWarp != 0)
    fail("RuntimeError", "barrier %u is for %u threads: whole warps", number, wanted);
  Barrier& barrier = barriers[number];
  if (barrier.arrived > 0 && barrier.threads != wanted) {
    fail("RuntimeError", "barrier %u is for %u threads, and for %u: line %d", number,
         barrier.threads, wanted, line);
  }
  barrier.threads = wanted;
  barrier.line = line;
  ++barrier.arrived;
  if (waits) {
    barrier.waiting.push_back(now);
    now->waits_at = "barrier";
    now->line = line;
    now->waits_for = number;
  }
  open_if_complete(barrier);
  if (waits) reschedule();
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
    if (threads[i].blocked && threads[i].waits_for == place) {
      threads[i].blocked = false;
      set_ready(&threads[i]);
    }
  }
  idle_rounds = 0;
}

void later(Event* event) { events.emplace_back(event); }

void prepare_stacks(unsigned wanted) {
  if (stacks == nullptr) {
    void* made = mmap(nullptr, kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) fail("MemoryError", "no memory for the stacks of threads");
    stacks = static_cast<char*>(made);
  }
  count = wanted;
}

__attribute__((destructor)) static void drop_stacks() {
  if (stacks != nullptr) munmap(stacks, kMostThreads * kStackBytes);
}

void run_block(void (*body)()) {
  thread_body = body;
  alive = count;
  ready.clear();
  polling.clear();
  converging.clear();
  events.clear();
  idle_rounds = 0;
  for (Barrier& barrier : barriers) barrier = Barrier{};
  clear_meetings();
  delete async_notes;
  async_notes = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    unsigned x = i % block_extent.x, rest = i / block_extent.x;
    threads[i] = Thread{{x, rest % block_extent.y, rest / block_extent.y},
                        i,
                        i % kWarp,
                        i / kWarp,
                        false,
                        false,
                        begin_fiber(stacks + i * kStackBytes, fiber_main),
                        nullptr,
                        0,
                        0};
    end_of_stack(i) = kEndOfStack;
    ready.push_back(&threads[i]);
  }
  for (unsigned warp = 0; warp * kWarp < count; ++warp) {
    unsigned lanes = count - warp * kWarp;
    warp_alive[warp] = lanes >= kWarp ? ~0u : (1u << lanes) - 1;
  }
  now = ready.back();
  ready.pop_back();
  switch_fiber(&main_stack, now->stack_pointer);
  while (land_one()) continue;  // copies to global memory that nobody waited for
}

}  // namespace emu
