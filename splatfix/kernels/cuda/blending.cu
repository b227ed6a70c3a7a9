// The image from the lists of binning.cu, and the gradients of its Gaussians in the image. Where there are many channels (PART), the
// kernels are launched for COLORS of them, `from` on, and again for the next ones: the gradient of alpha is a sum over channels, so the
// passes just add up (but for the absolute gradients, which rasterizer_cuda.py does not ask for then). Depth, its inverse and alpha
// come with the first pass.
#include "travel.h"

#ifndef COLORS
#define COLORS 3  // channels of a launch
#endif
#ifndef EXTRAS
#define EXTRAS 3  // depth, 1 / depth, 1; or 0, where none of them is wanted
#endif
#define FEATURES (COLORS + EXTRAS)
#ifndef ABSOLUTE
#define ABSOLUTE 0  // 1: the backward pass sums absolute gradients too
#endif
#ifndef PART
#define PART 0  // 0: `channels` is COLORS and `from` 0, known to the compiler
#endif
#ifndef OFFSETS
#define OFFSETS 0  // 1: pixels have offsets from their centers
#endif
#ifndef USED
#define USED 0  // 1: `used`, [P], zeros at first, counts the pixels that take each Gaussian
#endif
#define BLOCKS (FEATURES + ABSOLUTE > 9 ? 2 : FEATURES + ABSOLUTE > 6 ? 3 : 4)  // of blend_backward on a multiprocessor: as many as spill no register

// A pixel of the tile by its number in it, its corner the origin; x and y are its place in the image.
__device__ __forceinline__ Pixel pixel_at(In<real> offsets, int number, int x, int y, int width) {
    Pixel at = {(real)(number % TILE), (real)(number / TILE)};
    if (OFFSETS) {
        at.x += offsets[2 * ((long long)y * width + x)];
        at.y += offsets[2 * ((long long)y * width + x) + 1];
    }
    return at;
}

struct Color { real of[FEATURES]; };

__device__ __forceinline__ Color color_of(In<real> features, int which, int channels, int from) {
    const long long row = (long long)which * (channels + 3);
    Color it;
    for (int c = 0; c < COLORS; c++) it.of[c] = from + c < channels ? features[row + from + c] : (real)0;
    for (int e = 0; e < EXTRAS; e++) it.of[COLORS + e] = features[row + channels + e];
    return it;
}

// image: [channels, H, W], the background under it; extras: [EXTRAS, H, W]; lasts: [H, W], one more than the position of the last Gaussian
// that the pixel took.
extern "C" __global__ void __launch_bounds__(AREA) blend(
    In<int> ranges, In<int> gaussians, In<Splat> splats, In<real> features, In<real> background, In<real> offsets, int channels,
    int from, int width, int height, Out<real> image, Out<real> extras, Out<int> lasts,
    Out<int> used) {
    SHARED(Splat, near, AREA);
    SHARED(Color, near_color, AREA);
#if USED
    SHARED(int, numbers, AREA);
#endif
    if (!PART) { channels = COLORS; from = 0; }
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, begin = ranges[2 * tile], end = ranges[2 * tile + 1];
    const int x = blockIdx.x * TILE + threadIdx.x % TILE, y = blockIdx.y * TILE + threadIdx.x / TILE;
    const bool inside = x < width && y < height;
    const Pixel at = inside ? pixel_at(offsets, threadIdx.x, x, y, width) : Pixel{0, 0};
    Color sum = {};
    real left = 1;
    int last = 0;
    bool done = !inside;
    for (int first = begin; first < end; first += AREA) {
        if (__syncthreads_count(done) == AREA) break;
        if (first + (int)threadIdx.x < end) {
            const int which = gaussians[first + threadIdx.x];
            near[threadIdx.x] = in_tile(splats[which]);
            near_color[threadIdx.x] = color_of(features, which, channels, from);
#if USED
            numbers[threadIdx.x] = which;
#endif
        }
        __syncthreads();
        const int here = min(AREA, end - first);
        for (int k = 0; k < here && !done; k++) {
            real dx, dy, uncapped, alpha;
            const Splat s = near[k];
            if (!alpha_at(s, at, dx, dy, uncapped, alpha)) continue;
            const real after = left * (1 - alpha);
            if (after < STOP) { done = true; break; }
            const Color color = near_color[k];
#pragma unroll
            for (int f = 0; f < FEATURES; f++) sum.of[f] += color.of[f] * (alpha * left);
            left = after;
            last = first - begin + k + 1;
#if USED
            add_to(used, numbers[k], 1);
#endif
        }
    }
    if (!inside) return;
    const long long plane = (long long)width * height, pixel = (long long)y * width + x;
    for (int c = from; c < min(from + COLORS, channels); c++) image[c * plane + pixel] = sum.of[c - from] + left * background[c];
    for (int e = 0; e < EXTRAS; e++) extras[e * plane + pixel] = sum.of[COLORS + e];
    lasts[pixel] = last;
}

