// The second phase of the backward passes: a warp has 32 Gaussians, a lane each, and the pixels of the tile travel from lane to lane, so that
// a lane sums the gradients of its Gaussian over all pixels in registers. Lane k works on pixel t - k at step t, or, where pixels come from
// behind, on pixel t - (31 - k), and hands on what the pixel carries.
#pragma once
#include "gaussians.h"

#define BUCKETS (AREA / WARP)
#define PADDED (AREA + 2 * WARP)  // pixels as the lanes reach them: before and behind those of the tile are some that no Gaussian reaches

// The number of a thread's warp, from its first lane: so the compiler knows that it is one for all lanes, and that they stay together.
__device__ __forceinline__ int own_warp() { return __shfl_sync(FULL_WARP, (int)threadIdx.x / WARP, 0); }

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
    int pixel = -place;
    for (int step = 0; step < AREA; step++, pixel++) {
        // what enters is read by all lanes: a way to it that only one takes costs five instructions
        const Way entering = ways[at + step], handed_on = passing.handed_on();
        passing = place == 0 ? entering : handed_on;
        work(pixel);
    }
    for (int step = 0; step < WARP; step++, pixel++) {
        passing = passing.handed_on();
        work(pixel);
    }
}

// A Gaussian's sums over pixels of e = dL/d(power), by which its center, conic and opacity pull at it; d is Gaussian minus pixel.
constexpr real TO_NATURAL = 1 / LOG2E;

template <bool WITH_ABSOLUTE> struct Moments {
    real one, x, y, xx, xy, yy, abs_x, abs_y;

    __device__ __forceinline__ void add(const Splat& s, real e, real dx, real dy) {
        one += e;
        x += e * dx;
        y += e * dy;
        xx += e * dx * dx;
        xy += e * dx * dy;
        yy += e * dy * dy;
        if (WITH_ABSOLUTE) {
            abs_x += fabs(e * (2 * s.a * dx + s.b * dy));
            abs_y += fabs(e * (2 * s.c * dy + s.b * dx));
        }
    }
    __device__ __forceinline__ Pixel by_center(const Splat& s) const {
        return {(2 * s.a * x + s.b * y) * TO_NATURAL, (2 * s.c * y + s.b * x) * TO_NATURAL};
    }
    __device__ __forceinline__ Pixel absolute() const { return {abs_x * TO_NATURAL, abs_y * TO_NATURAL}; }
    __device__ __forceinline__ Vector by_conic() const { return {(real)-0.5 * xx, -xy, (real)-0.5 * yy}; }
};
