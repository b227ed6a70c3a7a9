// SSIM of images, and its gradient with respect to the first: the contract of splatfix/kernels/ssim.py, in two kernels.
//
// The map needs four blurs (x, y, x^2 + y^2, xy) with a separable window of 11 taps. A block of 256 threads makes 32 x 16 pixels of one
// channel: it loads both images with a margin of 5 into shared memory, and blurs along rows, a thread four neighboring columns at once,
// which share eight of their taps. What that gives stays in registers until all have read, and then takes the place of the images. Last, a
// thread blurs down a column for two pixels. `ssim_forward` writes one partial sum for each block (a fixed order of additions: the
// same input gives the same bits) and, where a gradient is wanted, the map's derivatives with respect to E[x], E[x^2 + y^2] and E[xy];
// `ssim_backward` blurs those three maps with the same (symmetric) window and puts them together:
//
//   dL/dx = blur(d/dE[x]) + 2 x blur(d/dE[x^2 + y^2]) + y blur(d/dE[xy])
//
// Shared memory in float: 13 KB a block forward, 8.5 backward. Where threads read or write beside each other no bank is hit twice.
// Numerics: both images are taken less 0.5 before they are squared, which keeps E[x^2] - E[x]^2 from losing digits; outside the image,
// where the contract wants 0, that is -0.5. Variances are clamped to >= 0 as one sum and the map to [-1, 1], without gradient there.
#include "common.h"

#define TILE_X 32
#define TILE_Y 16
#define THREADS 256
#define BLOCKS (__CUDA_ARCH__ == 750 ? 4 : 6)  // on a multiprocessor: as many as spill no register
#define HALO 5
#define TAPS (2 * HALO + 1)
#define TALL (TILE_Y + 2 * HALO)  // rows with the margin
#define QUADS (TILE_X / 4)        // four columns each
#define WIDE (QUADS + 3)          // with the margin
#define PITCH (TILE_X + QUADS)    // of the blurred rows, backward

// The normal density with sigma 1.5 at -5 ... 5, normalised to a sum of 1.
__device__ __forceinline__ real weight(int k) {
    const double W[TAPS] = {0.00102838008447911, 0.00759875813523919, 0.03600077212843083, 0.10936068950970002,
                            0.21300553771125370, 0.26601172486179436, 0.21300553771125370, 0.10936068950970002,
                            0.03600077212843083, 0.00759875813523919, 0.00102838008447911};
    return (real)W[k];
}

struct alignas(16) Four { real a, b, c, d; };
__device__ __forceinline__ void add(Four& sum, real weight, real a, real b, real c, real d) {
    sum.a += weight * a;
    sum.b += weight * b;
    sum.c += weight * c;
    sum.d += weight * d;
}

// Four neighboring pixels of a map from column x on, 0 outside, each less `shift`.
__device__ __forceinline__ Four four_of(In<real> map, long long plane, int y, int x, int height, int width, real shift) {
    const bool row = y >= 0 && y < height;
    const long long at = plane + (long long)y * width + x;
    return {(row && x >= 0 && x < width ? map[at] : (real)0) - shift, (row && x >= -1 && x + 1 < width ? map[at + 1] : (real)0) - shift,
            (row && x >= -2 && x + 2 < width ? map[at + 2] : (real)0) - shift, (row && x >= -3 && x + 3 < width ? map[at + 3] : (real)0) - shift};
}

// What a pixel in both images, `column` columns behind the first of four windows, adds to the four.
__device__ __forceinline__ void blur(Four (&sums)[4], int column, real x, real y) {
    const real squares = x * x + y * y, product = x * y;
#pragma unroll
    for (int window = 0; window < 4; window++) {
        const int k = column - window;
        if (k >= 0 && k < TAPS) add(sums[window], weight(k), x, y, squares, product);
    }
}

// The same, of one map.
__device__ __forceinline__ void blur(Four& sum, int column, real value) {
    if (column >= 0 && column < TAPS) sum.a += weight(column) * value;
    if (column >= 1 && column <= TAPS) sum.b += weight(column - 1) * value;
    if (column >= 2 && column <= TAPS + 1) sum.c += weight(column - 2) * value;
    if (column >= 3 && column <= TAPS + 2) sum.d += weight(column - 3) * value;
}

// a / b, rounded as a division; `inverse` is 1 / b or beside it.
__device__ __forceinline__ real quotient(real a, real b, real inverse) {
    const real near = a * inverse;
    return near + inverse * (a - near * b);
}

