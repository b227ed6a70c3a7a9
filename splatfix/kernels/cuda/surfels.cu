// Surfels (2D Gaussian Splatting), forward and backward, for a GPU in single precision: the contract of splatfix/kernels/surfels.py, whose
// names are used here. The steps are those of Gaussians (gaussians.h), and so are binning.cu and the harmonics' way back:
//
//   project_surfels           a thread a surfel: its map into the image, normal, color, radius, depth, rectangle of tiles
//   blend_surfels             a block a tile, a thread a pixel, front to back
//   blend_surfels_backward    a block a tile; the scheme of blend_backward (blending.cu)
//   project_surfels_backward  a thread a surfel
//
// Data layout: a surfel in the image is one `Surfel`, 64 bytes. p, which a ray's meeting with the disc is computed from, is linear in the
// pixel: p = p0 + dx px + dy py, with dx and dy from the surfel's anchor, which is the pixel of the image nearest to its center; all
// ten numbers are divided by about the largest, to which the meeting is indifferent. Features are [P, channels + 3], the last three the normal.
//
// Numerics: a surfel's map into the image and its box are in double. A box is a difference of squares of pixel positions, which single
// precision would leave no digit of. What is cut from it, the rectangle of tiles, is in `real` with a margin. The way back and a pixel count
// from the anchor, in `real`: near the center, where p is small, nothing cancels. The distortion's m is taken less that of a depth in the
// middle of the tile's list, because only differences of m count.
#include "discs.h"
#include "harmonics.h"
#include "travel.h"

#ifndef COLORS
#define COLORS 3
#endif
#define FEATURES (COLORS + 3)

struct alignas(16) Box { int left, right, top, bottom; };  // tiles, half open

constexpr real FAR = (real)100, DEPTH_SCALE = FAR / (FAR - NEAR) * NEAR;  // m = FAR / (FAR - NEAR) - DEPTH_SCALE / depth
constexpr real SMALLEST = sizeof(real) == 4 ? (real)1e-12 : (real)1e-60;   // p.z below which a pixel's ray lies in the plane
constexpr double LEVEL = 9, LOW_PASS = 0.707106;                           // 3 sigma, squared; pixels

// ---------------------------------------------------------------------------------------------------------------------------------
// Projection
// ---------------------------------------------------------------------------------------------------------------------------------

constexpr real WIDER = (real)1.000001;  // than what rounds

__device__ __forceinline__ int to_tile(double v, int high) { return v > 0 ? (v < high ? (int)v : high) : 0; }

// World to (x w, y w, w) of pixels: the rows of a [4, 3] matrix.
__device__ __forceinline__ Triple to_pixel(const Camera& camera, int row, int width, int height) {
    const double w = camera.clip(row, 3);
    return {0.5 * width * camera.clip(row, 0) + 0.5 * (width - 1) * w, 0.5 * height * camera.clip(row, 1) + 0.5 * (height - 1) * w, w};
}

__device__ __forceinline__ Triple mapped(const Camera& camera, const Triple& v, int width, int height) {
    return plus(plus(times(v.x, to_pixel(camera, 0, width, height)), times(v.y, to_pixel(camera, 1, width, height))),
                times(v.z, to_pixel(camera, 2, width, height)));
}

// The way back through `mapped`, by the matrix' rows.
__device__ __forceinline__ Vector unmapped(const Vector (&rows)[3], const Vector& g) { return {dot(g, rows[0]), dot(g, rows[1]), dot(g, rows[2])}; }

// All between a surfel and its map that the way back needs again. The map's columns are u, v, w: (x w, y w, w) = (u . s, v . s, w . s).
struct Disc {
    Turn turn;          // in the world
    double sides[2];    // scales times modifier
    Triple u_map, v_map, w_map, seen, normal;
    double facing;
    bool turned;        // the normal is turned towards the camera
};

