// Where each Gaussian contributes to an image: the sums of splatfix/kernels/contributions.py over the pixels that blend it, from the lists of
// binning.cu and by the rules of `blend` (blending.cu).
//
// A block a tile, a thread a pixel, front to back. The 32 pixels of a warp go through the list together: a vote tells which of them blend the
// Gaussian, shuffles add up their numbers, and one lane adds the sums of the warp to those in global memory.
#include "gaussians.h"

// weights: [H, W] or null. counts: [P, 3]: pixels, those of which more than half passes behind it, and those where none weighs more
// (`real` counts up to 2^24 only), and sums: [P, 4]: weights of the pixels, alpha times transmittance, distances from the center,
// transmittance in front of it; zeros at first.
extern "C" __global__ void __launch_bounds__(AREA) contribute(
    In<int> ranges, In<int> gaussians, In<Splat> splats, In<real> weights, int width, int height, Out<int> counts,
    Out<real> sums) {
    SHARED(Splat, near, AREA);
    SHARED(int, numbers, AREA);
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, begin = ranges[2 * tile], end = ranges[2 * tile + 1];
    const int x = blockIdx.x * TILE + threadIdx.x % TILE, y = blockIdx.y * TILE + threadIdx.x / TILE;
    const bool inside = x < width && y < height;
    const real own = inside && weights ? weights[(long long)y * width + x] : (real)0;
    const Pixel at = {(real)(threadIdx.x % TILE), (real)(threadIdx.x / TILE)};
    real left = 1, largest = 0;
    int strongest = -1;
    bool done = !inside;
    for (int first = begin; first < end; first += AREA) {
        if (__syncthreads_count(done) == AREA) break;
        if (first + (int)threadIdx.x < end) {
            const int which = gaussians[first + threadIdx.x];
            near[threadIdx.x] = in_tile(splats[which]);
            numbers[threadIdx.x] = which;
        }
        __syncthreads();
        const int here = min(AREA, end - first);
        for (int k = 0; k < here; k++) {
            real dx = 0, dy = 0, uncapped, alpha = 0;
            bool takes = !done && alpha_at(near[k], at, dx, dy, uncapped, alpha);
            const real after = left * (1 - alpha);
            if (takes && after < STOP) { done = true; takes = false; }
            const unsigned those = __ballot_sync(FULL_WARP, takes);
            if (!those) continue;  // the same for all lanes
            real weight = takes ? own : (real)0, share = takes ? alpha * left : (real)0, distance = takes ? sqrt(dx * dx + dy * dy) : (real)0;
            real in_front = takes ? left : (real)0;
            const unsigned passing = __ballot_sync(FULL_WARP, takes && after > (real)0.5);
            if (takes && share > largest) { largest = share; strongest = numbers[k]; }
            if (takes) left = after;
#pragma unroll
            for (int d = WARP / 2; d; d /= 2) {
                weight += __shfl_xor_sync(FULL_WARP, weight, d);
                share += __shfl_xor_sync(FULL_WARP, share, d);
                distance += __shfl_xor_sync(FULL_WARP, distance, d);
                in_front += __shfl_xor_sync(FULL_WARP, in_front, d);
            }
            if (threadIdx.x % WARP) continue;
            const long long count = (long long)numbers[k] * 3, row = (long long)numbers[k] * 4;
            add_to(counts, count, __popc(those));
            if (passing) add_to(counts, count + 1, __popc(passing));
            add_to(sums, row, weight);
            add_to(sums, row + 1, share);
            add_to(sums, row + 2, distance);
            add_to(sums, row + 3, in_front);
        }
    }
    if (strongest >= 0) add_to(counts, (long long)strongest * 3 + 2, 1);
}