// sums: [blocks]; slopes: [images, 3, H, W] or null. `edge` is 5 where the map's 5 outermost pixels do not count, else 0.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) ssim_forward(
    In<real> first, In<real> second, int height, int width, int edge, real scale, Out<real> sums, Out<real> slopes) {
    // first four neighboring columns of x, behind them of y; then the blurs {x, y, x^2 + y^2, xy}, every fourth column of a row side by side
    SHARED(Four, memory, TALL * TILE_X);
    const long long plane = (long long)blockIdx.z * height * width;
    const int left = blockIdx.x * TILE_X - HALO, top = blockIdx.y * TILE_Y - HALO, thread = threadIdx.x;

    const int column = thread % 16;
    for (int row = thread / 16; row < TALL && column < WIDE; row += THREADS / 16) {
        memory[row * WIDE + column] = four_of(first, plane, top + row, left + 4 * column, height, width, (real)0.5);
        memory[(TALL + row) * WIDE + column] = four_of(second, plane, top + row, left + 4 * column, height, width, (real)0.5);
    }
    __syncthreads();

    const int row = thread / QUADS, quad = thread % QUADS;
    Four sums_of_row[4] = {};
    if (row < TALL) {
#pragma unroll
        for (int four = 0; four < 4; four++) {
            const Four xs = memory[row * WIDE + quad + four], ys = memory[(TALL + row) * WIDE + quad + four];
            blur(sums_of_row, 4 * four, xs.a, ys.a);
            blur(sums_of_row, 4 * four + 1, xs.b, ys.b);
            blur(sums_of_row, 4 * four + 2, xs.c, ys.c);
            blur(sums_of_row, 4 * four + 3, xs.d, ys.d);
        }
    }
    __syncthreads();
    if (row < TALL) {
#pragma unroll
        for (int k = 0; k < 4; k++) memory[row * TILE_X + k * QUADS + quad] = sums_of_row[k];
    }
    __syncthreads();

    const int lane = thread % TILE_X, warp = thread / TILE_X;
    const int x = blockIdx.x * TILE_X + lane % QUADS * 4 + lane / QUADS;
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
        const real by_means = reciprocal(means), by_all = reciprocal(all);
        const real light = quotient(2 * mx * my + C1, means, by_means), shape = quotient(2 * covariance + C2, all, by_all);
        const real value = light * shape;
        const bool counts = y >= edge && y < height - edge && x >= edge && x < width - edge;
        if (counts) total += min(max(value, (real)-1), (real)1);
        if (!slopes) continue;
        // value = light(mx) shape(variances, covariance), with mx inside the latter two as well
        const bool free = counts && value >= -1 && value <= 1;
        const real by_light = free ? scale * shape : (real)0, by_shape = free ? scale * light : (real)0;
        const real by_covariance = by_shape * 2 * by_all, by_spread = spread >= 0 ? -by_shape * shape * by_all : (real)0;
        const real by_mean = by_light * 2 * (my - mx * light) * by_means - by_covariance * sum.b - by_spread * 2 * sum.a;
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
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) ssim_backward(
    In<real> first, In<real> second, In<real> slopes, In<real> upstream, int height, int width, Out<real> gradient) {
    SHARED(Four, tile, TALL * WIDE);  // four neighboring columns of the map
    SHARED(real, rows, TALL * PITCH);  // its blur along rows, every fourth column of a row side by side
    const long long map = (long long)height * width, plane = blockIdx.z * map;
    const int left = blockIdx.x * TILE_X - HALO, top = blockIdx.y * TILE_Y - HALO, thread = threadIdx.x;
    const int lane = thread % TILE_X, warp = thread / TILE_X, column = thread % 16, quad = thread % QUADS, own_row = thread / QUADS;
    const int own_x = blockIdx.x * TILE_X + lane % QUADS * 4 + lane / QUADS, own_y = blockIdx.y * TILE_Y + 2 * warp;
    real sum[2] = {0, 0};

#pragma unroll 1
    for (int m = 0; m < 3; m++) {
#pragma unroll 1
        for (int row = thread / 16; row < TALL && column < WIDE; row += THREADS / 16)
            tile[row * WIDE + column] = four_of(slopes, 3 * plane + m * map, top + row, left + 4 * column, height, width, 0);
        __syncthreads();
        if (own_row < TALL) {
            Four sums_of_row = {};
#pragma unroll
            for (int four = 0; four < 4; four++) {
                const Four at = tile[own_row * WIDE + quad + four];
                blur(sums_of_row, 4 * four, at.a);
                blur(sums_of_row, 4 * four + 1, at.b);
                blur(sums_of_row, 4 * four + 2, at.c);
                blur(sums_of_row, 4 * four + 3, at.d);
            }
            rows[own_row * PITCH + quad] = sums_of_row.a;
            rows[own_row * PITCH + QUADS + quad] = sums_of_row.b;
            rows[own_row * PITCH + 2 * QUADS + quad] = sums_of_row.c;
            rows[own_row * PITCH + 3 * QUADS + quad] = sums_of_row.d;
        }
        __syncthreads();
        real upper = 0, lower = 0;
#pragma unroll
        for (int k = 0; k <= TAPS; k++) {
            const real at = rows[(2 * warp + k) * PITCH + lane];
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
