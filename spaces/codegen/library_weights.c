/* Code and data linked into a library so that its graphs use weights where the system maps them.
 *
 * `weights` holds their bytes, and `weights.inc` says what they are, both written by
 * library_weights.py. A graph calls `tuner_weight` with a number for a tensor over the bytes of that
 * weight: they are pages of the library's file, which are read when they are first used and which
 * all processes share. Nothing may write to them, or use them when the library is gone.
 */
#include <tvm/ffi/c_api.h>

/* Far from the code, which reaches no further than 2 GB on x86-64. */
#ifdef __x86_64__
#define SECTION ".lrodata, \"al\", %progbits"
#else
#define SECTION ".rodata.weights, \"a\", %progbits"
#endif

__asm__(".pushsection " SECTION "\n"
        ".balign 64\n"
        ".globl tuner_weight_bytes\n"
        ".hidden tuner_weight_bytes\n"
        "tuner_weight_bytes:\n"
        ".incbin \"weights\"\n"
        ".popsection\n");

__attribute__((visibility("hidden"))) extern char tuner_weight_bytes[];

#define WEIGHT(offset, code, bits, rank, ...)                                                      \
  {{tuner_weight_bytes + (offset), {kDLCPU, 0}, rank, {code, bits, 1}, (int64_t[]){__VA_ARGS__}},  \
   NULL, NULL},

static DLManagedTensor weights[] = {
#include "weights.inc"
};

/* A variable, so that a process without TVM's symbol cannot load the library, and is told why. */
static int (*volatile tensor_over)(DLManagedTensor *, int32_t, int32_t, TVMFFIObjectHandle *) =
    TVMFFITensorFromDLPack;

__attribute__((visibility("default"))) int __tvm_ffi_tuner_weight(void *self, const TVMFFIAny *args,
                                                                  int32_t count,
                                                                  TVMFFIAny *result) {
  (void)self;
  (void)count;
  TVMFFIObjectHandle tensor = NULL;
  int failed = tensor_over(&weights[args[0].v_int64], 0, 0, &tensor);
  if (failed == 0) {
    result->type_index = kTVMFFITensor;
    result->zero_padding = 0;
    result->v_obj = (TVMFFIObject *)tensor;
  }
  return failed;
}