__device__ __forceinline__ Disc disc_of(
    int i, const Camera& camera, In<Vector> means, In<Pixel> scales, In<Quaternion> rotations, In<real> transforms, int width, int height,
    real modifier) {
    Disc it = {};
    const Vector mean = means[i];
    const Triple center = {mean.x, mean.y, mean.z};
    it.seen = {center.x * camera.view(0, 0) + center.y * camera.view(1, 0) + center.z * camera.view(2, 0) + camera.view(3, 0),
               center.x * camera.view(0, 1) + center.y * camera.view(1, 1) + center.z * camera.view(2, 1) + camera.view(3, 1),
               center.x * camera.view(0, 2) + center.y * camera.view(1, 2) + center.z * camera.view(2, 2) + camera.view(3, 2)};
    if (transforms) {
        const long long at = (long long)i * 9;
        it.u_map = three_of(transforms, at);
        it.v_map = three_of(transforms, at + 3);
        it.w_map = three_of(transforms, at + 6);
        it.normal = {0, 0, 1};
    } else {
        const Pixel scale = scales[i];
        it.turn = turn_of(rotations[i]);
        it.sides[0] = (double)modifier * scale.x;
        it.sides[1] = (double)modifier * scale.y;
        const Triple first = mapped(camera, times(it.sides[0], it.turn.axes[0]), width, height);
        const Triple second = mapped(camera, times(it.sides[1], it.turn.axes[1]), width, height);
        const Triple third = plus(mapped(camera, center, width, height), to_pixel(camera, 3, width, height));
        it.u_map = {first.x, second.x, third.x};
        it.v_map = {first.y, second.y, third.y};
        it.w_map = {first.z, second.z, third.z};
        const Triple& n = it.turn.axes[2];
        it.normal = {n.x * camera.view(0, 0) + n.y * camera.view(1, 0) + n.z * camera.view(2, 0),
                     n.x * camera.view(0, 1) + n.y * camera.view(1, 1) + n.z * camera.view(2, 1),
                     n.x * camera.view(0, 2) + n.y * camera.view(1, 2) + n.z * camera.view(2, 2)};
    }
    it.facing = -dot(it.seen, it.normal);
    it.turned = !(it.facing > 0);
    if (it.turned) it.normal = times(-1, it.normal);
    return it;
}

