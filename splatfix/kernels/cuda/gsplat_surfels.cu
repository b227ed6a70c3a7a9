// 2DGS by gsplat's rules, in the scheme of surfels.cu: projection in double; a surfel in the image is a `Surfel`, of which a pixel computes its
// meeting; the gradients of p0, px, py, summed over pixels, come back to the transform in double. What differs: centers of pixels at one half, no
// gradient beyond the cap of alpha, no near plane for rays; depth is the last channel of the colors. As there, distortion counts depths from that
// of the surfel in the middle of a tile's list.
#include "gsplat.h"
#include "travel.h"

#ifndef COLORS
#define COLORS 3  // channels of a launch
#endif
#ifndef PART
#define PART 0  // as in gsplat_pixels.cu; normals, distortion, median depth and alpha come with the first launch
#endif
#ifndef ABSOLUTE
#define ABSOLUTE 0
#endif
#define FEATURES (COLORS + 3)

typedef View<Triple, double> Camera2;
struct Radii { int x, y; };

// ---------------------------------------------------------------------------------------------------------------------------------
// Projection
// ---------------------------------------------------------------------------------------------------------------------------------

// A disc in view space, and its map into the image: rows u, v, w.
struct Disc { Triple first, second, center, normal, u, v, w; };

__device__ __forceinline__ Triple rotated(const Camera2& view, const Triple& v) { return {dot(view.axes[0], v), dot(view.axes[1], v), dot(view.axes[2], v)}; }

__device__ __forceinline__ Disc disc_of(const Camera2& view, const Turn& turn, double side_x, double side_y, const Triple& mean) {
    Disc it;
    it.first = times(side_x, rotated(view, turn.axes[0]));
    it.second = times(side_y, rotated(view, turn.axes[1]));
    it.center = seen_from(view, mean);
    it.normal = rotated(view, turn.axes[2]);
    if (!(dot(it.normal, it.center) < 0)) it.normal = times(-1, it.normal);
    it.w = {it.first.z, it.second.z, it.center.z};
    it.u = plus(times(view.fx, Triple{it.first.x, it.second.x, it.center.x}), times(view.cx, it.w));
    it.v = plus(times(view.fy, Triple{it.first.y, it.second.y, it.center.y}), times(view.cy, it.w));
    return it;
}

extern "C" __global__ void __launch_bounds__(128, 6) gsplat_project_surfels(
    In<Vector> means, In<Quaternion> rotations, In<Vector> scales, In<real> viewmats, In<real> intrinsics, int entries, int count, int cameras,
    int width, int height, real near, real far, real smallest, int isotropic, Out<Radii> radii, Out<Pixel> centers, Out<real> depths,
    Out<real> transforms, Out<real> normals) {
    const int entry = blockIdx.x * 128 + threadIdx.x;
    if (entry >= entries) return;
    const int image = entry / count, i = image / cameras * count + entry % count;
    const Vector mean = means[i], scale = scales[i];
    const Disc it = disc_of(view_of<Triple, double>(viewmats, intrinsics, image), turn_of(rotations[i]), scale.x, scale.y, {mean.x, mean.y, mean.z});
    const Bounds bounds = bounds_of(it.u, it.v, it.w, 1);
    const double sigmas = isotropic ? 3 : 3.33;
    double radius_x = ceil(sigmas * sqrt(max(bounds.squared_x, 1e-4))), radius_y = ceil(sigmas * sqrt(max(bounds.squared_y, 1e-4)));
    if (isotropic) radius_x = radius_y = max(radius_x, radius_y);
    const bool seen = it.center.z > near && it.center.z < far && bounds.denominator != 0 && !(radius_x <= smallest && radius_y <= smallest)
                      && bounds.x + radius_x > 0 && bounds.x - radius_x < width && bounds.y + radius_y > 0 && bounds.y - radius_y < height
                      && is_number(radius_x + radius_y + dot(it.u, it.u) + dot(it.v, it.v));
    const Triple none = {0, 0, 0};
    const long long at = (long long)entry * 9;
    radii[entry] = seen ? Radii{(int)min(radius_x, 2147483520.0), (int)min(radius_y, 2147483520.0)} : Radii{0, 0};
    centers[entry] = seen ? Pixel{(real)bounds.x, (real)bounds.y} : Pixel{0, 0};
    depths[entry] = seen ? (real)it.center.z : (real)0;
    put_three(transforms, at, rounded(seen ? it.u : none));
    put_three(transforms, at + 3, rounded(seen ? it.v : none));
    put_three(transforms, at + 6, rounded(seen ? it.w : none));
    put_three(normals, (long long)entry * 3, rounded(seen ? it.normal : none));
}

