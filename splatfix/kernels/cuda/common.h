// What every kernel file here begins with. The same text is compiled twice: by NVRTC for a GPU, where an array is a pointer, and by a
// host compiler for the tests (tests/kernels/cuda), where arrays check their bounds and every access for races.
//
//   In<T>, Out<T>          arrays in global memory; whole elements are read and written
//   SHARED(T, name, n)     an array that a block shares; its content is undefined at first
//   add_to(array, i, v)    an atomic addition
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
#else
#include "cuda_on_cpu.h"
#endif
