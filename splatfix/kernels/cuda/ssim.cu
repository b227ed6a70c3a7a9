// SSIM of images, and its gradient with respect to the first: the contract of splatfix/kernels/ssim.py, in two kernels.
//
// The map needs four blurs (x, y, x^2 + y^2, xy) with a separable window of 11 taps. A block of 256 threads makes 32 x 16 pixels of one
// channel: it loads both images with a margin of 5 into shared memory, and blurs along rows, a thread two neighboring columns at a time,
// which share ten of their taps. What that gives stays in registers until all have read, and then takes the place of the images. Last, a
// thread blurs down a column for two pixels. `ssim_forward` writes one partial sum for each block (a fixed order of additions: the
// same input gives the same bits) and, where a gradient is wanted, the map's derivatives with respect to E[x], E[x^2 + y^2] and E[xy];
// `ssim_backward` blurs those three maps with the same (symmetric) window and puts them together:
//
//   dL/dx = blur(d/dE[x]) + 2 x blur(d/dE[x^2 + y^2]) + y blur(d/dE[xy])
//
// Shared memory in float: 13 KB a block forward, 7.7 backward. A thread of a warp reads 16 bytes beside its neighbor's: no bank is hit twice.
// Numerics: both images are taken less 0.5 before they are squared, which keeps E[x^2] - E[x]^2 from losing digits; outside the image,
// where the contract wants 0, that is -0.5. Variances are clamped to >= 0 as one sum and the map to [-1, 1], without gradient there.
#include "common.h"

#define TILE_X 32
#define TILE_Y 16
#define THREADS 256
#define HALO 5
#define TAPS (2 * HALO + 1)
#define TALL (TILE_Y + 2 * HALO)   // rows with the margin
#define PAIRS (TILE_X / 2 + HALO)  // pairs of columns with the margin
#define OWN (TILE_X / 2)           // pairs without
#define TURNS 2                    // of the threads for all pairs of all rows: 416 are more than 256

// The normal density with sigma 1.5 at -5 ... 5, normalised to a sum of 1.
__device__ __forceinline__ real weight(int k) {
    const double W[TAPS] = {0.00102838008447911, 0.00759875813523919, 0.03600077212843083, 0.10936068950970002,
                            0.21300553771125370, 0.26601172486179436, 0.21300553771125370, 0.10936068950970002,
                            0.03600077212843083, 0.00759875813523919, 0.00102838008447911};
    return (real)W[k];
}

struct alignas(16) Four { real a, b, c, d; };
struct alignas(8) Two { real a, b; };

__device__ __forceinline__ void add(Four& sum, real weight, real a, real b, real c, real d) {
    sum.a += weight * a;
    sum.b += weight * b;
    sum.c += weight * c;
    sum.d += weight * d;
}

// Of a pixel in both images, 0 outside, each less 0.5.
__device__ __forceinline__ Two pixel_of(In<real> first, In<real> second, long long plane, int y, int x, int height, int width) {
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    const long long at = plane + (long long)y * width + x;
    return {(inside ? first[at] : (real)0) - (real)0.5, (inside ? second[at] : (real)0) - (real)0.5};
}

// sums: [blocks]; slopes: [images, 3, H, W] or null. `edge` is 5 where the map's 5 outermost pixels do not count, else 0.
extern "C" __global__ void __launch_bounds__(THREADS) ssim_forward(
    In<real> first, In<real> second, int height, int width, int edge, real scale, Out<real> sums, Out<real> slopes) {
    // first {x, y} of two neighboring columns, then the blurs {x, y, x^2 + y^2, xy} of one: the even columns of a row, then the odd ones
    SHARED(Four, memory, TALL * TILE_X);
    const long long plane = (long long)blockIdx.z * height * width;
    const int left = blockIdx.x * TILE_X - HALO, top = blockIdx.y * TILE_Y - HALO, thread = threadIdx.x;

    for (int i = thread; i < TALL * PAIRS; i += THREADS) {
        const int y = top + i / PAIRS, x = left + i % PAIRS * 2;
        const Two even = pixel_of(first, second, plane, y, x, height, width);
        const Two odd = pixel_of(first, second, plane, y, x + 1, height, width);
        memory[i] = Four{even.a, even.b, odd.a, odd.b};
    }
    __syncthreads();

    Four even[TURNS] = {}, odd[TURNS] = {};
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const int item = thread + turn * THREADS;
        if (item >= TALL * OWN) continue;
#pragma unroll
        for (int k = 0; k <= TAPS; k += 2) {
            const Four at = memory[item / OWN * PAIRS + item % OWN + k / 2];
            const real squares = at.a * at.a + at.b * at.b, product = at.a * at.b;
            const real next_squares = at.c * at.c + at.d * at.d, next_product = at.c * at.d;
            add(even[turn], weight(k), at.a, at.b, squares, product);
            if (k + 1 < TAPS) add(even[turn], weight(k + 1), at.c, at.d, next_squares, next_product);
            if (k > 0) add(odd[turn], weight(k - 1), at.a, at.b, squares, product);
            add(odd[turn], weight(k), at.c, at.d, next_squares, next_product);
        }
    }
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const int item = thread + turn * THREADS;
        if (item >= TALL * OWN) continue;
        memory[item / OWN * TILE_X + item % OWN] = even[turn];
        memory[item / OWN * TILE_X + OWN + item % OWN] = odd[turn];
    }
    __syncthreads();

    const int lane = thread % TILE_X, warp = thread / TILE_X;
    const int x = blockIdx.x * TILE_X + lane % OWN * 2 + lane / OWN;
    Four blurred[2] = {};