// A thread a Gaussian of a batch, through all its cameras.
extern "C" __global__ void __launch_bounds__(128) gsplat_project_surfels_backward(
    In<Vector> means, In<Quaternion> rotations, In<Vector> scales, In<real> viewmats, In<real> intrinsics, In<Radii> radii, In<Pixel> by_centers,
    In<real> by_depths, In<real> by_transforms, In<real> by_normals, int rows, int count, int cameras, Out<Vector> to_means,
    Out<Quaternion> to_rotations, Out<Vector> to_scales, Out<real> to_viewmats) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    const bool mine = i < rows;
    bool anywhere = false;  // what is seen nowhere may be no number
    for (int camera = 0; mine && camera < cameras; camera++) anywhere |= radii[(i / count * cameras + camera) * count + i % count].x > 0;
    const Vector mean = anywhere ? (Vector)means[i] : Vector{0, 0, 1}, scale = anywhere ? (Vector)scales[i] : Vector{1, 1, 1};
    const Turn turn = turn_of(anywhere ? (Quaternion)rotations[i] : Quaternion{1, 0, 0, 0});
    const Triple center = {mean.x, mean.y, mean.z};
    const Triple sides[3] = {times(scale.x, turn.axes[0]), times(scale.y, turn.axes[1]), turn.axes[2]};
    Triple by_mean = {0, 0, 0}, by_sides[3] = {};  // of the world's
    for (int camera = 0; camera < cameras; camera++) {
        const int image = mine ? i / count * cameras + camera : 0, entry = image * count + i % count;
        const bool seen = mine && radii[entry].x > 0 && radii[entry].y > 0;
        Triple by_axes[3] = {}, by_shift = {0, 0, 0};
        if (seen) {
            const Camera2 view = view_of<Triple, double>(viewmats, intrinsics, image);
            const Disc it = disc_of(view, turn, scale.x, scale.y, center);
            Triple by_u = three_of(by_transforms, (long long)entry * 9), by_v = three_of(by_transforms, (long long)entry * 9 + 3);
            Triple by_w = three_of(by_transforms, (long long)entry * 9 + 6);
            // the center: x = sum of weights u w, weights = (1, 1, -1) / denominator
            const Bounds bounds = bounds_of(it.u, it.v, it.w, 1);
            const Pixel by = by_centers[entry];
            const Triple& weights = bounds.weights;
            const Triple f = {weights.x * it.w.x, weights.y * it.w.y, weights.z * it.w.z};
            const Triple of_x = {weights.x * it.u.x, weights.y * it.u.y, weights.z * it.u.z};
            const Triple of_y = {weights.x * it.v.x, weights.y * it.v.y, weights.z * it.v.z};
            by_u = plus(by_u, times(by.x, f));
            by_v = plus(by_v, times(by.y, f));
            by_w = plus(by_w, plus(times(by.x, plus(of_x, times(-2 * bounds.x, f))), times(by.y, plus(of_y, times(-2 * bounds.y, f)))));
            by_w.z += by_depths[entry];
            // the map: rows of the intrinsics times (first, second, center)
            by_w = plus(by_w, plus(times(view.cx, by_u), times(view.cy, by_v)));
            by_u = times(view.fx, by_u);
            by_v = times(view.fy, by_v);
            const double sign = dot(it.normal, rotated(view, turn.axes[2])) > 0 ? 1 : -1;
            const Triple by_view[3] = {{by_u.x, by_v.x, by_w.x}, {by_u.y, by_v.y, by_w.y}, times(sign, three_of(by_normals, (long long)entry * 3))};
            by_shift = {by_u.z, by_v.z, by_w.z};
            for (int k = 0; k < 3; k++) {
                by_sides[k] = plus(by_sides[k], to_world(view, by_view[k]));
                by_axes[0] = plus(by_axes[0], times(by_view[k].x, sides[k]));
                by_axes[1] = plus(by_axes[1], times(by_view[k].y, sides[k]));
                by_axes[2] = plus(by_axes[2], times(by_view[k].z, sides[k]));
            }
            by_mean = plus(by_mean, to_world(view, by_shift));
            by_axes[0] = plus(by_axes[0], times(by_shift.x, center));
            by_axes[1] = plus(by_axes[1], times(by_shift.y, center));
            by_axes[2] = plus(by_axes[2], times(by_shift.z, center));
        }
        if (to_viewmats) add_to_view(to_viewmats, image, seen, by_axes, by_shift);
    }
    if (!mine) return;
    to_means[i] = {(real)by_mean.x, (real)by_mean.y, (real)by_mean.z};
    to_scales[i] = {(real)dot(by_sides[0], turn.axes[0]), (real)dot(by_sides[1], turn.axes[1]), 0};
    to_rotations[i] = turned_back(turn, times(scale.x, rounded(by_sides[0])), times(scale.y, rounded(by_sides[1])), rounded(by_sides[2]));
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Blending
// ---------------------------------------------------------------------------------------------------------------------------------

