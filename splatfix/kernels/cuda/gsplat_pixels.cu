// Gaussians to pixels, as blending.cu, in gsplat's layout and by its rules: images [.., H, W, C], centers of pixels at one half, no gradient beyond
// the cap of alpha, tiles given as offsets. Where there are many channels (PART), a launch is for COLORS of them, `from` on: the gradient
// of alpha is a sum over channels, so the launches add up, but for the absolute gradients, which gsplat_cuda.py does not ask for then.
//
// The alphas of the forward pass are doubles: gsplat hands them to the backward pass and rounds what the caller sees. There the transmittance
// behind all is 1 - alpha, of which single precision would leave four digits in a pixel that is full.
#include "gsplat.h"
#include "travel.h"

#ifndef COLORS
#define COLORS 3  // channels of a launch
#endif
#ifndef PART
#define PART 0  // 0: `channels` is COLORS and `from` 0, known to the compiler
#endif
#ifndef ABSOLUTE
#define ABSOLUTE 0  // 1: the backward pass sums absolute gradients of the centers too
#endif
#define BLOCKS (AREA > 64 ? (COLORS + ABSOLUTE > 8 ? 2 : COLORS + ABSOLUTE > 4 ? 3 : 4) : 8)  // on a multiprocessor: as many as spill no register

struct Color { real of[COLORS]; };

__device__ __forceinline__ Color color_of(In<real> colors, int which, int channels, int from) {
    Color it;
#pragma unroll
    for (int c = 0; c < COLORS; c++) it.of[c] = from + c < channels ? colors[(long long)which * channels + from + c] : (real)0;
    return it;
}

__device__ __forceinline__ Splat splat_of(In<Pixel> centers, In<Vector> conics, In<real> opacities, int which) {
    const Pixel center = centers[which];
    const Vector conic = conics[which];
    return in_tile({center.x, center.y, (real)-0.5 * LOG2E * conic.x, -LOG2E * conic.y, (real)-0.5 * LOG2E * conic.z, opacities[which], 0, 0});
}

// As alpha_at in gaussians.h, with gsplat's cap.
__device__ __forceinline__ bool meets(const Splat& s, const Pixel& at, real& dx, real& dy, real& uncapped, real& alpha) {
    return alpha_at(s, at, dx, dy, uncapped, alpha, CAP);
}

// The center of a pixel by its number in the block, the block's corner the origin.
__device__ __forceinline__ Pixel center_of(int number) { return {column_of(number) + (real)0.5, row_of(number) + (real)0.5}; }

// lasts: [.., H, W], which pair was the last that the pixel took; 0 where none was.
extern "C" __global__ void __launch_bounds__(AREA) gsplat_blend(
    In<int> offsets, In<int> gaussians, In<bool> masks, In<Pixel> centers, In<Vector> conics, In<real> opacities, In<real> colors,
    In<real> backgrounds, int pairs, int tile_size, int columns, int rows, int channels, int from, int width, int height, Out<real> images,
    Out<double> alphas, Out<int> lasts) {
    SHARED(Splat, near, AREA);
    SHARED(Color, near_color, AREA);
    if (!PART) { channels = COLORS; from = 0; }
    const int image = blockIdx.z, left_x = blockIdx.x * TILE, top_y = blockIdx.y * TILE;
    const int x = left_x + threadIdx.x % TILE, y = top_y + threadIdx.x / TILE;
    const Tile tile = tile_of(offsets, masks, image, left_x, top_y, tile_size, columns, rows, pairs);
    const bool inside = x < width && y < height;
    const Pixel at = center_of(threadIdx.x);
    Color sum = {};
    real left = 1;
    int last = 0;
    bool done = !inside || tile.masked;
    for (int first = tile.begin; first < tile.end; first += AREA) {
        if (__syncthreads_count(done) == AREA) break;
        if (first + (int)threadIdx.x < tile.end) {
            const int which = gaussians[first + threadIdx.x];
            near[threadIdx.x] = splat_of(centers, conics, opacities, which);
            near_color[threadIdx.x] = color_of(colors, which, channels, from);
        }
        __syncthreads();
        const int here = min(AREA, tile.end - first);
        for (int k = 0; k < here && !done; k++) {
            real dx, dy, uncapped, alpha;
            const Splat s = near[k];
            if (!meets(s, at, dx, dy, uncapped, alpha)) continue;
            const real after = left * (1 - alpha);
            if (after <= STOP) { done = true; break; }
            const Color color = near_color[k];
#pragma unroll
            for (int c = 0; c < COLORS; c++) sum.of[c] += color.of[c] * (alpha * left);
            left = after;
            last = first + k;
        }
    }
    if (!inside) return;
    const long long pixel = ((long long)image * height + y) * width + x;
#pragma unroll
    for (int c = 0; c < COLORS; c++)
        if (from + c < channels) images[pixel * channels + from + c] = sum.of[c] + (backgrounds ? left * backgrounds[(long long)image * channels + from + c] : (real)0);
    alphas[pixel] = 1 - (double)left;
    lasts[pixel] = last;
}

