// The second phase of the backward passes: a warp has 32 Gaussians, a lane each, and the pixels of the tile travel from lane to lane, so that
// a lane sums the gradients of its Gaussian over all pixels in registers. Lane k works on pixel t - k at step t, or, where pixels come from
// behind, on pixel t - (31 - k), and hands on what the pixel carries.
#pragma once
#include "gaussians.h"

#define BUCKETS (AREA / WARP)
#define PADDED (AREA + 2 * WARP)  // pixels as the lanes reach them: before and behind those of the tile are some that no Gaussian reaches

constexpr int TILE_SHIFT = TILE == 16 ? 4 : 3;
__device__ __forceinline__ int column_of(int pixel) { return pixel & (TILE - 1); }
__device__ __forceinline__ int row_of(int pixel) { return pixel >> TILE_SHIFT; }  // also below 0

template <bool FROM_BEHIND> __device__ __forceinline__ real from_lane_before(real value) {
    if (FROM_BEHIND) return __shfl_sync(FULL_WARP, value, (threadIdx.x + 1) % WARP);
    return __shfl_up_sync(FULL_WARP, value, 1);
}

// ways: of the bucket's pixels, from `at` on. Way::handed_on() is what the lane before has; work(p): of pixel p, -31 to AREA + 31.
template <bool FROM_BEHIND, class Way, class Ways, class Work>
__device__ __forceinline__ void travel(Ways& ways, int at, Way& passing, const Work& work) {
    const int lane = threadIdx.x % WARP, place = FROM_BEHIND ? WARP - 1 - lane : lane;
    for (int step = 0; step < AREA; step++) {
        passing = passing.handed_on();
        if (place == 0) passing = ways[at + step];
        work(step - place);
    }
    for (int step = AREA; step < AREA + WARP; step++) {
        passing = passing.handed_on();
        work(step - place);
    }
}