// Of one of gsplat's surfels in the image. Centers of pixels are at one half: the place of pixel (0, 0) is (0, 0) here.
__device__ __forceinline__ Meeting meeting_at(In<Pixel> centers, In<real> transforms, int i, int width, int height) {
    const long long at = (long long)i * 9;
    const Triple w = three_of(transforms, at + 6);
    const Triple u = plus(three_of(transforms, at), times(-0.5, w)), v = plus(three_of(transforms, at + 3), times(-0.5, w));
    const Pixel center = centers[i];
    const bool placed = is_finite(center.x + center.y);
    return meeting_of(u, v, w, placed ? center.x - 0.5 : 0.0, placed ? center.y - 0.5 : 0.0, width, height);
}

extern "C" __global__ void __launch_bounds__(256) gsplat_surfels(
    In<Pixel> centers, In<real> transforms, In<real> opacities, In<real> colors, int count, int channels, int width, int height,
    Out<Surfel> surfels) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const Meeting meeting = meeting_at(centers, transforms, i, width, height);
    Surfel s = {};
    put(s.p0, meeting.unit, meeting.at_anchor);
    put(s.px, meeting.unit, meeting.slope_x);
    put(s.py, meeting.unit, meeting.slope_y);
    s.center_x = (real)((double)centers[i].x - 0.5 - meeting.anchor_x);
    s.center_y = (real)((double)centers[i].y - 0.5 - meeting.anchor_y);
    s.anchor_x = (real)meeting.anchor_x;
    s.anchor_y = (real)meeting.anchor_y;
    s.opacity = opacities[i];
    s.depth = channels ? colors[(long long)i * channels + channels - 1] : (real)0;
    surfels[i] = s;
}

__device__ __forceinline__ bool meet(const Surfel& s, int x, int y, Met& it) { return meet_plane(s, x, y, 0, it) && cover(s, CAP, it); }

struct Features { real of[FEATURES]; };

__device__ __forceinline__ Features features_of(In<real> colors, In<real> normals, int which, int channels, int from) {
    Features it;
#pragma unroll
    for (int c = 0; c < COLORS; c++) it.of[c] = from + c < channels ? colors[(long long)which * channels + from + c] : (real)0;
    for (int k = 0; k < 3; k++) it.of[COLORS + k] = from == 0 ? normals[(long long)which * 3 + k] : (real)0;
    return it;
}

__device__ __forceinline__ real middle_of(In<Surfel> surfels, In<int> gaussians, const Tile& tile) {
    return tile.begin < tile.end ? surfels[gaussians[tile.begin + (tile.end - tile.begin) / 2]].depth : (real)0;
}