// What the way through a pixel carries from Gaussian to Gaussian, front to back.
struct Way {
    real left;   // transmittance in front
    real ahead;  // sum so far of weight x (feature . upstream gradient), less the final pixel . upstream gradient: what is still ahead, negative
    __device__ __forceinline__ Way handed_on() const { return {from_lane_before<false>(left), from_lane_before<false>(ahead)}; }
};

// A pixel of the second phase: what pulls at its features, and one more than the position of the last Gaussian that it took. For colors
// alone it is read at once.
struct alignas(FEATURES == 3 ? 16 : 4) Pull {
    Color gradient;
    int last;
};

// Sums for each Gaussian, before those of its features: dL/d of x, y, conic a, b, c (unscaled: power = -(a dx^2 + c dy^2) / 2 - b dx dy),
// opacity, |dL/dx|, |dL/dy| (0 without ABSOLUTE).
#define SUMS 8

// A block a tile, in turns of 256 Gaussians, front to back, and two phases a turn. First a thread is a pixel, goes through the 256 as `blend`
// did, and leaves its `Way` in shared memory in front of every 32nd. Then the pixels travel through the 32 Gaussians of a warp (travel.h):
// nothing is reduced across lanes, and global memory gets one atomic addition for a pair and number.
// (Gaussian-parallel backward passes: Taming-3DGS, Mallick et al. 2024, which keeps the ways of a forward pass in global memory instead.)
//
// With `ahead` up to and with Gaussian k,
//     dL/dalpha_k = left_k (feature_k . upstream) + ahead_k / (1 - alpha_k):
// what lies behind k, background and all, is what the final pixel has and the sum up to k has not.
// Shared memory in float: 16 KB of ways, 1 KB of pixels and 1 KB for each feature. The Gaussians of the first phase come from the
// registers of the threads that the second phase gives them to, 32 at a time into one of two places, so that a barrier each suffices: 3 KB.
// 22.8 KB for colors, 26.5 with extras, 2 more with offsets: two blocks on sm_75, four (three with extras) on sm_86 to sm_121.
extern "C" __global__ void __launch_bounds__(AREA, BLOCKS) blend_backward(
    In<int> ranges, In<int> gaussians, In<Splat> splats, In<real> features, In<real> offsets, In<real> image, In<real> extras, In<real> upstream,
    In<real> upstream_extras, In<int> lasts, int channels, int from, int stride, int width, int height, Out<real> sums) {
    SHARED(Splat, near, 2 * WARP);
    SHARED(Color, near_color, 2 * WARP);
    SHARED(Way, ways, BUCKETS * AREA);
    SHARED(Pull, pulls, PADDED);
#if OFFSETS
    SHARED(Pixel, pixel_place, AREA);
#endif
    if (!PART) { channels = COLORS; from = 0; }
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, begin = ranges[2 * tile], end = ranges[2 * tile + 1];
    const int me = threadIdx.x, x = blockIdx.x * TILE + me % TILE, y = blockIdx.y * TILE + me / TILE;
    const int lane = me % WARP, own_bucket = own_warp();
    const bool inside = x < width && y < height;
    const long long plane = (long long)width * height, pixel = (long long)y * width + x;
    Color gradient = {};
    Way way = {1, 0};
#pragma unroll
    for (int c = 0; c < COLORS; c++) {
        if (!inside || !upstream || from + c >= channels) continue;
        gradient.of[c] = upstream[(from + c) * plane + pixel];
        way.ahead -= gradient.of[c] * image[(from + c) * plane + pixel];
    }
    for (int e = 0; e < EXTRAS && inside; e++) {
        gradient.of[COLORS + e] = upstream_extras[e * plane + pixel];
        way.ahead -= gradient.of[COLORS + e] * extras[e * plane + pixel];
    }
    const Pixel at = inside ? pixel_at(offsets, me, x, y, width) : Pixel{0, 0};
    const int last = inside ? lasts[pixel] : 0;
    pulls[WARP + me] = Pull{gradient, last};
    if (me < 2 * WARP) pulls[me < WARP ? me : AREA + me] = Pull{};
#if OFFSETS
    pixel_place[me] = at;
#endif
    for (int first = begin; first < end; first += AREA) {
        // also the barrier between one turn's second phase and the next one's first
        if (!__syncthreads_count(last > first - begin)) break;
        const int which = first + me < end ? gaussians[first + me] : -1;
        Splat mine = {};
        Color color = {};
        if (which >= 0) {
            mine = in_tile(splats[which]);
            color = color_of(features, which, channels, from);
        }
        for (int bucket = 0; bucket < BUCKETS && first + bucket * WARP < end; bucket++) {
            const int place = bucket % 2 * WARP;
            if (own_bucket == bucket) {
                near[place + lane] = mine;
                near_color[place + lane] = color;
            }
            __syncthreads();
            ways[bucket * AREA + me] = way;
            const int until = min(WARP, last - (first - begin) - bucket * WARP);
            for (int k = 0; k < until; k++) {
                real dx, dy, uncapped, alpha;
                const Splat s = near[place + k];
                if (!alpha_at(s, at, dx, dy, uncapped, alpha)) continue;
                const Color c = near_color[place + k];
                real own = 0;
#pragma unroll
                for (int f = 0; f < FEATURES; f++) own += c.of[f] * gradient.of[f];
                way.ahead += alpha * way.left * own;
                way.left *= 1 - alpha;
            }
        }
        __syncthreads();

        const int position = first - begin + me;
        Moments<ABSOLUTE> moments = {};
        Color by_feature = {};
        Way passing = {0, 0};
        auto work = [&](int p) {
            const Pull pull = pulls[WARP + p];
#if OFFSETS
            const Pixel place = pixel_place[p & (AREA - 1)];
#else
            const Pixel place = {(real)column_of(p), (real)row_of(p)};
#endif
            real dx, dy, uncapped, alpha;
            if (!alpha_at(mine, place, dx, dy, uncapped, alpha) || position >= pull.last) return;
            const real weight = alpha * passing.left;
            real own = 0;
#pragma unroll
            for (int f = 0; f < FEATURES; f++) {
                own += color.of[f] * pull.gradient.of[f];
                by_feature.of[f] += weight * pull.gradient.of[f];
            }
            passing.ahead += weight * own;
            const real by_alpha = passing.left * own + passing.ahead * reciprocal(1 - alpha);
            moments.add(mine, by_alpha * uncapped, dx, dy);  // dL/d(power): the cap passes the gradient straight through
            passing.left *= 1 - alpha;
        };
        if (first + own_bucket * WARP < end) travel<false>(ways, own_bucket * AREA, passing, work);  // the same for all lanes of a warp
        if (which < 0) continue;
        const long long row = (long long)which * stride;
        const Pixel by_center = moments.by_center(mine), absolute = moments.absolute();
        const Vector by_conic = moments.by_conic();
        add_to(sums, row, by_center.x);
        add_to(sums, row + 1, by_center.y);
        add_to(sums, row + 2, by_conic.x);
        add_to(sums, row + 3, by_conic.y);
        add_to(sums, row + 4, by_conic.z);
        add_to(sums, row + 5, moments.one / mine.opacity);
        if (ABSOLUTE) {
            add_to(sums, row + 6, absolute.x);
            add_to(sums, row + 7, absolute.y);
        }
        for (int c = 0; c < COLORS && from + c < channels; c++) add_to(sums, row + SUMS + from + c, by_feature.of[c]);
        for (int e = 0; e < EXTRAS; e++) add_to(sums, row + SUMS + channels + e, by_feature.of[COLORS + e]);
    }
}
