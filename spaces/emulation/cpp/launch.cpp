// A grid of blocks: launch parameters, faults caught, a deadline, errors for TVM.
#include "launch.hpp"

#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "banks.hpp"
#include "scheduler.hpp"

namespace emu {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr long kTick_ns = 50'000'000;
constexpr size_t kMostLog = 1 << 20;

struct Request {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  size_t dynamic_bytes = 0;
};

std::mutex one_at_a_time;
sigjmp_buf outside;
volatile bool inside;
std::string error_kind, error_text;
const Kernel* running;
const TVMFFIAny* running_arguments;
uint64_t seed, launches;
int64_t deadline_ms = 60'000;
uint64_t switches_before;
int64_t ticks;
int watched_signal;
std::string log;  // of launches, a line each: see `emulation.launches`

void jump_out(const char* kind, std::string text) {
  error_kind = kind;
  error_text = std::move(text);
  siglongjmp(outside, 1);
}

// The pointer argument that an address is closest behind.
std::string near(const void* address) {
  long best = -1, distance = 0;
  for (int i = 0; i < running->parameters; ++i) {
    const TVMFFIAny& value = running_arguments[i];
    if (value.type_index != kTVMFFIOpaquePtr) continue;
    long away = static_cast<const char*>(address) - static_cast<const char*>(value.v_ptr);
    if (best < 0 || std::labs(away) < std::labs(distance)) {
      best = i;
      distance = away;
    }
  }
  if (best < 0) return "";
  return ": " + std::to_string(distance) + " bytes from the start of argument " +
         std::to_string(best);
}

void on_fault(int number, siginfo_t* info, void*) {
  if (!inside) {
    signal(number, SIG_DFL);
    return;
  }
  char where[128];
  snprintf(where, sizeof where, "%s of block (%u, %u, %u) ", now ? thread_text() : "a thread",
           block_index.x, block_index.y, block_index.z);
  std::string text = where;
  if (number == SIGFPE) {
    text += "divides an integer by zero";
  } else if (number == SIGILL) {
    text += "stopped at a trap";
  } else if (info->si_addr == nullptr) {
    text += "reads or writes at an address that is not aligned, or null";
  } else {
    text += "reads or writes outside of its buffers" + near(info->si_addr);
  }
  jump_out("RuntimeError", text);
}

void on_tick(int, siginfo_t*, void*) {
  if (!inside) return;
  if (++ticks * kTick_ns / 1'000'000 < deadline_ms) {
    switches_before = switches;
    return;
  }
  expired = true;  // the scheduler ends the launch, if a thread ever comes back to it
  if (now != nullptr && switches == switches_before) {
    std::string others = waiting_text();
    jump_out("TimeoutError", std::string(thread_text()) + " never comes to a barrier or its end" +
                                 (others.empty() ? "" : "; ") + others);
  }
  switches_before = switches;
}

// Handlers while a grid runs, and the ones from before afterwards.
class Watch {
 public:
  Watch() {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    action.sa_sigaction = on_fault;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
    static char stack[64 << 10];
    stack_t own = {};
    own.ss_sp = stack;
    own.ss_size = sizeof stack;
    sigaltstack(&own, &stack_before_);
    watched_signal = SIGRTMIN + 7;
    action.sa_sigaction = on_tick;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(watched_signal, &action, &tick_before_);
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = watched_signal;
    event._sigev_un._tid = static_cast<int>(syscall(SYS_gettid));
    has_timer_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    itimerspec period = {{0, kTick_ns}, {0, kTick_ns}};
    if (has_timer_) timer_settime(timer_, 0, &period, nullptr);
    expired = false;
    ticks = 0;
    inside = true;
  }
  ~Watch() {
    inside = false;
    if (has_timer_) timer_delete(timer_);
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    sigaction(watched_signal, &tick_before_, nullptr);
    if (stack_before_.ss_flags & SS_DISABLE) stack_before_.ss_size = MINSIGSTKSZ;
    sigaltstack(&stack_before_, nullptr);
  }
  Watch(const Watch&) = delete;

 private:
  struct sigaction before_[std::size(kSignals)], tick_before_;
  stack_t stack_before_;
  timer_t timer_;
  bool has_timer_;
};

const char* text_of(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFIRawStr) return value.v_c_str;
  if (value.type_index == kTVMFFISmallStr) return value.v_bytes;
  if (value.type_index != kTVMFFIStr) return nullptr;
  return TVMFFIBytesGetByteArrayPtr(value.v_obj)->data;
}

// TVM's runtime starts one block, or thread, where a symbolic extent is 0.
unsigned extent(const TVMFFIAny& value) {
  return value.v_int64 > 0 ? static_cast<unsigned>(value.v_int64) : 1;
}