extern "C" __global__ void __launch_bounds__(AREA) gsplat_blend_surfels(
    In<int> offsets, In<int> gaussians, In<bool> masks, In<Surfel> surfels, In<real> colors, In<real> normals, In<real> backgrounds, int pairs,
    int tile_size, int columns, int rows, int channels, int from, int width, int height, Out<real> images, Out<double> alphas, Out<real> to_normals,
    Out<real> to_distortion, Out<real> to_median, Out<int> lasts, Out<int> medians) {
    SHARED(Surfel, near, AREA);
    SHARED(Features, near_features, AREA);
    if (!PART) { channels = COLORS; from = 0; }
    const int image = blockIdx.z, left_x = blockIdx.x * TILE, top_y = blockIdx.y * TILE;
    const int x = left_x + threadIdx.x % TILE, y = top_y + threadIdx.x / TILE;
    const Tile tile = tile_of(offsets, masks, image, left_x, top_y, tile_size, columns, rows, pairs);
    const bool inside = x < width && y < height;
    const real middle = middle_of(surfels, gaussians, tile);
    Features sum = {};
    real left = 1, depth = 0, median = 0, distortion = 0;
    int last = 0, median_at = 0;
    bool done = !inside || tile.masked;
    for (int first = tile.begin; first < tile.end; first += AREA) {
        if (__syncthreads_count(done) == AREA) break;
        if (first + (int)threadIdx.x < tile.end) {
            const int which = gaussians[first + threadIdx.x];
            near[threadIdx.x] = surfels[which];
            near_features[threadIdx.x] = features_of(colors, normals, which, channels, from);
        }
        __syncthreads();
        const int here = min(AREA, tile.end - first);
        for (int k = 0; k < here && !done; k++) {
            Met it;
            const Surfel s = near[k];
            if (!meet(s, x, y, it)) continue;
            const real after = left * (1 - it.alpha);
            if (after <= STOP) { done = true; break; }
            const Features own = near_features[k];
            const real weight = it.alpha * left, d = s.depth - middle;
#pragma unroll
            for (int f = 0; f < FEATURES; f++) sum.of[f] += own.of[f] * weight;
            last = first + k;
            if (left > (real)0.5) { median = s.depth; median_at = last; }
            distortion += 2 * weight * (d * (1 - left) - depth);
            depth += weight * d;
            left = after;
        }
    }
    if (!inside) return;
    const long long pixel = ((long long)image * height + y) * width + x;
#pragma unroll
    for (int c = 0; c < COLORS; c++)
        if (from + c < channels) images[pixel * channels + from + c] = sum.of[c] + (backgrounds ? left * backgrounds[(long long)image * channels + from + c] : (real)0);
    if (from) return;
    alphas[pixel] = 1 - (double)left;
    for (int k = 0; k < 3; k++) to_normals[3 * pixel + k] = sum.of[COLORS + k];
    to_distortion[pixel] = distortion;
    to_median[pixel] = median;
    lasts[pixel] = last;
    medians[pixel] = median_at;
}

// The loss as a function of one surfel's weight w and depth d (less the middle's) at a pixel: its slope in w is
//     gradient . features + 2 by_distortion (2 (d (1 - left) - ahead) + whole - d alpha),
// and in d it is 2 by_distortion w (2 (1 - left) + w - alpha), with `ahead` and `whole` the sums of weight d in front and over all.
struct Pull {
    real gradient[FEATURES];
    real by_distortion, by_median, whole, alpha;
    int last;
};

__device__ __forceinline__ real slope_of(const Pull& g, const Features& own, real d, real left, real ahead) {
    real slope = 2 * g.by_distortion * (2 * (d * (1 - left) - ahead) + g.whole - d * g.alpha);
#pragma unroll
    for (int f = 0; f < FEATURES; f++) slope += g.gradient[f] * own.of[f];
    return slope;
}

struct Way {
    real left, behind;  // as in gsplat_pixels.cu
    real ahead;         // the sum of weight d over those in front
    __device__ __forceinline__ Way handed_on() const {
        return {from_lane_before<true>(left), from_lane_before<true>(behind), from_lane_before<true>(ahead)};
    }
};

// Sums for each surfel: dL/d of p0, px, py (3 each), of the center (2), their absolute values (2), of opacity, of the normal (3), and of the depth
// beside its color; to_colors: [P, channels].
#define SUMS 18

