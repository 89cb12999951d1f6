// Stacks, and the switch from one to another.
//
// `swapcontext` asks the system for the signal mask each time, which takes longer than a thread
// runs between two barriers. So there is a switch of our own for x86-64.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emu {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kPage = 4096;

#if defined(__x86_64__)
// Keep the registers that a function keeps, go on where `to` stopped.
extern "C" __attribute__((visibility("hidden"))) void emu_switch(void** from, void* to);
#endif

// A fiber that begins with `body`, on the memory of its stack.
inline void* begin_fiber(char* stack, void (*body)()) {
#if defined(__x86_64__)
  auto top = reinterpret_cast<uintptr_t>(stack + kStackBytes) & ~uintptr_t{15};
  auto* words = reinterpret_cast<void**>(top);
  words[-1] = nullptr;
  words[-2] = reinterpret_cast<void*>(body);
  for (int i = 3; i <= 8; ++i) words[-i] = nullptr;
  return words - 8;
#else
  auto* context = reinterpret_cast<ucontext_t*>(stack + kStackBytes - sizeof(ucontext_t) - 64);
  getcontext(context);
  context->uc_stack.ss_sp = stack + kPage;
  context->uc_stack.ss_size = kStackBytes - kPage - sizeof(ucontext_t) - 128;
  context->uc_link = nullptr;
  makecontext(context, body, 0);
  return context;
#endif
}

inline void switch_fiber(void** from, void* to) {
#if defined(__x86_64__)
  emu_switch(from, to);
#else
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
#endif
}

}  // namespace emu