extern "C" __global__ void __launch_bounds__(128) project_surfels(
    In<Vector> means, In<real> opacities, In<Pixel> scales, In<Quaternion> rotations, In<real> transforms, In<real> shs, In<real> colors,
    In<real> camera_numbers, int count, int width, int height, real modifier, int degree, int bands, int channels, Out<Surfel> surfels,
    Out<real> features, Out<real> depths, Out<int> radii, Out<Box> boxes, Out<int> tile_counts) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= count) return;
    const Camera camera = {camera_numbers};
    const real opacity = opacities[i];
    const Disc disc = disc_of(i, camera, means, scales, rotations, transforms, width, height, modifier);
    const long long row = (long long)i * (channels + 3);
    const real known = write_colors(i, means[i], camera, shs, colors, degree, bands, channels, features, row);
    features[row + channels] = (real)disc.normal.x;
    features[row + channels + 1] = (real)disc.normal.y;
    features[row + channels + 2] = (real)disc.normal.z;

    const Bounds bounds = bounds_of(disc.u_map, disc.v_map, disc.w_map, LEVEL);
    const double radius = ceil(max(sqrt(max(max(bounds.squared_x, bounds.squared_y), 1e-4)), 3 * LOW_PASS));
    const int columns = (width + TILE - 1) / TILE, rows = (height + TILE - 1) / TILE;
    Box box = {to_tile((bounds.x - radius) / TILE, columns), to_tile((bounds.x + radius + (TILE - 1)) / TILE, columns),
               to_tile((bounds.y - radius) / TILE, rows), to_tile((bounds.y + radius + (TILE - 1)) / TILE, rows)};
    const real z = (real)disc.seen.z;
    const real inputs = (real)(disc.seen.x + disc.seen.y) + opacity + known + (real)disc.facing + sum(disc.u_map) + sum(disc.v_map) + sum(disc.w_map);
    const bool seen = z > NEAR && disc.facing != 0 && bounds.denominator != 0 && is_number(bounds.x + bounds.y + radius) && is_finite(inputs)
                      && box.right > box.left && box.bottom > box.top;

    // where alpha can reach 1 / 255: the disc's ellipse at that level, or a little above, and the low-pass around the center
    const real level = max(2 * log((real)255 * opacity), (real)0) + (real)1e-5, low_pass = sqrt((real)0.5 * level);
    const Bounds tight = bounds_of(disc.u_map, disc.v_map, disc.w_map, level);
    if (tight.denominator < 0 && is_number(tight.squared_x + tight.squared_y)) {
        // of half sides a little too much is right as well, and so is single precision for an edge, once its two parts are subtracted
        const real half_x = WIDER * sqrt((real)max(tight.squared_x, 0.0)), half_y = WIDER * sqrt((real)max(tight.squared_y, 0.0));
        const real from_x = (real)min(bounds.x - low_pass, tight.x - half_x), to_x = (real)max(bounds.x + low_pass, tight.x + half_x);
        const real from_y = (real)min(bounds.y - low_pass, tight.y - half_y), to_y = (real)max(bounds.y + low_pass, tight.y + half_y);
        box.left = max(box.left, clamp((from_x - (real)0.01) / TILE, columns));
        box.right = min(box.right, clamp((to_x + (real)0.01) / TILE + 1, columns));
        box.top = max(box.top, clamp((from_y - (real)0.01) / TILE, rows));
        box.bottom = min(box.bottom, clamp((to_y + (real)0.01) / TILE + 1, rows));
    }
    const bool drawn = seen && opacity >= ALPHA_MIN * (real)(1 - 1e-6) && box.right > box.left && box.bottom > box.top;

    const Meeting meeting = meeting_of(disc.u_map, disc.v_map, disc.w_map, bounds.x, bounds.y, width, height);
    Surfel s = {};
    put(s.p0, meeting.unit, meeting.at_anchor);
    put(s.px, meeting.unit, meeting.slope_x);
    put(s.py, meeting.unit, meeting.slope_y);
    s.det = meeting.unit * (real)dot(meeting.at_anchor, disc.w_map);
    s.inverse_det = 1 / s.det;
    s.center_x = (real)(bounds.x - meeting.anchor_x);
    s.center_y = (real)(bounds.y - meeting.anchor_y);
    s.anchor_x = (real)meeting.anchor_x;
    s.anchor_y = (real)meeting.anchor_y;
    s.opacity = opacity;
    surfels[i] = s;
    boxes[i] = box;
    depths[i] = drawn ? z : (real)3.402823466e38f;  // those that are not drawn go last
    radii[i] = seen ? (int)min(radius, 2147483520.0) : 0;
    tile_counts[i] = drawn ? (box.right - box.left) * (box.bottom - box.top) : 0;
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Blending
// ---------------------------------------------------------------------------------------------------------------------------------

// False where the surfel is not drawn. 1 / depth = p.z / det, which loses less than a division after another.
__device__ __forceinline__ bool meet(const Surfel& s, int x, int y, Met& it, real& depth, real& inverse_depth) {
    if (!meet_plane(s, x, y, SMALLEST, it)) return false;
    depth = s.det * it.inverse;
    inverse_depth = it.z * s.inverse_det;
    return depth >= NEAR && is_finite(depth) && cover(s, ALPHA_CAP, it);
}

struct Features { real of[FEATURES]; };

__device__ __forceinline__ Features features_of(In<real> features, int which) {
    Features it;
    for (int f = 0; f < FEATURES; f++) it.of[f] = features[(long long)which * FEATURES + f];
    return it;
}

// 1 / depth from which a tile counts m: of the surfel in the middle of its list.
__device__ __forceinline__ real middle_of(In<real> depths, In<int> gaussians, int begin, int end) {
    return begin < end ? 1 / max(depths[gaussians[begin + (end - begin) / 2]], NEAR) : (real)0;
}