extern "C" __global__ void __launch_bounds__(AREA) gsplat_blend_surfels_backward(
    In<int> offsets, In<int> gaussians, In<bool> masks, In<Surfel> surfels, In<real> colors, In<real> normals, In<real> backgrounds,
    In<real> images, In<double> alphas, In<int> lasts, In<int> medians, In<real> upstream, In<real> upstream_alphas, In<real> upstream_normals,
    In<real> upstream_distortion, In<real> upstream_median, int pairs, int tile_size, int columns, int rows, int channels, int from, int width,
    int height, Out<real> sums, Out<real> to_colors) {
    SHARED(Surfel, near, 2 * WARP);
    SHARED(Features, near_features, 2 * WARP);
    SHARED(Way, ways, BUCKETS * AREA);
    SHARED(Pull, pulls, PADDED);
    if (!PART) { channels = COLORS; from = 0; }
    const int image = blockIdx.z, left_x = blockIdx.x * TILE, top_y = blockIdx.y * TILE, me = threadIdx.x;
    const int x = left_x + me % TILE, y = top_y + me / TILE, lane = me % WARP, own_bucket = own_warp();
    const Tile tile = tile_of(offsets, masks, image, left_x, top_y, tile_size, columns, rows, pairs);
    if (tile.masked) return;  // all of the block
    const bool inside = x < width && y < height;
    const long long pixel = ((long long)image * height + y) * width + x;
    const real middle = middle_of(surfels, gaussians, tile);
    const int last = inside ? (int)lasts[pixel] : -1;
    Pull pull = {};
    Way way = {1, 0, 0};
    if (inside) {
        const long long background = (long long)image * channels;
        way.left = (real)(1 - alphas[pixel]);
        real by_left = 0;
#pragma unroll
        for (int c = 0; c < COLORS; c++) {
            if (from + c >= channels) continue;
            pull.gradient[c] = upstream[pixel * channels + from + c];
            if (backgrounds) by_left += pull.gradient[c] * backgrounds[background + from + c];
        }
        if (from == 0) {
            by_left -= upstream_alphas[pixel];
            for (int k = 0; k < 3; k++) pull.gradient[COLORS + k] = upstream_normals[3 * pixel + k];
            pull.by_distortion = upstream_distortion[pixel];
            pull.by_median = upstream_median[pixel];
            pull.alpha = (real)alphas[pixel];
            const real beyond = backgrounds ? way.left * backgrounds[background + channels - 1] : (real)0;
            way.ahead = pull.whole = images[pixel * channels + channels - 1] - beyond - middle * pull.alpha;
        }
        way.behind = by_left * way.left;
    }
    const int median_at = inside && from == 0 ? (int)medians[pixel] : -1;
    pull.last = last;
    pulls[WARP + me] = pull;
    Pull nobodys = {};
    nobodys.last = -1;
    for (int k = me; k < 2 * WARP; k += AREA) pulls[k < WARP ? k : AREA + k] = nobodys;
    for (int first = tile.begin + (tile.end - 1 - tile.begin) / AREA * AREA; first >= tile.begin; first -= AREA) {
        // also the barrier between one turn's second phase and the next one's first
        if (!__syncthreads_count(last >= first)) continue;
        const int which = first + me < tile.end ? gaussians[first + me] : -1;
        Surfel mine = {};
        Features own = {};
        if (which >= 0) {
            mine = surfels[which];
            own = features_of(colors, normals, which, channels, from);
        }
        for (int bucket = min(BUCKETS, (tile.end - first + WARP - 1) / WARP) - 1; bucket >= 0; bucket--) {
            const int place = bucket % 2 * WARP;
            if (own_bucket == bucket) {
                near[place + lane] = mine;
                near_features[place + lane] = own;
            }
            __syncthreads();
            ways[bucket * AREA + me] = way;
            for (int k = min(WARP, last - first - bucket * WARP + 1) - 1; k >= 0; k--) {
                Met it;
                const Surfel s = near[place + k];
                if (!meet(s, x, y, it)) continue;
                const Features theirs = near_features[place + k];
                const real d = s.depth - middle;
                way.left *= reciprocal(1 - it.alpha);
                const real weight = it.alpha * way.left;
                way.ahead -= weight * d;
                way.behind += weight * slope_of(pull, theirs, d, way.left, way.ahead);
                if (first + bucket * WARP + k == median_at) add_to(sums, (long long)gaussians[median_at] * SUMS + 17, pull.by_median);
            }
        }
        __syncthreads();

        real by_p0[3] = {}, by_px[3] = {}, by_py[3] = {}, by_features[FEATURES] = {};
        real by_center_x = 0, by_center_y = 0, abs_x = 0, abs_y = 0, by_opacity = 0, by_depth = 0;
        Way passing = {1, 0, 0};
        auto work = [&](int p) {
            const Pull g = pulls[WARP + p];
            Met it;
            if (first + me > g.last || !meet(mine, left_x + column_of(p), top_y + row_of(p), it)) return;
            const real inverse = reciprocal(1 - it.alpha), d = mine.depth - middle;
            passing.left *= inverse;
            const real weight = it.alpha * passing.left;
            passing.ahead -= weight * d;
            const real slope = slope_of(g, own, d, passing.left, passing.ahead);
            real e = (passing.left * slope - passing.behind * inverse) * it.uncapped;
            passing.behind += weight * slope;
            if (it.uncapped > CAP) e = 0;
            const real by_rho = (real)-0.5 * e;
            by_depth += 2 * g.by_distortion * weight * (2 * (1 - passing.left) + weight - g.alpha);
            by_opacity += e;
#pragma unroll
            for (int f = 0; f < FEATURES; f++) by_features[f] += weight * g.gradient[f];
            if (it.disc) {
                const real scaled = 2 * by_rho * it.inverse * it.inverse;
                const real by_p[3] = {scaled * it.x, scaled * it.y, -2 * by_rho * it.rho * it.inverse};
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    by_p0[k] += by_p[k];
                    by_px[k] += by_p[k] * it.dx;
                    by_py[k] += by_p[k] * it.dy;
                }
            } else {
                const real to_x = 4 * by_rho * it.away_x, to_y = 4 * by_rho * it.away_y;
                by_center_x += to_x;
                by_center_y += to_y;
                if (ABSOLUTE) {
                    abs_x += fabs(to_x);
                    abs_y += fabs(to_y);
                }
            }
        };
        if (first + own_bucket * WARP < tile.end) travel<true>(ways, own_bucket * AREA, passing, work);  // the same for all lanes of a warp
        if (which < 0) continue;
        const long long row = (long long)which * SUMS;
        for (int k = 0; k < 3; k++) {
            add_to(sums, row + k, by_p0[k]);
            add_to(sums, row + 3 + k, by_px[k]);
            add_to(sums, row + 6 + k, by_py[k]);
            if (from == 0) add_to(sums, row + 14 + k, by_features[COLORS + k]);
        }
        add_to(sums, row + 9, by_center_x);
        add_to(sums, row + 10, by_center_y);
        if (ABSOLUTE) {
            add_to(sums, row + 11, abs_x);
            add_to(sums, row + 12, abs_y);
        }
        if (mine.opacity > 0) add_to(sums, row + 13, by_opacity / mine.opacity);
        add_to(sums, row + 17, by_depth);
#pragma unroll
        for (int c = 0; c < COLORS; c++) if (from + c < channels) add_to(to_colors, (long long)which * channels + from + c, by_features[c]);
    }
}