// What the way through a pixel carries from Gaussian to Gaussian, back to front.
struct Way {
    real left;    // transmittance behind
    real behind;  // sum of weight x (color . upstream gradient) over those behind, and what alpha and the background add to it
    __device__ __forceinline__ Way handed_on() const { return {from_lane_before<true>(left), from_lane_before<true>(behind)}; }
};

// A pixel of the second phase: what pulls at its color, and which pair was the last that it took.
struct Pull {
    Color gradient;
    int last;
};

// The scheme of blend_backward (blending.cu), from behind: a turn is 256 Gaussians; first a thread is a pixel and leaves its `Way` behind every
// 32nd, then a warp takes 32 Gaussians, a lane each, and the pixels travel from lane to lane. With k's `left` and `behind`,
//     left in front of k = left / (1 - alpha_k),    dL/dalpha_k = left in front (color_k . upstream) - behind / (1 - alpha_k).
extern "C" __global__ void __launch_bounds__(AREA, BLOCKS) gsplat_blend_backward(
    In<int> offsets, In<int> gaussians, In<bool> masks, In<Pixel> centers, In<Vector> conics, In<real> opacities, In<real> colors,
    In<real> backgrounds, In<double> alphas, In<int> lasts, In<real> upstream, In<real> upstream_alphas, int pairs, int tile_size, int columns,
    int rows, int channels, int from, int width, int height, Out<real> to_centers, Out<real> to_absolute, Out<real> to_conics,
    Out<real> to_opacities, Out<real> to_colors) {
    SHARED(Splat, near, 2 * WARP);
    SHARED(Color, near_color, 2 * WARP);
    SHARED(Way, ways, BUCKETS * AREA);
    SHARED(Pull, pulls, PADDED);
    if (!PART) { channels = COLORS; from = 0; }
    const int image = blockIdx.z, left_x = blockIdx.x * TILE, top_y = blockIdx.y * TILE, me = threadIdx.x;
    const int x = left_x + me % TILE, y = top_y + me / TILE, lane = me % WARP, own_bucket = own_warp();
    const Tile tile = tile_of(offsets, masks, image, left_x, top_y, tile_size, columns, rows, pairs);
    if (tile.masked) return;  // all of the block
    const bool inside = x < width && y < height;
    const long long pixel = ((long long)image * height + y) * width + x;
    const Pixel at = center_of(threadIdx.x);
    const int last = inside ? (int)lasts[pixel] : -1;
    Color gradient = {};
    Way way = {1, 0};
    if (inside) {
        way.left = (real)(1 - alphas[pixel]);
        real by_left = upstream_alphas ? -upstream_alphas[pixel] : (real)0;
#pragma unroll
        for (int c = 0; c < COLORS; c++) {
            if (from + c >= channels) continue;
            gradient.of[c] = upstream[pixel * channels + from + c];
            if (backgrounds) by_left += gradient.of[c] * backgrounds[(long long)image * channels + from + c];
        }
        way.behind = by_left * way.left;
    }
    pulls[WARP + me] = Pull{gradient, last};
    for (int k = me; k < 2 * WARP; k += AREA) pulls[k < WARP ? k : AREA + k] = Pull{{}, -1};
    for (int first = tile.begin + (tile.end - 1 - tile.begin) / AREA * AREA; first >= tile.begin; first -= AREA) {
        // also the barrier between one turn's second phase and the next one's first
        if (!__syncthreads_count(last >= first)) continue;
        const int which = first + me < tile.end ? gaussians[first + me] : -1;
        Splat mine = {};
        Color color = {};
        if (which >= 0) {
            mine = splat_of(centers, conics, opacities, which);
            color = color_of(colors, which, channels, from);
        }
        for (int bucket = min(BUCKETS, (tile.end - first + WARP - 1) / WARP) - 1; bucket >= 0; bucket--) {
            const int place = bucket % 2 * WARP;
            if (own_bucket == bucket) {
                near[place + lane] = mine;
                near_color[place + lane] = color;
            }
            __syncthreads();
            ways[bucket * AREA + me] = way;
            for (int k = min(WARP, last - first - bucket * WARP + 1) - 1; k >= 0; k--) {
                real dx, dy, uncapped, alpha;
                const Splat s = near[place + k];
                if (!meets(s, at, dx, dy, uncapped, alpha)) continue;
                const Color c = near_color[place + k];
                real own = 0;
#pragma unroll
                for (int f = 0; f < COLORS; f++) own += c.of[f] * gradient.of[f];
                way.left *= reciprocal(1 - alpha);
                way.behind += alpha * way.left * own;
            }
        }
        __syncthreads();

        Moments<ABSOLUTE> moments = {};
        Color by_color = {};
        Way passing = {1, 0};
        auto work = [&](int p) {
            const Pull pull = pulls[WARP + p];
            real dx, dy, uncapped, alpha;
            if (!meets(mine, center_of(p), dx, dy, uncapped, alpha) || first + me > pull.last) return;
            const real inverse = reciprocal(1 - alpha);
            passing.left *= inverse;
            const real weight = alpha * passing.left;
            real own = 0;
#pragma unroll
            for (int f = 0; f < COLORS; f++) {
                own += color.of[f] * pull.gradient.of[f];
                by_color.of[f] += weight * pull.gradient.of[f];
            }
            const real e = (passing.left * own - passing.behind * inverse) * uncapped;  // dL/d(power)
            passing.behind += weight * own;
            moments.add(mine, uncapped > CAP ? (real)0 : e, dx, dy);
        };
        if (first + own_bucket * WARP < tile.end) travel<true>(ways, own_bucket * AREA, passing, work);  // the same for all lanes of a warp
        if (which < 0) continue;
        const long long row = which;
        const Pixel by_center = moments.by_center(mine), absolute = moments.absolute();
        const Vector by_conic = moments.by_conic();
        add_to(to_centers, 2 * row, by_center.x);
        add_to(to_centers, 2 * row + 1, by_center.y);
        if (ABSOLUTE) {
            add_to(to_absolute, 2 * row, absolute.x);
            add_to(to_absolute, 2 * row + 1, absolute.y);
        }
        add_to(to_conics, 3 * row, by_conic.x);
        add_to(to_conics, 3 * row + 1, by_conic.y);
        add_to(to_conics, 3 * row + 2, by_conic.z);
        if (mine.opacity > 0) add_to(to_opacities, row, moments.one / mine.opacity);
#pragma unroll
        for (int c = 0; c < COLORS; c++) if (from + c < channels) add_to(to_colors, row * channels + from + c, by_color.of[c]);
    }
}