// image: [COLORS, H, W], the background under it; maps: [7, H, W]: depth, alpha, normal, median depth, distortion; moments: [2, H, W], sums of
// weight m and weight m^2; lasts, medians: [H, W], one more than the position of the last surfel taken, and of the one of the median depth.
extern "C" __global__ void __launch_bounds__(AREA, 4) blend_surfels(
    In<int> ranges, In<int> gaussians, In<Surfel> surfels, In<real> features, In<real> depths, In<real> background, int width, int height,
    Out<real> image, Out<real> maps, Out<real> moments, Out<int> lasts, Out<int> medians) {
    SHARED(Surfel, near, AREA);
    SHARED(Features, near_features, AREA);
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, begin = ranges[2 * tile], end = ranges[2 * tile + 1];
    const int x = blockIdx.x * TILE + threadIdx.x % TILE, y = blockIdx.y * TILE + threadIdx.x / TILE;
    const bool inside = x < width && y < height;
    const real middle = middle_of(depths, gaussians, begin, end);
    Features sum = {};
    real left = 1, depth = 0, median = 0, distortion = 0, first_moment = 0, second_moment = 0;
    int last = 0, median_at = 0;
    bool done = !inside;
    for (int first = begin; first < end; first += AREA) {
        if (__syncthreads_count(done) == AREA) break;
        if (first + (int)threadIdx.x < end) {
            const int which = gaussians[first + threadIdx.x];
            near[threadIdx.x] = surfels[which];
            near_features[threadIdx.x] = features_of(features, which);
        }
        __syncthreads();
        const int here = min(AREA, end - first);
        for (int k = 0; k < here && !done; k++) {
            Met it;
            real own_depth, inverse_depth;
            const Surfel s = near[k];
            if (!meet(s, x, y, it, own_depth, inverse_depth)) continue;
            const real after = left * (1 - it.alpha);
            if (after < STOP) { done = true; break; }
            const Features own = near_features[k];
            const real weight = it.alpha * left, m = DEPTH_SCALE * (middle - inverse_depth);
#pragma unroll
            for (int f = 0; f < FEATURES; f++) sum.of[f] += own.of[f] * weight;
            last = first - begin + k + 1;
            if (left > (real)0.5) { median = own_depth; median_at = last; }
            depth += weight * own_depth;
            distortion += weight * (m * m * (1 - left) + second_moment - 2 * m * first_moment);
            first_moment += weight * m;
            second_moment += weight * m * m;
            left = after;
        }
    }
    if (!inside) return;
    const long long plane = (long long)width * height, pixel = (long long)y * width + x;
    for (int c = 0; c < COLORS; c++) image[c * plane + pixel] = sum.of[c] + left * background[c];
    maps[pixel] = depth;
    maps[plane + pixel] = 1 - left;
    for (int k = 0; k < 3; k++) maps[(2 + k) * plane + pixel] = sum.of[COLORS + k];
    maps[5 * plane + pixel] = median;
    maps[6 * plane + pixel] = distortion;
    moments[pixel] = first_moment;
    moments[plane + pixel] = second_moment;
    lasts[pixel] = last;
    medians[pixel] = median_at;
}

// The loss as a function of one surfel's weight w and depth at a pixel: its slope in w is
//     gradient . features + by_depth depth + m0 + m1 m + m2 m^2,
// the last three being alpha's, the background's and the distortion's part, of which the slope in m is w (m1 + 2 m2 m).
struct Pull {
    real gradient[FEATURES];
    real by_depth, by_median, m0, m1, m2;
    int last, median;  // one more than the positions
};

__device__ __forceinline__ real slope_of(const Pull& g, const Features& own, real depth, real m) {
    real slope = g.by_depth * depth + g.m0 + m * (g.m1 + m * g.m2);
#pragma unroll
    for (int f = 0; f < FEATURES; f++) slope += g.gradient[f] * own.of[f];
    return slope;
}

struct Way {
    real left, ahead;  // as in blending.cu
    __device__ __forceinline__ Way handed_on() const { return {from_lane_before<false>(left), from_lane_before<false>(ahead)}; }
};

// Sums for each surfel: dL/d of p0, px, py (3 each) and det as they are in a Surfel, where the disc decides; of the center (2) and of w_map (3)
// where the low-pass does; of opacity; of the normal (3); of the colors.
#define SUMS 19