// From the sums to the transforms: at_anchor = u x v, slope_x = v x w, slope_y = w x u, in which u and v are counted from the anchor.
extern "C" __global__ void __launch_bounds__(128) gsplat_surfels_backward(
    In<Pixel> centers, In<real> transforms, In<real> sums, int count, int channels, int width, int height, Out<Pixel> to_centers,
    Out<real> to_transforms, Out<real> to_opacities, Out<real> to_normals, Out<real> to_colors, Out<Pixel> to_absolute, Out<Pixel> to_densify) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= count) return;
    const long long row = (long long)i * SUMS, at = (long long)i * 9;
    const Meeting meeting = meeting_at(centers, transforms, i, width, height);
    const Vector u = rounded(meeting.u), v = rounded(meeting.v), w = vector_of(transforms, at + 6);
    const Vector by_cross = times(meeting.unit, vector_of(sums, row)), by_slope_x = times(meeting.unit, vector_of(sums, row + 3));
    const Vector by_slope_y = times(meeting.unit, vector_of(sums, row + 6));
    // of a x b: b x gradient, gradient x a
    const Vector by_u = plus(cross(v, by_cross), cross(by_slope_y, w)), by_v = plus(cross(by_cross, u), cross(w, by_slope_x));
    const Vector from_anchor = plus(cross(by_slope_x, v), cross(u, by_slope_y));
    put_three(to_transforms, at, by_u);
    put_three(to_transforms, at + 3, by_v);
    put_three(to_transforms, at + 6, plus(from_anchor, plus(times(-(real)(meeting.anchor_x + 0.5), by_u), times(-(real)(meeting.anchor_y + 0.5), by_v))));
    to_centers[i] = {sums[row + 9], sums[row + 10]};
    if (to_absolute) to_absolute[i] = {sums[row + 11], sums[row + 12]};
    to_opacities[i] = sums[row + 13];
    put_three(to_normals, (long long)i * 3, vector_of(sums, row + 14));
    to_colors[(long long)i * channels + channels - 1] = to_colors[(long long)i * channels + channels - 1] + sums[row + 17];
    to_densify[i] = {by_u.z * w.z, by_v.z * w.z};
}
