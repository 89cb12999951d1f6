// A kernel with each instruction that `spaces.codegen.cuda.instructions` names, in each width: as
// many as the architecture has. It is compiled, and never run.
#include <cstdint>
#include <cuda_fp16.h>

template <class T> __device__ void copy_shared(T* to, T* shared, int at) {
  shared[at + 1] = to[at];
  to[at + 2] = shared[2 * at];
}

extern "C" __global__ void every(float* f, uint32_t* u, double* d, __half* h, uint64_t* q) {
  __shared__ alignas(128) unsigned char bytes[8192];
  uint32_t shared = __cvta_generic_to_shared(bytes) + threadIdx.x * 16;
  int lane = threadIdx.x;
  copy_shared((unsigned char*)f, bytes, lane);
  copy_shared((uint16_t*)f, (uint16_t*)bytes, lane);
  copy_shared((uint32_t*)f, (uint32_t*)bytes, lane);
  copy_shared((uint64_t*)f, (uint64_t*)bytes, lane);
  copy_shared((uint4*)f, (uint4*)bytes, lane);
  __syncthreads();
  float own[64], x = f[lane + 2];
#pragma unroll 1
  for (int i = 0; i < (int)u[0]; ++i) {
    x = x * f[i] + u[i] + __shfl_xor_sync(~0u, x, 1);
    d[i] = d[i + 1] * d[i + 2] + d[i + 3];
    h[i] = __hfma(h[i + 1], h[i + 2], h[i + 3]);
    own[u[i + 9] & 63] = x;
    u[i + 4] = __dp4a((int)u[i + 5], (int)u[i + 6], (int)u[i + 7]);
    while (((volatile uint32_t*)u)[i + 90] == 0) {}
    f[i + 70] = own[u[i + 8] & 63] / x;
  }
  switch (u[2]) {
    case 0: f[0] = 1; break;
    case 1: f[1] = sinf(f[2]); break;
    case 2: f[7] = 3; break;
    case 3: f[8] = 4 / x; break;
    case 4: f[9] = __expf(f[8]); break;
    case 7: f[3] = 3;
  }
  *(float*)q[70] = *(float*)q[71] + *(float*)q[72];
#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
  asm volatile("fma.rn.f32x2 %0,%1,%2,%3;" : "=l"(q[9]) : "l"(q[0]), "l"(q[1]), "l"(q[2]));
#endif
#define D "{%0,%1,%2,%3}"
#define OF "+r"(u[0]), "+r"(u[1]), "+r"(u[2]), "+r"(u[3])
  uint32_t a = u[4], b = u[5], c = u[6], e = u[7], r0, r1, r2, r3;
#if __CUDA_ARCH__ >= 800
  double d0 = d[0], d1 = d[1];
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
               : "+d"(d0), "+d"(d1) : "d"(d[3]), "d"(d[4]));
  d[8] = d0 + d1;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " D ",{%4,%5,%6,%7},{%4,%5}," D
               ";" : OF : "r"(a), "r"(b), "r"(c), "r"(e));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " D ",{%4,%5,%6,%7},{%4,%5}," D
               ";" : OF : "r"(a), "r"(b), "r"(c), "r"(e));
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 " D ",{%4,%5,%6,%7},{%4,%5}," D ";"
               : OF : "r"(a), "r"(b), "r"(c), "r"(e));
#if __CUDA_ARCH__ <= 900
  asm volatile("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc " D ",{%4,%5},{%6}," D ";"
               : OF : "r"(a), "r"(b), "r"(c));
#endif
  asm volatile("cp.async.ca.shared.global [%0],[%1],4; cp.async.ca.shared.global [%0],[%1],8;"
               "cp.async.cg.shared.global [%0],[%1],16; cp.async.wait_all;" :: "r"(shared), "l"(f));
#endif
#if __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 " D ",{%4,%5,%6,%7},{%4,%5}," D
               ";" : OF : "r"(a), "r"(b), "r"(c), "r"(e));
#endif
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0},[%1];" : "=r"(r0) : "r"(shared));
  u[20] = r0;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];"
               : "=r"(r0), "=r"(r1) : "r"(shared));
  u[21] = r0 + r1;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 " D ",[%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(shared));
  u[22] = r0 + r1 + r2 + r3;
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%1],{%0};" :: "r"(r0), "r"(shared));
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%2],{%0,%1};"
               :: "r"(r0), "r"(r1), "r"(shared));
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4]," D ";"
               :: "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(shared));
  asm volatile("mbarrier.init.shared.b64 [%0],1; fence.mbarrier_init.release.cluster;"
               :: "r"(shared));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],64,[%0];"
               :: "r"(shared), "l"(f));
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%1],[%0],64;" :: "r"(shared), "l"(f));
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0],[%1,{%2,%2}],[%0];" :: "r"(shared), "l"(q), "r"(lane));
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1,{%2,%2}],[%0];"
               :: "r"(shared), "l"(q), "r"(lane));
  asm volatile("{.reg .pred p; w: mbarrier.try_wait.parity.shared.b64 p,[%0],0; @!p bra w;}"
               :: "r"(shared));
#endif
#if __CUDA_ARCH__ == 900
  asm volatile("wgmma.fence.sync.aligned; {.reg .pred p; setp.ne.b32 p,%5,0;"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 " D ",%4,%4,p,1,1,0,0;"
               "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 " D ",%4,%4,p;}"
               "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
               : OF : "l"(q[5]), "r"(lane));
#endif
  f[lane] = bytes[lane] + x;
}