// The scheme of blend_backward (blending.cu). Shared memory in float, for 3 colors: 16 KB of ways, 13 KB of pixels, 5.5 KB of surfels.
// 103 to 120 registers: two blocks of a multiprocessor (one on sm_75). Three would spill 220 to 390 bytes of a thread's.
extern "C" __global__ void __launch_bounds__(AREA) blend_surfels_backward(
    In<int> ranges, In<int> gaussians, In<Surfel> surfels, In<real> features, In<real> depths, In<real> background, In<real> image, In<real> maps,
    In<real> moments, In<real> upstream, In<real> upstream_maps, In<int> lasts, In<int> medians, int width, int height, Out<real> sums) {
    SHARED(Surfel, near, 2 * WARP);
    SHARED(Features, near_features, 2 * WARP);
    SHARED(Way, ways, BUCKETS * AREA);
    SHARED(Pull, pulls, PADDED);
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, begin = ranges[2 * tile], end = ranges[2 * tile + 1];
    const int me = threadIdx.x, x = blockIdx.x * TILE + me % TILE, y = blockIdx.y * TILE + me / TILE;
    const int lane = me % WARP, own_bucket = own_warp();
    const bool inside = x < width && y < height;
    const long long plane = (long long)width * height, pixel = (long long)y * width + x;
    const real middle = middle_of(depths, gaussians, begin, end);
    const int last = inside ? lasts[pixel] : 0;
    Pull pull = {};
    Way way = {1, 0};
    if (last > 0) {  // what comes back for a pixel that met nothing is not read
        for (int c = 0; c < COLORS && upstream; c++) {
            pull.gradient[c] = upstream[c * plane + pixel];
            pull.m0 -= pull.gradient[c] * background[c];
            way.ahead -= pull.gradient[c] * (image[c * plane + pixel] - background[c]);
        }
        if (upstream_maps) {
            const real alpha = maps[plane + pixel], by_alpha = upstream_maps[plane + pixel], by_distortion = upstream_maps[6 * plane + pixel];
            pull.by_depth = upstream_maps[pixel];
            pull.by_median = upstream_maps[5 * plane + pixel];
            pull.m0 += by_alpha + by_distortion * moments[plane + pixel];
            pull.m1 = -2 * by_distortion * moments[pixel];
            pull.m2 = by_distortion * alpha;
            // the sum of weight x slope; of the distortion it is twice the distortion
            way.ahead -= pull.by_depth * maps[pixel] + by_alpha * alpha + 2 * by_distortion * maps[6 * plane + pixel];
            for (int k = 0; k < 3; k++) {
                pull.gradient[COLORS + k] = upstream_maps[(2 + k) * plane + pixel];
                way.ahead -= pull.gradient[COLORS + k] * maps[(2 + k) * plane + pixel];
            }
        }
    }
    pull.last = last;
    pull.median = inside ? medians[pixel] : 0;
    pulls[WARP + me] = pull;
    if (me < 2 * WARP) pulls[me < WARP ? me : AREA + me] = Pull{};
    for (int first = begin; first < end; first += AREA) {
        // also the barrier between one turn's second phase and the next one's first
        if (!__syncthreads_count(last > first - begin)) break;
        const int which = first + me < end ? gaussians[first + me] : -1;
        Surfel mine = {};
        Features own = {};
        if (which >= 0) {
            mine = surfels[which];
            own = features_of(features, which);
        }
        for (int bucket = 0; bucket < BUCKETS && first + bucket * WARP < end; bucket++) {
            const int place = bucket % 2 * WARP;
            if (own_bucket == bucket) {
                near[place + lane] = mine;
                near_features[place + lane] = own;
            }
            __syncthreads();
            ways[bucket * AREA + me] = way;
            const int until = min(WARP, last - (first - begin) - bucket * WARP);
            for (int k = 0; k < until; k++) {
                Met it;
                real depth, inverse_depth;
                const Surfel s = near[place + k];
                if (!meet(s, x, y, it, depth, inverse_depth)) continue;
                const Features theirs = near_features[place + k];
                way.ahead += it.alpha * way.left * slope_of(pull, theirs, depth, DEPTH_SCALE * (middle - inverse_depth));
                way.left *= 1 - it.alpha;
            }
        }
        __syncthreads();

        const int position = first - begin + me;
        real by_p0[3] = {}, by_px[3] = {}, by_py[3] = {}, by_features[FEATURES] = {};
        real by_det = 0, by_center_x = 0, by_center_y = 0, by_w_x = 0, by_w_y = 0, by_w_z = 0, by_opacity = 0;
        Way passing = {0, 0};
        auto work = [&](int p) {
            const Pull g = pulls[WARP + p];
            Met it;
            real depth, inverse_depth;
            const int x = blockIdx.x * TILE + column_of(p), y = blockIdx.y * TILE + row_of(p);
            if (position >= g.last || !meet(mine, x, y, it, depth, inverse_depth)) return;
            const real weight = it.alpha * passing.left, m = DEPTH_SCALE * (middle - inverse_depth), slope = slope_of(g, own, depth, m);
            passing.ahead += weight * slope;
            const real e = (passing.left * slope + passing.ahead * reciprocal(1 - it.alpha)) * it.uncapped;  // the cap passes the gradient through
            passing.left *= 1 - it.alpha;
            const real by_rho = (real)-0.5 * e;
            real by_depth = weight * (g.by_depth + (g.m1 + 2 * g.m2 * m) * DEPTH_SCALE * (inverse_depth * inverse_depth));
            if (position + 1 == g.median) by_depth += g.by_median;
            by_opacity += e;
#pragma unroll
            for (int f = 0; f < FEATURES; f++) by_features[f] += weight * g.gradient[f];
            if (it.disc) {
                const real scaled = 2 * by_rho * it.inverse * it.inverse;
                const real by_p[3] = {scaled * it.x, scaled * it.y, -(2 * by_rho * it.rho + by_depth * depth) * it.inverse};
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    by_p0[k] += by_p[k];
                    by_px[k] += by_p[k] * it.dx;
                    by_py[k] += by_p[k] * it.dy;
                }
                by_det += by_depth * it.inverse;
            } else {  // the ray's place on the disc is a constant
                by_center_x += 4 * by_rho * it.away_x;
                by_center_y += 4 * by_rho * it.away_y;
                by_w_x += by_depth * it.x * it.inverse;
                by_w_y += by_depth * it.y * it.inverse;
                by_w_z += by_depth;
            }
        };
        if (first + own_bucket * WARP < end) travel<false>(ways, own_bucket * AREA, passing, work);  // the same for all lanes of a warp
        if (which < 0) continue;
        const long long row = (long long)which * (SUMS + COLORS);
        for (int k = 0; k < 3; k++) {
            add_to(sums, row + k, by_p0[k]);
            add_to(sums, row + 3 + k, by_px[k]);
            add_to(sums, row + 6 + k, by_py[k]);
            add_to(sums, row + 16 + k, by_features[COLORS + k]);
        }
        add_to(sums, row + 9, by_det);
        add_to(sums, row + 10, by_center_x);
        add_to(sums, row + 11, by_center_y);
        add_to(sums, row + 12, by_w_x);
        add_to(sums, row + 13, by_w_y);
        add_to(sums, row + 14, by_w_z);
        add_to(sums, row + 15, by_opacity / mine.opacity);
        for (int c = 0; c < COLORS; c++) add_to(sums, row + SUMS + c, by_features[c]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------------------
// The projection backwards
// ---------------------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void put_statistic(const Out<real>& to, int i, int columns, real x, real y) {
    if (!to) return;
    put_nothing(to, i, columns);
    to[(long long)i * columns] = x;
    to[(long long)i * columns + 1] = y;
}

// to_statistic: [P, columns], 2 at least: the gradient of the center.
extern "C" __global__ void __launch_bounds__(128) project_surfels_backward(
    In<Vector> means, In<Pixel> scales, In<Quaternion> rotations, In<real> transforms, In<real> camera_numbers, In<int> radii, In<real> sums,
    int count, int width, int height, real modifier, int channels, int columns, Out<Vector> to_means, Out<real> to_statistic,
    Out<real> to_opacities, Out<Pixel> to_scales, Out<Quaternion> to_rotations, Out<real> to_transforms, Out<real> to_colors) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= count) return;
    if (radii[i] <= 0) {
        put_statistic(to_statistic, i, columns, 0, 0);
        to_means[i] = {0, 0, 0};
        to_opacities[i] = 0;
        if (transforms) {
            put_nothing(to_transforms, i, 9);
        } else {
            to_scales[i] = Pixel{0, 0};
            to_rotations[i] = {0, 0, 0, 0};
        }
        if (to_colors) put_nothing(to_colors, i, channels);
        return;
    }
    const Camera camera = {camera_numbers};
    const Disc disc = disc_of(i, camera, means, scales, rotations, transforms, width, height, modifier);
    const Bounds bounds = bounds_of(disc.u_map, disc.v_map, disc.w_map, LEVEL);
    const Meeting meeting = meeting_of(disc.u_map, disc.v_map, disc.w_map, bounds.x, bounds.y, width, height);
    const long long row = (long long)i * (SUMS + channels);
    to_opacities[i] = sums[row + 15];
    if (to_colors) for (int c = 0; c < channels; c++) to_colors[(long long)i * channels + c] = sums[row + SUMS + c];

    // with the anchor as the origin: at_anchor = u x v, slope_x = v x w, slope_y = w x u; of a x b: b x gradient, gradient x a
    const Vector u = rounded(meeting.u), v = rounded(meeting.v), w = rounded(disc.w_map);
    const Vector by_slope_x = times(meeting.unit, vector_of(sums, row + 3)), by_slope_y = times(meeting.unit, vector_of(sums, row + 6));
    const real by_det = meeting.unit * sums[row + 9];
    const Vector by_cross = plus(times(meeting.unit, vector_of(sums, row)), times(by_det, w));
    Vector by_u = plus(cross(v, by_cross), cross(by_slope_y, w));
    Vector by_v = plus(cross(by_cross, u), cross(w, by_slope_x));
    Vector by_w = plus(plus(cross(by_slope_x, v), cross(u, by_slope_y)), plus(times(by_det, rounded(meeting.at_anchor)), vector_of(sums, row + 12)));
    if (!transforms) put_statistic(to_statistic, i, columns, by_u.z * w.z * (real)0.5 * width, by_v.z * w.z * (real)0.5 * height);
    // the center: x = sum of weights u w, weights = (level, level, -1) / denominator
    const real by_x = sums[row + 10], by_y = sums[row + 11], x = (real)(bounds.x - meeting.anchor_x), y = (real)(bounds.y - meeting.anchor_y);
    const Vector weights = rounded(bounds.weights), f = product(weights, w);
    by_u = plus(by_u, times(by_x, f));
    by_v = plus(by_v, times(by_y, f));
    by_w = plus(by_w, plus(product(weights, plus(times(by_x, u), times(by_y, v))), times(-2 * (by_x * x + by_y * y), f)));
    if (transforms) {
        put_statistic(to_statistic, i, columns, by_u.z * w.z * (real)0.5 * width, by_v.z * w.z * (real)0.5 * height);
        by_w = plus(by_w, plus(times(-(real)meeting.anchor_x, by_u), times(-(real)meeting.anchor_y, by_v)));
        put_three(to_transforms, (long long)i * 9, by_u);
        put_three(to_transforms, (long long)i * 9 + 3, by_v);
        put_three(to_transforms, (long long)i * 9 + 6, by_w);
        to_means[i] = {0, 0, 0};
        return;
    }

    Vector rows[3];  // of the camera's matrix, to pixels from the anchor
    for (int k = 0; k < 3; k++) {
        const Triple clip = to_pixel(camera, k, width, height);
        rows[k] = {(real)(clip.x - meeting.anchor_x * clip.z), (real)(clip.y - meeting.anchor_y * clip.z), (real)clip.z};
    }
    to_means[i] = unmapped(rows, {by_u.z, by_v.z, by_w.z});
    const Vector by_first = unmapped(rows, {by_u.x, by_v.x, by_w.x}), by_second = unmapped(rows, {by_u.y, by_v.y, by_w.y});
    to_scales[i] = {modifier * dot(by_first, rounded(disc.turn.axes[0])), modifier * dot(by_second, rounded(disc.turn.axes[1]))};
    const real sign = disc.turned ? -1 : 1, n0 = sign * sums[row + 16], n1 = sign * sums[row + 17], n2 = sign * sums[row + 18];
    const Vector by_normal = {n0 * camera.view(0, 0) + n1 * camera.view(0, 1) + n2 * camera.view(0, 2),
                              n0 * camera.view(1, 0) + n1 * camera.view(1, 1) + n2 * camera.view(1, 2),
                              n0 * camera.view(2, 0) + n1 * camera.view(2, 1) + n2 * camera.view(2, 2)};
    to_rotations[i] = turned_back(disc.turn, times((real)disc.sides[0], by_first), times((real)disc.sides[1], by_second), by_normal);
}
