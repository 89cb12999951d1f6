/* Code linked into a library so that its kernels run with the threads they were tuned for.
 *
 * By default TVM runs half of the logical CPUs, whatever they are, and binds its workers to the
 * first of them, while the calling thread may run on any: where it meets a worker, both take twice
 * as long. Each kernel with a parallel loop calls `tuner_use_threads` first. At a thread's first
 * call, its pool (each thread of a process has one) gets as many threads as the library was tuned
 * for, but no more than there are CPUs for this process, and all of them may run on any of these.
 * The calling thread may run where it could before.
 *
 * TVM_NUM_THREADS, OMP_NUM_THREADS and TVM_BIND_THREADS=1 mean what they mean to TVM.
 *
 * The symbols of TVM are weak: in a process that lacks them TVM's own behaviour stays.
 */
#define _GNU_SOURCE
#include <tvm/ffi/c_api.h>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma weak TVMFFIFunctionGetGlobal
#pragma weak TVMFFIFunctionCall
#pragma weak TVMFFIErrorMoveFromRaised
#pragma weak TVMFFIObjectDecRef

#define CGROUP "/sys/fs/cgroup"

enum { MOST_CPUS = 8192, DIGITS = 12 };
enum { A_CPU_EACH = -2, ALL_CPUS_FOR_ALL = -3 }; /* how `runtime.config_threadpool` binds */

typedef struct {
  size_t bytes;
  cpu_set_t *set;
  int count;
  int numbers[MOST_CPUS];
} Cpus;

static int at_least_one(long number) { return number > 1 ? (int)number : 1; }

/* CPUs that this thread may run on; 0 where the system does not tell. */
static int read_cpus(Cpus *cpus) {
  cpus->bytes = CPU_ALLOC_SIZE(MOST_CPUS);
  cpus->set = CPU_ALLOC(MOST_CPUS);
  cpus->count = 0;
  if (cpus->set == NULL || sched_getaffinity(0, cpus->bytes, cpus->set) != 0) return 0;
  for (int number = 0; number < MOST_CPUS; ++number) {
    if (CPU_ISSET_S(number, cpus->bytes, cpus->set)) cpus->numbers[cpus->count++] = number;
  }
  return cpus->count;
}

/* Read the numbers in a file of a control group, at most two; return how many there are. */
static int read_numbers(const char *cgroup, const char *name, long *first, long *second) {
  char path[512];
  if (snprintf(path, sizeof path, "%s/%s", cgroup, name) >= (int)sizeof path) return 0;
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  int count = fscanf(file, "%ld %ld", first, second);
  fclose(file);
  return count > 0 ? count : 0;
}

/* Whole CPUs of a container's quota, at least one; `otherwise` where there is none. */
static int quota_cpus(const char *cgroup, int otherwise) {
  long limit = 0, period = 0, unused = 0;
  if (read_numbers(cgroup, "cpu.max", &limit, &period) < 2) {
    read_numbers(cgroup, "cpu/cpu.cfs_quota_us", &limit, &unused);
    read_numbers(cgroup, "cpu/cpu.cfs_period_us", &period, &unused);
  }
  return limit > 0 && period > 0 ? at_least_one(limit / period) : otherwise;
}

/* The number of threads that the user set for TVM; 0 where none is set. */
static int threads_told(void) {
  const char *told = getenv("TVM_NUM_THREADS");
  if (told == NULL) told = getenv("OMP_NUM_THREADS");
  return told == NULL ? 0 : at_least_one(atoi(told));
}

/* The number of threads to run here, of those that a library was tuned for. */
static int threads_for(int tuned, int cpus, const char *cgroup) {
  int most = quota_cpus(cgroup, cpus);
  if (cpus < most) most = cpus;
  return at_least_one(tuned < most ? tuned : most);
}

static TVMFFIAny whole(int64_t value) {
  TVMFFIAny any;
  memset(&any, 0, sizeof any);
  any.type_index = kTVMFFIInt;
  any.v_int64 = value;
  return any;
}

/* Call a global function. The caller owns its result. */
static int call(const char *name, TVMFFIAny *arguments, int count, TVMFFIAny *result) {
  TVMFFIByteArray named = {name, strlen(name)};
  TVMFFIObjectHandle function = NULL, error = NULL;
  memset(result, 0, sizeof *result);
  int failed = TVMFFIFunctionGetGlobal(&named, &function);
  if (failed == 0 && function == NULL) return -1;
  if (failed == 0) failed = TVMFFIFunctionCall(function, arguments, count, result);
  if (failed != 0) {
    TVMFFIErrorMoveFromRaised(&error);
    if (error != NULL) TVMFFIObjectDecRef(error);
  }
  if (function != NULL) TVMFFIObjectDecRef(function);
  return failed;
}