// Which Gaussians a pixel takes, of the turns `first_turn` to `end_turn` - 1 of tile_size^2 of its tile's. Without `ends` they are counted;
// with `ends`, the running sum of the counts, they are written: the number of each in its image, and the pixel's.
extern "C" __global__ void __launch_bounds__(AREA) gsplat_takers(
    In<int> offsets, In<int> gaussians, In<bool> masks, In<Pixel> centers, In<Vector> conics, In<real> opacities, In<real> transmittances,
    In<long long> ends, int pairs, int tile_size, int columns, int rows, int count, int first_turn, int end_turn, int width, int height, Out<int> counts,
    Out<long long> to_gaussians, Out<long long> to_pixels) {
    const int image = blockIdx.z, left_x = blockIdx.x * TILE, top_y = blockIdx.y * TILE;
    const int x = left_x + threadIdx.x % TILE, y = top_y + threadIdx.x / TILE;
    if (x >= width || y >= height) return;
    const Tile tile = tile_of(offsets, masks, image, left_x, top_y, tile_size, columns, rows, pairs);
    const long long pixel = ((long long)image * height + y) * width + x, turn = (long long)tile_size * tile_size;
    const Pixel at = center_of(threadIdx.x);
    real left = transmittances[pixel];
    int taken = 0;
    const long long begin = tile.begin + first_turn * turn, end = min(tile.begin + end_turn * turn, (long long)tile.end);
    const long long place = ends ? ends[pixel] - counts[pixel] : 0;
    for (long long k = begin; k < end; k++) {
        const int which = gaussians[k];
        real dx, dy, uncapped, alpha;
        if (!meets(splat_of(centers, conics, opacities, which), at, dx, dy, uncapped, alpha)) continue;
        left *= 1 - alpha;
        if (left <= STOP) break;
        if (ends) {
            to_gaussians[place + taken] = which % count;
            to_pixels[place + taken] = pixel;
        }
        taken++;
    }
    if (!ends) counts[pixel] = taken;
}
