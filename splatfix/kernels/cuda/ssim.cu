// SSIM of images, and its gradient with respect to the first: the contract of splatfix/kernels/ssim.py, in two kernels.
//
// The map needs four blurs (x, y, x^2 + y^2, xy) with a separable window of 11 taps. A block of 32 x 8 threads makes 32 x 32 pixels of
// one channel: it loads both images with a margin of 5 into shared memory, blurs along rows into four more arrays there, then each
// thread walks down its column, four pixels. `ssim_forward` writes one partial sum for each block (a fixed order of additions: the
// same input gives the same bits) and, where a gradient is wanted, the map's derivatives with respect to E[x], E[x^2 + y^2] and E[xy];
// `ssim_backward` blurs those three maps with the same (symmetric) window and puts them together:
//
//   dL/dx = blur(d/dE[x]) + 2 x blur(d/dE[x^2 + y^2]) + y blur(d/dE[xy])
//
// Shared memory: 42 x 42 x 2 of input, 42 x 32 x 4 of rows: 35.6 KB in float. A row of 32 threads reads 32 neighbors: no bank is hit twice.
// Numerics: both images are taken less 0.5 before they are squared, which keeps E[x^2] - E[x]^2 from losing digits; outside the image,
// where the contract wants 0, that is -0.5. Variances are clamped to >= 0 as one sum and the map to [-1, 1], without gradient there.
#include "common.h"

#define TILE 32
#define ROWS 8
#define HALO 5
#define WIDE (TILE + 2 * HALO)

// The normal density with sigma 1.5 at -5 ... 5, normalised to a sum of 1.
__device__ __forceinline__ real weight(int k) {
    const double W[2 * HALO + 1] = {0.00102838008447911, 0.00759875813523919, 0.03600077212843083, 0.10936068950970002,
                                    0.21300553771125370, 0.26601172486179436, 0.21300553771125370, 0.10936068950970002,
                                    0.03600077212843083, 0.00759875813523919, 0.00102838008447911};
    return (real)W[k];
}

struct alignas(16) Four { real a, b, c, d; };
struct Three { real a, b, c; };

// sums: [blocks]; slopes: [images, 3, H, W] or null. `edge` is 5 where the map's 5 outermost pixels do not count, else 0.
extern "C" __global__ void __launch_bounds__(TILE * ROWS) ssim_forward(
    In<real> first, In<real> second, int height, int width, int edge, real scale, Out<real> sums, Out<real> slopes) {
    SHARED(real, x_tile, WIDE * WIDE);
    SHARED(real, y_tile, WIDE * WIDE);
    SHARED(Four, rows, WIDE * TILE);
    SHARED(real, partial, ROWS);
    const long long plane = (long long)blockIdx.z * height * width;
    const int left = blockIdx.x * TILE - HALO, top = blockIdx.y * TILE - HALO;
    const int thread = threadIdx.y * TILE + threadIdx.x;

    for (int i = thread; i < WIDE * WIDE; i += TILE * ROWS) {
        const int y = top + i / WIDE, x = left + i % WIDE;
        const bool inside = y >= 0 && y < height && x >= 0 && x < width;
        const long long at = plane + (long long)y * width + x;
        x_tile[i] = (inside ? first[at] : (real)0) - (real)0.5;
        y_tile[i] = (inside ? second[at] : (real)0) - (real)0.5;
    }
    __syncthreads();

    for (int row = threadIdx.y; row < WIDE; row += ROWS) {
        Four sum = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k <= 2 * HALO; k++) {
            const real x = x_tile[row * WIDE + threadIdx.x + k], y = y_tile[row * WIDE + threadIdx.x + k];
            sum.a += weight(k) * x;
            sum.b += weight(k) * y;
            sum.c += weight(k) * (x * x + y * y);
            sum.d += weight(k) * (x * y);
        }
        rows[row * TILE + threadIdx.x] = sum;
    }
    __syncthreads();

    const real C1 = (real)(0.01 * 0.01), C2 = (real)(0.03 * 0.03);
    real total = 0;
    for (int row = threadIdx.y; row < TILE; row += ROWS) {
        const int y = blockIdx.y * TILE + row, x = blockIdx.x * TILE + threadIdx.x;
        if (y >= height || x >= width) continue;
        Four sum = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k <= 2 * HALO; k++) {
            const Four at = rows[(row + k) * TILE + threadIdx.x];
            sum.a += weight(k) * at.a;
            sum.b += weight(k) * at.b;
            sum.c += weight(k) * at.c;
            sum.d += weight(k) * at.d;
        }
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
    if (threadIdx.x == 0) partial[threadIdx.y] = total;
    __syncthreads();
    if (thread == 0) {
        real sum = 0;
        for (int k = 0; k < ROWS; k++) sum += partial[k];
        sums[((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = sum;
    }
}

// gradient: [images, H, W], of the sum that `ssim_forward` made, times *upstream.
extern "C" __global__ void __launch_bounds__(TILE * ROWS) ssim_backward(
    In<real> first, In<real> second, In<real> slopes, In<real> upstream, int height, int width, Out<real> gradient) {
    SHARED(Three, tile, WIDE * WIDE);
    SHARED(Three, rows, WIDE * TILE);
    const long long map = (long long)height * width, plane = blockIdx.z * map;
    const int left = blockIdx.x * TILE - HALO, top = blockIdx.y * TILE - HALO;

    for (int i = threadIdx.y * TILE + threadIdx.x; i < WIDE * WIDE; i += TILE * ROWS) {
        const int y = top + i / WIDE, x = left + i % WIDE;
        Three slope = {0, 0, 0};
        if (y >= 0 && y < height && x >= 0 && x < width) {
            const long long at = 3 * plane + (long long)y * width + x;
            slope = {slopes[at], slopes[map + at], slopes[2 * map + at]};
        }
        tile[i] = slope;
    }
    __syncthreads();

    for (int row = threadIdx.y; row < WIDE; row += ROWS) {
        Three sum = {0, 0, 0};
#pragma unroll
        for (int k = 0; k <= 2 * HALO; k++) {
            const Three at = tile[row * WIDE + threadIdx.x + k];
            sum.a += weight(k) * at.a;
            sum.b += weight(k) * at.b;
            sum.c += weight(k) * at.c;
        }
        rows[row * TILE + threadIdx.x] = sum;
    }
    __syncthreads();

    const real factor = upstream[0];
    for (int row = threadIdx.y; row < TILE; row += ROWS) {
        const int y = blockIdx.y * TILE + row, x = blockIdx.x * TILE + threadIdx.x;
        if (y >= height || x >= width) continue;
        Three sum = {0, 0, 0};
#pragma unroll
        for (int k = 0; k <= 2 * HALO; k++) {
            const Three at = rows[(row + k) * TILE + threadIdx.x];
            sum.a += weight(k) * at.a;
            sum.b += weight(k) * at.b;
            sum.c += weight(k) * at.c;
        }
        const long long at = plane + (long long)y * width + x;
        const real x_value = first[at] - (real)0.5, y_value = second[at] - (real)0.5;
        gradient[at] = factor * (sum.a + 2 * x_value * sum.b + y_value * sum.c);
    }
}