/* Configure the pool of this thread: `threads` of them on `length` CPUs, which are repeated where
 * there are fewer. A pool that does not exist yet is made with `length` threads. */
static int configure(int mode, int threads, const Cpus *cpus, int length) {
  TVMFFIAny *listed = (TVMFFIAny *)calloc((size_t)length, sizeof *listed);
  char *texts = (char *)malloc((size_t)length * DIGITS);
  TVMFFIAny array, nothing;
  int failed = listed == NULL || texts == NULL;
  for (int i = 0; !failed && i < length; ++i) {
    char *text = texts + (size_t)i * DIGITS;
    snprintf(text, DIGITS, "%d", cpus->numbers[i % cpus->count]);
    listed[i].type_index = kTVMFFIRawStr;
    listed[i].v_c_str = text;
  }
  failed = failed || call("ffi.Array", listed, length, &array) != 0;
  if (!failed) {
    TVMFFIAny arguments[] = {whole(mode), whole(threads), array};
    failed = call("runtime.config_threadpool", arguments, 3, &nothing);
    TVMFFIObjectDecRef(array.v_obj);
  }
  free(texts);
  free(listed);
  return failed;
}

/* A pool that other code had TVM make in this thread cannot grow. Say so once. */
static void complain_of_fewer_than(int threads) {
  static char said;
  TVMFFIAny used;
  if (call("runtime.NumThreads", NULL, 0, &used) != 0 || used.v_int64 >= threads) return;
  if (__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) return;
  fprintf(stderr,
          "a tuned library runs with %d of %d threads, since other code had TVM start its threads "
          "before; TVM_NUM_THREADS=%d gives it all\n",
          (int)used.v_int64, threads, threads);
}

static void set_up(int tuned, Cpus *cpus) {
  const char *bind = getenv("TVM_BIND_THREADS");
  int told = threads_told();
  int threads = told ? told : threads_for(tuned, cpus->count, CGROUP);
  if (bind != NULL && atoi(bind) == 1) {
    configure(A_CPU_EACH, threads, cpus, threads);
  } else if (configure(ALL_CPUS_FOR_ALL, threads, cpus, threads) == 0) {
    /* The first call made the pool, its threads bound to CPUs. Now they may all run anywhere. */
    configure(ALL_CPUS_FOR_ALL, threads, cpus, threads > cpus->count ? threads : cpus->count);
    sched_setaffinity(0, cpus->bytes, cpus->set);
  }
  if (!told) complain_of_fewer_than(threads);
}

/* In a forked process the pool is there and its threads are not: a kernel that waited for them
 * would do so for ever. With one CPU TVM runs it in the calling thread. */
static void do_without_pool(Cpus *cpus) {
  configure(ALL_CPUS_FOR_ALL, 1, cpus, 1);
  sched_setaffinity(0, cpus->bytes, cpus->set);
}

static int forks; /* how often the process was forked from one that had set up threads */
static void count_fork(void) { ++forks; }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

static void use_threads(int tuned, int has_lost_pool) {
  static pthread_once_t watched = PTHREAD_ONCE_INIT;
  if (!TVMFFIFunctionGetGlobal || !TVMFFIFunctionCall || !TVMFFIErrorMoveFromRaised ||
      !TVMFFIObjectDecRef)
    return;
  pthread_once(&watched, watch_forks);
  Cpus *cpus = (Cpus *)malloc(sizeof *cpus);
  if (cpus == NULL) return;
  if (read_cpus(cpus) > 0) {
    if (has_lost_pool)
      do_without_pool(cpus);
    else
      set_up(tuned, cpus);
  }
  if (cpus->set != NULL) CPU_FREE(cpus->set);
  free(cpus);
}

__attribute__((visibility("hidden"))) int tuner_use_threads(int tuned) {
  static __thread int ready; /* one more than `forks` was */
  if (ready != forks + 1) {
    use_threads(tuned, ready != 0);
    ready = forks + 1;
  }
  return 0;
}
#else
__attribute__((visibility("hidden"))) int tuner_use_threads(int tuned) {
  (void)tuned;
  return 0;
}
#endif
