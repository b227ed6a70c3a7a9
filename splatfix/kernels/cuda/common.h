// What every kernel file here begins with. The same text is compiled twice: by NVRTC for a GPU, where an array is a pointer, and by a
// host compiler for the tests (tests/kernels/cuda), where arrays check their bounds and every access for races.
//
//   In<T>, Out<T>          arrays in global memory; whole elements are read and written
//   SHARED(T, name, n)     an array that a block shares; its content is undefined at first
//   add_to(array, i, v)    an atomic addition
//   power_of_two(x)        2^x, and reciprocal(x) 1 / x: within 2 units in the last place
//   real                   float; double only in tests, which separates the meaning of a formula from its rounding
#pragma once

#ifndef REAL
#define REAL float
#endif
typedef REAL real;
#define FULL_WARP 0xffffffffu

#ifdef __CUDACC_RTC__
template <class T> using In = const T* __restrict__;
template <class T> using Out = T* __restrict__;
#define SHARED(T, name, n) __shared__ T name[n]
template <class T> __device__ __forceinline__ void add_to(T* array, long long i, T value) { atomicAdd(array + i, value); }

// One instruction each, without what a division and exp2f do for numbers below the normal ones, which these make 0.
__device__ __forceinline__ float power_of_two(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}
__device__ __forceinline__ float reciprocal(float x) {
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}
#else
#include "cuda_on_cpu.h"
inline real power_of_two(real x) { return exp2(x); }
inline real reciprocal(real x) { return 1 / x; }
#endif
