// Kernels for test_emulator.py: each does one thing wrong, or nothing.
#include "common.h"
struct alignas(16) Four { float of[4]; };
extern "C" __global__ void four_at_once(In<Four> in, Out<Four> out) { if (threadIdx.x < 8) out[threadIdx.x] = (Four)in[threadIdx.x]; }
extern "C" __global__ void reverse(In<real> in, Out<real> out) {
    SHARED(real, held, 64);
    held[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = held[63 - threadIdx.x];
}
extern "C" __global__ void no_barrier(In<real> in, Out<real> out) {
    SHARED(real, held, 64);
    held[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = held[63 - threadIdx.x];
}
extern "C" __global__ void all_write_one(In<real> in, Out<real> out) { out[0] = in[threadIdx.x]; }
extern "C" __global__ void add_without_atomic(In<real> in, Out<real> out) { out[0] += in[threadIdx.x]; }
extern "C" __global__ void add_and_read(In<real> in, Out<real> out) { add_to(out, 0, (real)in[threadIdx.x]); out[threadIdx.x + 1] = (real)out[0]; }
extern "C" __global__ void reads_the_neighbour(In<real> in, Out<real> out) { out[threadIdx.x] = in[threadIdx.x]; out[threadIdx.x] = (real)out[threadIdx.x ^ 1]; }
extern "C" __global__ void reads_outside(In<real> in, Out<real> out) { out[threadIdx.x] = in[threadIdx.x + 100]; }
extern "C" __global__ void writes_outside(In<real> in, Out<real> out) { out[threadIdx.x - 1] = in[threadIdx.x]; }
extern "C" __global__ void shared_outside(In<real> in, Out<real> out) { SHARED(real, held, 63); held[threadIdx.x] = in[threadIdx.x]; }
extern "C" __global__ void shared_unwritten(In<real> in, Out<real> out) { SHARED(real, held, 64); out[threadIdx.x] = (real)held[threadIdx.x]; }
extern "C" __global__ void half_at_a_barrier(In<real> in, Out<real> out) { if (threadIdx.x < 32) __syncthreads(); }
extern "C" __global__ void two_barriers(In<real> in, Out<real> out) {
    if (threadIdx.x < 32) __syncthreads();
    else
        __syncthreads();
}
extern "C" __global__ void lanes_apart(In<real> in, Out<real> out) { if (threadIdx.x % 2) out[threadIdx.x] = __shfl_xor_sync(FULL_WARP, (real)in[threadIdx.x], 2); }
extern "C" __global__ void lanes_in_part(In<real> in, Out<real> out) { out[threadIdx.x] = __shfl_xor_sync(0xffffu, (real)in[threadIdx.x], 2); }
extern "C" __global__ void votes(In<real> in, Out<real> out) { out[threadIdx.x] = (real)__syncthreads_count(threadIdx.x % 3 == 0); }