Request requested(const Kernel& kernel, const TVMFFIAny* arguments, int count) {
  const char* tags = count > kernel.parameters ? text_of(arguments[count - 1]) : nullptr;
  if (tags == nullptr)
    fail("TypeError", "%s was called without its launch parameters", kernel.name);
  Request request;
  std::copy(kernel.cluster, kernel.cluster + 3, request.cluster);
  std::string rest = tags;
  for (int i = kernel.parameters; !rest.empty(); ) {
    size_t comma = rest.find(',');
    std::string tag = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    if (tag == "tirx.use_programtic_dependent_launch" || tag == "tirx.use_cooperative_launch")
      continue;
    if (i >= count - 1) fail("TypeError", "%s was called without its %s", kernel.name, tag.c_str());
    const TVMFFIAny& value = arguments[i++];
    unsigned dimension = static_cast<unsigned>(tag.back() - 'x');
    if (tag == "tirx.use_dyn_shared_memory") {
      request.dynamic_bytes = static_cast<size_t>(value.v_int64);
    } else if (tag.rfind("blockIdx.", 0) == 0 && dimension < 3) {
      request.grid[dimension] = extent(value);
    } else if (tag.rfind("threadIdx.", 0) == 0 && dimension < 3) {
      request.block[dimension] = extent(value);
    } else if (tag.rfind("clusterCtaIdx.", 0) == 0 && dimension < 3) {
      request.cluster[dimension] = extent(value);
    } else {
      fail("TypeError", "%s has a launch parameter %s, which the emulated device does not know",
           kernel.name, tag.c_str());
    }
  }
  return request;
}

void check(const Kernel& kernel, const Request& r) {
  unsigned long threads = 1ul * r.block[0] * r.block[1] * r.block[2];
  if (threads > 1024 || r.block[2] > 64) {
    fail("ValueError", "%s cannot be launched: %lu threads in a block", kernel.name, threads);
  }
  if (kernel.most_threads && threads > kernel.most_threads) {
    fail("ValueError", "%s cannot be launched: %lu threads in a block, and it is compiled for %u",
         kernel.name, threads, kernel.most_threads);
  }
  if (r.grid[0] > 0x7FFFFFFFu || r.grid[1] > 65535 || r.grid[2] > 65535) {
    fail("ValueError", "%s cannot be launched: a grid of (%u, %u, %u)", kernel.name, r.grid[0],
         r.grid[1], r.grid[2]);
  }
  unsigned blocks = r.cluster[0] * r.cluster[1] * r.cluster[2];
  if (blocks > kMostBlocks) {
    fail("ValueError", "%s cannot be launched: %u blocks in a cluster", kernel.name, blocks);
  }
  for (int i = 0; i < 3; ++i) {
    if (r.grid[i] % r.cluster[i]) {
      fail("ValueError", "%s cannot be launched: a grid of (%u, %u, %u) in clusters of (%u, %u, %u)",
           kernel.name, r.grid[0], r.grid[1], r.grid[2], r.cluster[0], r.cluster[1], r.cluster[2]);
    }
  }
}

void run_grid(const Kernel& kernel, const Request& r) {
  grid_extent = {r.grid[0], r.grid[1], r.grid[2]};
  block_extent = {r.block[0], r.block[1], r.block[2]};
  cluster_extent = {r.cluster[0], r.cluster[1], r.cluster[2]};
  cluster_blocks = r.cluster[0] * r.cluster[1] * r.cluster[2];
  unsigned long across = r.grid[0] / r.cluster[0], down = r.grid[1] / r.cluster[1];
  prepare_stacks(r.block[0] * r.block[1] * r.block[2]);
  lay_out_shared(kernel.static_bytes, r.dynamic_bytes);
  std::vector<uint64_t> order(across * down * (r.grid[2] / r.cluster[2]));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random_below(static_cast<uint32_t>(i))]);
  }
  for (uint64_t number : order) {
    Index first = {static_cast<unsigned>(number % across) * r.cluster[0],
                   static_cast<unsigned>(number / across % down) * r.cluster[1],
                   static_cast<unsigned>(number / across / down) * r.cluster[2]};
    run_cluster(first, [] { running->run(running_arguments); });
    end_watched_cluster();
    for (unsigned block = 0; block < cluster_blocks; ++block) {
      enter_block(block);
      check_shared(kernel.zones, kernel.zone_count);
    }
  }
}