#pragma unroll
    for (int k = 0; k <= TAPS; k++) {
        const Four at = memory[(2 * warp + k) * TILE_X + lane];
        if (k < TAPS) add(blurred[0], weight(k), at.a, at.b, at.c, at.d);
        if (k > 0) add(blurred[1], weight(k - 1), at.a, at.b, at.c, at.d);
    }
    const real C1 = (real)(0.01 * 0.01), C2 = (real)(0.03 * 0.03);
    real total = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int y = blockIdx.y * TILE_Y + 2 * warp + half;
        if (y >= height || x >= width) continue;
        const Four sum = blurred[half];
        const real mx = sum.a + (real)0.5, my = sum.b + (real)0.5;
        const real spread = sum.c - sum.a * sum.a - sum.b * sum.b, variances = max(spread, (real)0), covariance = sum.d - sum.a * sum.b;
        const real means = mx * mx + my * my + C1, all = variances + C2;
        const real light = (2 * mx * my + C1) / means, shape = (2 * covariance + C2) / all, value = light * shape;
        const bool counts = y >= edge && y < height - edge && x >= edge && x < width - edge;
        if (counts) total += min(max(value, (real)-1), (real)1);
        if (!slopes) continue;
        // value = light(mx) shape(variances, covariance), with mx inside the latter two as well
        const bool free = counts && value >= -1 && value <= 1;
        const real by_light = free ? scale * shape : (real)0, by_shape = free ? scale * light : (real)0;
        const real by_covariance = by_shape * 2 / all, by_spread = spread >= 0 ? -by_shape * shape / all : (real)0;
        const real by_mean = by_light * 2 * (my - mx * light) / means - by_covariance * sum.b - by_spread * 2 * sum.a;
        const long long map = (long long)height * width, at = 3 * plane + (long long)y * width + x;
        slopes[at] = by_mean;
        slopes[map + at] = by_spread;
        slopes[2 * map + at] = by_covariance;
    }

#pragma unroll
    for (int d = 16; d; d /= 2) total += __shfl_xor_sync(FULL_WARP, total, d);
    __syncthreads();
    if (lane == 0) memory[warp] = Four{total, 0, 0, 0};
    __syncthreads();
    if (thread == 0) {
        real sum = 0;
        for (int k = 0; k < THREADS / TILE_X; k++) {
            const Four partial = memory[k];
            sum += partial.a;
        }
        sums[((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = sum;
    }
}

// gradient: [images, H, W], of the sum that `ssim_forward` made, times *upstream. One map after the other: there is room for one, and
// what a thread carries on is the sum of the three at its two pixels.
extern "C" __global__ void __launch_bounds__(THREADS) ssim_backward(
    In<real> first, In<real> second, In<real> slopes, In<real> upstream, int height, int width, Out<real> gradient) {
    SHARED(Two, tile, TALL * PAIRS);  // two neighboring columns of the map
    SHARED(real, rows, TALL * TILE_X);  // its blur along rows: the even columns of a row, then the odd ones
    const long long map = (long long)height * width, plane = blockIdx.z * map;
    const int left = blockIdx.x * TILE_X - HALO, top = blockIdx.y * TILE_Y - HALO, thread = threadIdx.x;
    const int lane = thread % TILE_X, warp = thread / TILE_X;
    const int own_x = blockIdx.x * TILE_X + lane % OWN * 2 + lane / OWN, own_y = blockIdx.y * TILE_Y + 2 * warp;
    real sum[2] = {0, 0};

#pragma unroll 1
    for (int m = 0; m < 3; m++) {
        for (int i = thread; i < TALL * PAIRS; i += THREADS) {
            const int y = top + i / PAIRS, x = left + i % PAIRS * 2;
            const bool row = y >= 0 && y < height;
            const long long at = 3 * plane + m * map + (long long)y * width + x;
            tile[i] = Two{row && x >= 0 && x < width ? slopes[at] : (real)0, row && x >= -1 && x + 1 < width ? slopes[at + 1] : (real)0};
        }
        __syncthreads();
        for (int item = thread; item < TALL * OWN; item += THREADS) {
            real even = 0, odd = 0;
#pragma unroll
            for (int k = 0; k <= TAPS; k += 2) {
                const Two at = tile[item / OWN * PAIRS + item % OWN + k / 2];
                even += weight(k) * at.a;
                if (k + 1 < TAPS) even += weight(k + 1) * at.b;
                if (k > 0) odd += weight(k - 1) * at.a;
                odd += weight(k) * at.b;
            }
            rows[item / OWN * TILE_X + item % OWN] = even;
            rows[item / OWN * TILE_X + OWN + item % OWN] = odd;
        }
        __syncthreads();
        real upper = 0, lower = 0;
#pragma unroll
        for (int k = 0; k <= TAPS; k++) {
            const real at = rows[(2 * warp + k) * TILE_X + lane];
            if (k < TAPS) upper += weight(k) * at;
            if (k > 0) lower += weight(k - 1) * at;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (own_y + half >= height || own_x >= width) continue;
            const long long at = plane + (long long)(own_y + half) * width + own_x;
            real factor = 1;
            if (m == 1) factor = 2 * (first[at] - (real)0.5);
            if (m == 2) factor = second[at] - (real)0.5;
            sum[half] += factor * (half ? lower : upper);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (own_y + half >= height || own_x >= width) continue;
        gradient[plane + (long long)(own_y + half) * width + own_x] = upstream[0] * sum[half];
    }
}