void note(const Kernel& kernel, const Request& r) {
  size_t shared = r.dynamic_bytes + kernel.static_bytes;
  for (size_t i = 0; i < kernel.zone_count; ++i) shared -= kernel.zones[i].bytes;
  char line[512];
  snprintf(line, sizeof line, "%s %lu %lu %zu %lu %lu %lu %lu %lu\n", kernel.name,
           1ul * r.grid[0] * r.grid[1] * r.grid[2], 1ul * r.block[0] * r.block[1] * r.block[2],
           shared, work.operations, work.global_bytes, work.shared_bytes, work.tensor_operations,
           work.barriers);
  if (log.size() > kMostLog) log.clear();  // nobody asks
  log += line;
}

}  // namespace

void fail(const char* kind, const char* format, ...) {
  char text[2048];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  error_kind = kind;
  error_text = text;
  siglongjmp(outside, 1);
}

void misaligned(size_t bytes, size_t alignment, const volatile void* place, int line) {
  auto* address = const_cast<const void*>(place);
  std::string where = is_shared(address) ? " in shared memory" : near(address);
  fail("RuntimeError",
       "%s of block (%u, %u, %u): misaligned address: %zu bytes at no multiple of %zu, line %d%s",
       thread_text(), block_index.x, block_index.y, block_index.z, bytes, alignment, line,
       where.c_str());
}

int launch(const Kernel& kernel, const TVMFFIAny* arguments, int count) {
  std::lock_guard<std::mutex> lock(one_at_a_time);
  Watch watch;
  running = &kernel;
  running_arguments = arguments;
  seed_with(seed + launches++ * 1000003);
  if (sigsetjmp(outside, 1) == 0) {
    Request request = requested(kernel, arguments, count);
    check(kernel, request);
    work = Work{};
    run_grid(kernel, request);
    note(kernel, request);
    now = nullptr;
    return 0;
  }
  now = nullptr;
  TVMFFIErrorSetRaisedFromCStr(error_kind.c_str(), (kernel.name + (": " + error_text)).c_str());
  return -1;
}

}  // namespace emu

// What the host code of a CUDA library calls before it launches: there is one device.
extern "C" __attribute__((visibility("default"))) int __tvm_ffi___tvm_set_device(
    void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  return 0;
}

// `emulation.configure(seed, deadline_ms)`: the order of blocks and threads from now on, and how
// long a launch may take.
extern "C" __attribute__((visibility("default"))) int configure(void*, const TVMFFIAny* arguments,
                                                                int32_t count, TVMFFIAny* result)
    asm("__tvm_ffi_emulation.configure");
int configure(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
  if (count != 2) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "configure takes a seed and a deadline in ms");
    return -1;
  }
  emu::seed = static_cast<uint64_t>(arguments[0].v_int64);
  emu::launches = 0;
  emu::deadline_ms = arguments[1].v_int64;
  result->type_index = kTVMFFINone;
  return 0;
}

// `emulation.launches()`: the launches since the last call, a line each: the kernel's name, its
// blocks, threads of a block, bytes of shared memory of a block, and the work of all threads.
extern "C" __attribute__((visibility("default"))) int launches(void*, const TVMFFIAny*, int32_t,
                                                               TVMFFIAny* result)
    asm("__tvm_ffi_emulation.launches");
int launches(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  TVMFFIByteArray text = {emu::log.data(), emu::log.size()};
  int failed = TVMFFIStringFromByteArray(&text, result);
  emu::log.clear();
  return failed;
}

// `emulation.watch(on)`: whether accesses to shared memory are watched from now on.
extern "C" __attribute__((visibility("default"))) int watch(void*, const TVMFFIAny* arguments,
                                                            int32_t count, TVMFFIAny* result)
    asm("__tvm_ffi_emulation.watch");
int watch(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
  if (count != 1) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "watch takes whether to");
    return -1;
  }
  emu::watch_banks(arguments[0].v_int64 != 0);
  result->type_index = kTVMFFINone;
  return 0;
}

// `emulation.watched()`: accesses to shared memory since the last call, see `banks.hpp`.
extern "C" __attribute__((visibility("default"))) int watched(void*, const TVMFFIAny*, int32_t,
                                                              TVMFFIAny* result)
    asm("__tvm_ffi_emulation.watched");
int watched(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  std::string text = emu::watched();
  TVMFFIByteArray bytes = {text.data(), text.size()};
  return TVMFFIStringFromByteArray(&bytes, result);
}

// `emulation.target()`: what device the kernels are for.
extern "C" __attribute__((visibility("default"))) int target(void*, const TVMFFIAny*, int32_t,
                                                             TVMFFIAny* result)
    asm("__tvm_ffi_emulation.target");
int target(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  TVMFFIByteArray text = {emu::target_text, strlen(emu::target_text)};
  return TVMFFIStringFromByteArray(&text, result);
}
