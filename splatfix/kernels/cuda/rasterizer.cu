// Gaussian splatting, forward and backward: the contract of splatfix/kernels/rasterizer.py (which describes the method and its rules)
// for a GPU in single precision.
//
//   project        a thread a Gaussian: ellipse, color, radius, depth, and how many 16 x 16 tiles it covers
//                  (torch: stable sort by depth; running sum of the tile counts, whose last number is the one the host must read)
//   list_pairs     a thread a Gaussian, a warp for one with many tiles: (tile, Gaussian) in order of depth
//                  (torch: stable sort by tile, 16 bits where they suffice, so depth stays in order and never enters a key)
//   find_ranges    where each tile's pairs begin and end
//   blend          a block a tile, a thread a pixel, front to back
//   blend_backward a block a tile; see there
//   project_backward   a thread a Gaussian: from ellipses and colors to the inputs
//
// Data layout: a Gaussian in the image is one `Splat`, 32 bytes, which is two aligned loads; features (colors, then depth, its inverse
// and 1) are [P, STRIDE]. The conic is kept times -log2(e) / 2 (off the diagonal: -log2(e)), so that alpha
// is opacity exp2f(a dx^2 + b dx dy + c dy^2). Which tiles a Gaussian covers is computed twice, by `project` to count and by
// `list_pairs` to write, from the Splat alone and by the same function: the two always agree.
//
// Numerics: everything is `real`, but the determinant of a conic, where a needle would lose all digits, is a double. The cap of alpha,
// the threshold 1 / 255 and the stop at 1e-4 are decided by the same expression forward and backward, on the same numbers.
#include "common.h"

#ifndef COLORS
#define COLORS 3
#endif
#ifndef EXTRAS
#define EXTRAS 3  // depth, 1 / depth, 1; or 0, where no gradient comes from them
#endif
#define FEATURES (COLORS + EXTRAS)
#define STRIDE (COLORS + 3)  // of `features`, which always hold them
#ifndef KEY
#define KEY int  // a tile's number; short where there are fewer than 32,768
#endif
#ifndef OFFSETS
#define OFFSETS 0  // 1: pixels have offsets from their centers
#endif
#define TILE 16
#define AREA (TILE * TILE)
#define WARP 32
#define BUCKETS (AREA / WARP)
#define MANY_TILES 64  // from here on a warp lists a Gaussian's tiles together

typedef KEY key;

struct alignas(16) Splat {
    real x, y;        // pixels
    real a, b, c;     // conic, scaled as said above
    real opacity;     // compensated
    real z;           // view-space depth
    real radius;      // pixels, a whole number; 0 where culled
};
struct Pixel { real x, y; };
struct Vector { real x, y, z; };
struct alignas(4 * sizeof(real)) Quaternion { real w, x, y, z; };

constexpr real ALPHA_CAP = (real)0.99, ALPHA_MIN = (real)(1.0 / 255.0), STOP = (real)1e-4, NEAR = (real)0.20000000298023224;
constexpr real LOG2E = (real)1.4426950408889634, FRUSTUM = (real)1.3;

__device__ __forceinline__ bool is_finite(real v) { return v - v == 0; }
__device__ __forceinline__ bool is_finite(const Vector& v) { return is_finite(v.x) && is_finite(v.y) && is_finite(v.z); }
__device__ __forceinline__ real dot(const Vector& u, const Vector& v) { return u.x * v.x + u.y * v.y + u.z * v.z; }
__device__ __forceinline__ Vector times(real s, const Vector& v) { return {s * v.x, s * v.y, s * v.z}; }
__device__ __forceinline__ Vector plus(const Vector& u, const Vector& v) { return {u.x + v.x, u.y + v.y, u.z + v.z}; }
__device__ __forceinline__ int clamp(real v, int high) { return v > 0 ? (v < (real)high ? (int)v : high) : 0; }

// ---------------------------------------------------------------------------------------------------------------------------------
// Which tiles a Gaussian covers
// ---------------------------------------------------------------------------------------------------------------------------------

// The ellipse alpha = 1 / 255 of a Splat, within the square of 3 sigma that v1 allows it.
struct Cover {
    int left, right, top, bottom;  // tiles, half open
    bool bounded;                  // false: not an ellipse, all of the square
    real level, half_x, half_y, slope, spread, steep, tilt, slack;
};

__device__ __forceinline__ Cover cover_of(const Splat& s, int width, int height, real slack) {
    const int columns = (width + TILE - 1) / TILE, rows = (height + TILE - 1) / TILE;
    Cover it;
    it.left = clamp((s.x - s.radius) / TILE, columns);
    it.right = clamp((s.x + s.radius + (TILE - 1)) / TILE, columns);
    it.top = clamp((s.y - s.radius) / TILE, rows);
    it.bottom = clamp((s.y + s.radius + (TILE - 1)) / TILE, rows);
    if (s.radius <= 0 || !(s.opacity >= ALPHA_MIN * (real)(1 - 1e-6))) it.right = it.left;
    // d^T [[A, B], [B, C]] d = level, with A = -a, B = -b / 2, C = -c
    const double A = -(double)s.a, B = -0.5 * (double)s.b, C = -(double)s.c, det = A * C - B * B;
    it.level = max(log2((real)255 * s.opacity), (real)0);
    it.bounded = det > 0 && A > 0;
    if (!it.bounded) return it;
    it.half_x = sqrt(it.level * (real)(C / det));
    it.half_y = sqrt(it.level * (real)(A / det));
    it.slope = (real)(-B / A);               // of the line through the middles of the rows
    it.spread = it.level / (real)A;          // squared half width of the row through the center
    it.steep = (real)(det / (A * A));
    it.tilt = (real)(-B / C) * it.half_x;    // where, below the center, the rightmost point is
    it.slack = slack + (real)1e-5 * max(it.half_x, it.half_y);
    const int first = clamp(floor((s.y - it.half_y - it.slack) / TILE), rows), last = clamp(floor((s.y + it.half_y + it.slack) / TILE) + 1, rows);
    it.top = max(it.top, first);
    it.bottom = min(it.bottom, last);
    return it;
}

// The tiles `from` ... `to - 1` of a row of tiles.
__device__ __forceinline__ void tiles_in_row(const Splat& s, const Cover& it, int row, int& from, int& to) {
    from = it.left;
    to = it.right;
    if (!it.bounded) return;
    const real high = (real)(row * TILE) - s.y - it.slack, low = (real)(row * TILE + TILE - 1) - s.y + it.slack;
    const real right_y = min(max(it.tilt, high), low), left_y = min(max(-it.tilt, high), low);
    const real right = it.slope * right_y + sqrt(max(it.spread - it.steep * right_y * right_y, (real)0)) + it.slack;
    const real left = it.slope * left_y - sqrt(max(it.spread - it.steep * left_y * left_y, (real)0)) - it.slack;
    from = max(from, clamp(floor((s.x + left) / TILE), it.right));
    to = min(to, clamp(floor((s.x + right) / TILE) + 1, it.right));
    to = max(from, to);
}

__device__ __forceinline__ int count_tiles(const Splat& s, int width, int height, real slack) {
    const Cover it = cover_of(s, width, height, slack);
    int count = 0;
    for (int row = it.top; row < it.bottom && it.left < it.right; row++) {
        int from, to;
        tiles_in_row(s, it, row, from, to);
        count += to - from;
    }
    return count;
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Projection
// ---------------------------------------------------------------------------------------------------------------------------------

// view and projection [4, 4] for row vectors, then the camera's center: 35 numbers.
struct Camera {
    In<real> numbers;
    __device__ real view(int row, int column) const { return numbers[row * 4 + column]; }
    __device__ real clip(int row, int column) const { return numbers[16 + row * 4 + column]; }
    __device__ Vector axis(int k) const { return {view(0, k), view(1, k), view(2, k)}; }  // of the camera, in the world
    __device__ Vector center() const { return {numbers[32], numbers[33], numbers[34]}; }
};

#define MODE_V1 0
#define MODE_ANTIALIASING 1
#define MODE_KERNEL_SIZE 2

// All between a Gaussian and its ellipse that the way back needs again.
struct Projected {
    Vector t;                   // in view space
    real edge_x, edge_y;        // t.x and t.y, clamped for the Jacobian
    bool free_x, free_y;        // whether they were not
    real clip_x, clip_y, inverse_w;
    Vector m0, m1;              // Jacobian times rotation: world to pixel
    real u[3], v[3];            // the three axes of the Gaussian, in the image (scales and rotations)
    real sharp_a, b, sharp_c, a, c, det, share;  // covariance in the image; share of opacity that compensation leaves
};

struct Axes { real r[3][3]; };

__device__ __forceinline__ Axes axes_of(const Quaternion& q) {
    return {{{1 - 2 * (q.y * q.y + q.z * q.z), 2 * (q.x * q.y - q.w * q.z), 2 * (q.x * q.z + q.w * q.y)},
             {2 * (q.x * q.y + q.w * q.z), 1 - 2 * (q.x * q.x + q.z * q.z), 2 * (q.y * q.z - q.w * q.x)},
             {2 * (q.x * q.z - q.w * q.y), 2 * (q.y * q.z + q.w * q.x), 1 - 2 * (q.x * q.x + q.y * q.y)}}};
}

struct Symmetric { real xx, xy, xz, yy, yz, zz; };

__device__ __forceinline__ Vector times(const Symmetric& s, const Vector& v) {
    return {s.xx * v.x + s.xy * v.y + s.xz * v.z, s.xy * v.x + s.yy * v.y + s.yz * v.z, s.xz * v.x + s.yz * v.y + s.zz * v.z};
}

__device__ __forceinline__ Projected project_one(
    const Camera& camera, const Vector& p, bool from_scales, const Vector& scale, const Quaternion& rotation, const Symmetric& sigma,
    int width, int height, real tan_x, real tan_y, real modifier, real blur, int mode) {
    Projected it;
    it.t = {dot(camera.axis(0), p) + camera.view(3, 0), dot(camera.axis(1), p) + camera.view(3, 1), dot(camera.axis(2), p) + camera.view(3, 2)};
    it.clip_x = p.x * camera.clip(0, 0) + p.y * camera.clip(1, 0) + p.z * camera.clip(2, 0) + camera.clip(3, 0);
    it.clip_y = p.x * camera.clip(0, 1) + p.y * camera.clip(1, 1) + p.z * camera.clip(2, 1) + camera.clip(3, 1);
    it.inverse_w = 1 / (p.x * camera.clip(0, 3) + p.y * camera.clip(1, 3) + p.z * camera.clip(2, 3) + camera.clip(3, 3) + (real)1e-7);
    const real z = it.t.z, limit_x = FRUSTUM * tan_x, limit_y = FRUSTUM * tan_y, ratio_x = it.t.x / z, ratio_y = it.t.y / z;
    it.free_x = ratio_x >= -limit_x && ratio_x <= limit_x;
    it.free_y = ratio_y >= -limit_y && ratio_y <= limit_y;
    it.edge_x = it.free_x ? it.t.x : min(max(ratio_x, -limit_x), limit_x) * z;
    it.edge_y = it.free_y ? it.t.y : min(max(ratio_y, -limit_y), limit_y) * z;
    const real focal_x = width / (2 * tan_x) / z, focal_y = height / (2 * tan_y) / z;
    it.m0 = plus(times(focal_x, camera.axis(0)), times(-focal_x * it.edge_x / z, camera.axis(2)));
    it.m1 = plus(times(focal_y, camera.axis(1)), times(-focal_y * it.edge_y / z, camera.axis(2)));
    if (from_scales) {
        const Axes axes = axes_of(rotation);
        const real length[3] = {modifier * scale.x, modifier * scale.y, modifier * scale.z};
        it.sharp_a = it.b = it.sharp_c = 0;
#pragma unroll
        for (int k = 0; k < 3; k++) {
            const Vector axis = {axes.r[0][k], axes.r[1][k], axes.r[2][k]};
            it.u[k] = length[k] * dot(axis, it.m0);
            it.v[k] = length[k] * dot(axis, it.m1);
            it.sharp_a += it.u[k] * it.u[k];
            it.b += it.u[k] * it.v[k];
            it.sharp_c += it.v[k] * it.v[k];
        }
    } else {
        const Vector seen = times(sigma, it.m0);
        it.sharp_a = dot(seen, it.m0);
        it.b = dot(seen, it.m1);
        it.sharp_c = dot(times(sigma, it.m1), it.m1);
    }
    it.a = it.sharp_a + blur;
    it.c = it.sharp_c + blur;
    it.det = (real)((double)it.a * it.c - (double)it.b * it.b);
    const real sharp = (real)((double)it.sharp_a * it.sharp_c - (double)it.b * it.b);
    it.share = 1;
    if (mode == MODE_ANTIALIASING) it.share = sqrt(max(sharp / it.det, (real)2.5e-5));
    if (mode == MODE_KERNEL_SIZE) it.share = sharp > (real)1e-6 && it.det > (real)1e-6 ? sqrt(sharp / (it.det + (real)1e-6) + (real)1e-6) : (real)0;
    return it;
}

// Real spherical harmonics up to degree 3 in the signs of the 3DGS family, at a unit vector: 16 values.
__device__ __forceinline__ void sh_basis(int degree, const Vector& d, real* out) {
    const real x = d.x, y = d.y, z = d.z, xx = x * x, yy = y * y, zz = z * z;
    out[0] = (real)0.28209479177387814;
    if (degree < 1) return;
    const real one = (real)0.4886025119029199;
    out[1] = -one * y; out[2] = one * z; out[3] = -one * x;
    if (degree < 2) return;
    const real two = (real)1.0925484305920792;
    out[4] = two * x * y; out[5] = -two * y * z; out[6] = (real)0.31539156525252005 * (2 * zz - xx - yy); out[7] = -two * x * z;
    out[8] = (real)0.5462742152960396 * (xx - yy);
    if (degree < 3) return;
    out[9] = (real)-0.5900435899266435 * y * (3 * xx - yy);
    out[10] = (real)2.890611442640554 * x * y * z;
    out[11] = (real)-0.4570457994644658 * y * (4 * zz - xx - yy);
    out[12] = (real)0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy);
    out[13] = (real)-0.4570457994644658 * x * (4 * zz - xx - yy);
    out[14] = (real)1.445305721320277 * z * (xx - yy);
    out[15] = (real)-0.5900435899266435 * x * (xx - 3 * yy);
}

// The gradient with respect to the direction, from the gradient of each basis value (as of free x, y, z).
__device__ __forceinline__ Vector sh_slope(int degree, const Vector& d, const real* g) {
    const real x = d.x, y = d.y, z = d.z, xx = x * x, yy = y * y, zz = z * z;
    Vector out = {0, 0, 0};
    if (degree < 1) return out;
    const real one = (real)0.4886025119029199;
    out = {-one * g[3], -one * g[1], one * g[2]};
    if (degree < 2) return out;
    const real two = (real)1.0925484305920792, c6 = (real)0.31539156525252005, c8 = (real)0.5462742152960396;
    out.x += two * (y * g[4] - z * g[7]) - 2 * c6 * x * g[6] + 2 * c8 * x * g[8];
    out.y += two * (x * g[4] - z * g[5]) - 2 * c6 * y * g[6] - 2 * c8 * y * g[8];
    out.z += two * (-y * g[5] - x * g[7]) + 4 * c6 * z * g[6];
    if (degree < 3) return out;
    const real c9 = (real)-0.5900435899266435, c10 = (real)2.890611442640554, c11 = (real)-0.4570457994644658;
    const real c12 = (real)0.3731763325901154, c14 = (real)1.445305721320277;
    out.x += c9 * 6 * x * y * g[9] + c10 * y * z * g[10] - 2 * c11 * x * y * g[11] - 6 * c12 * x * z * g[12]
             + c11 * (4 * zz - 3 * xx - yy) * g[13] + 2 * c14 * x * z * g[14] + c9 * 3 * (xx - yy) * g[15];
    out.y += c9 * 3 * (xx - yy) * g[9] + c10 * x * z * g[10] + c11 * (4 * zz - xx - 3 * yy) * g[11] - 6 * c12 * y * z * g[12]
             - 2 * c11 * x * y * g[13] - 2 * c14 * y * z * g[14] - c9 * 6 * x * y * g[15];
    out.z += c10 * x * y * g[10] + 8 * c11 * y * z * g[11] + c12 * (6 * zz - 3 * xx - 3 * yy) * g[12] + 8 * c11 * x * z * g[13]
             + c14 * (xx - yy) * g[14];
    return out;
}

struct Shape { Vector scale; Quaternion rotation; Symmetric sigma; };

__device__ __forceinline__ Shape shape_of(int i, In<Vector> scales, In<Quaternion> rotations, In<real> covariances) {
    Shape it = {};
    if (scales) {
        it.scale = scales[i];
        it.rotation = rotations[i];
    } else {
        const long long at = (long long)i * 6;
        it.sigma = {covariances[at], covariances[at + 1], covariances[at + 2], covariances[at + 3], covariances[at + 4], covariances[at + 5]};
    }
    return it;
}

__device__ __forceinline__ bool is_finite(const Shape& it) {
    const real sum = it.rotation.w + it.rotation.x + it.rotation.y + it.rotation.z + it.sigma.xx + it.sigma.xy + it.sigma.xz + it.sigma.yy
                     + it.sigma.yz + it.sigma.zz;
    return is_finite(it.scale) && is_finite(sum);
}

extern "C" __global__ void __launch_bounds__(256) project(
    In<Vector> means, In<real> opacities, In<Vector> scales, In<Quaternion> rotations, In<real> covariances, In<real> shs, In<real> colors,
    In<real> camera_numbers, int count, int width, int height, real tan_x, real tan_y, real modifier, real blur, int mode, int degree, int bands,
    real slack, Out<Splat> splats, Out<real> features, Out<real> depths, Out<int> radii, Out<int> tile_counts) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const Camera camera = {camera_numbers};
    const Vector p = means[i];
    const real opacity = opacities[i];
    const Shape shape = shape_of(i, scales, rotations, covariances);
    const Projected it = project_one(camera, p, (bool)scales, shape.scale, shape.rotation, shape.sigma, width, height, tan_x, tan_y, modifier, blur, mode);

    real color[COLORS];
    real known = 0;  // not finite if a color is not
    if (shs) {
        real basis[16] = {};
        const Vector offset = {p.x - camera.center().x, p.y - camera.center().y, p.z - camera.center().z};
        sh_basis(degree, times(1 / sqrt(dot(offset, offset)), offset), basis);
        const int used = (degree + 1) * (degree + 1);
        for (int c = 0; c < COLORS; c++) {
            real sum = 0;
#pragma unroll  // so that `basis` is registers
            for (int k = 0; k < 16; k++) if (k < used) sum += basis[k] * shs[((long long)i * bands + k) * COLORS + c];
            known += sum;
            color[c] = max(sum + (real)0.5, (real)0);
        }
    } else {
        for (int c = 0; c < COLORS; c++) { color[c] = colors[(long long)i * COLORS + c]; known += color[c]; }
    }

    Splat s;
    s.x = ((it.clip_x * it.inverse_w + 1) * width - 1) * (real)0.5;
    s.y = ((it.clip_y * it.inverse_w + 1) * height - 1) * (real)0.5;
    s.z = it.t.z;
    s.a = (real)-0.5 * LOG2E * it.c / it.det;
    s.b = LOG2E * it.b / it.det;
    s.c = (real)-0.5 * LOG2E * it.a / it.det;
    s.opacity = opacity * it.share;
    const real mid = (real)0.5 * (it.a + it.c);
    s.radius = ceil(3 * sqrt(mid + sqrt(max(mid * mid - it.det, (real)0.1))));
    bool seen = s.z > NEAR && it.det != 0 && is_finite(s.radius) && is_finite(p) && is_finite(opacity) && is_finite(shape) && is_finite(known);
    s.radius = min(s.radius, (real)2147483520.0);
    if (seen) {  // v1's: the square of the radius touches no tile
        const int columns = (width + TILE - 1) / TILE, rows = (height + TILE - 1) / TILE;
        seen = (clamp((s.x + s.radius + (TILE - 1)) / TILE, columns) - clamp((s.x - s.radius) / TILE, columns))
               * (clamp((s.y + s.radius + (TILE - 1)) / TILE, rows) - clamp((s.y - s.radius) / TILE, rows)) > 0;
    }
    if (!seen) s.radius = 0;
    const int tiles = seen ? count_tiles(s, width, height, slack) : 0;
    splats[i] = s;
    for (int c = 0; c < COLORS; c++) features[(long long)i * STRIDE + c] = color[c];
    features[(long long)i * STRIDE + COLORS] = s.z;
    features[(long long)i * STRIDE + COLORS + 1] = 1 / s.z;
    features[(long long)i * STRIDE + COLORS + 2] = 1;
    depths[i] = tiles ? s.z : (real)3.402823466e38f;  // those that are not drawn go last
    radii[i] = (int)s.radius;
    tile_counts[i] = tiles;
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Pairs
// ---------------------------------------------------------------------------------------------------------------------------------

// order: Gaussians by depth; ends: running sum of their tile counts in that order.
extern "C" __global__ void __launch_bounds__(256) list_pairs(
    In<Splat> splats, In<long long> order, In<long long> ends, In<int> tile_counts, int count, int width, int height, real slack,
    Out<key> tiles, Out<int> gaussians) {
    const int rank = blockIdx.x * 256 + threadIdx.x, columns = (width + TILE - 1) / TILE, lane = threadIdx.x % WARP;
    const int mine = rank < count ? (int)order[rank] : 0, many = rank < count ? tile_counts[mine] : 0;
    const long long begin = rank < count ? ends[rank] - many : 0;
    if (many && many < MANY_TILES) {
        const Splat s = splats[mine];
        const Cover it = cover_of(s, width, height, slack);
        long long at = begin;
        for (int row = it.top; row < it.bottom; row++) {
            int from, to;
            tiles_in_row(s, it, row, from, to);
            for (int column = from; column < to; column++, at++) {
                tiles[at] = (key)(row * columns + column);
                gaussians[at] = mine;
            }
        }
    }
    for (unsigned large = __ballot_sync(FULL_WARP, many >= MANY_TILES); large; large &= large - 1) {
        const int from_lane = __ffs((int)large) - 1;
        const int whose = __shfl_sync(FULL_WARP, mine, from_lane);
        long long at = __shfl_sync(FULL_WARP, begin, from_lane);
        const Splat s = splats[whose];
        const Cover it = cover_of(s, width, height, slack);
        for (int row = it.top; row < it.bottom; row++) {
            int from, to;
            tiles_in_row(s, it, row, from, to);
            for (int column = from + lane; column < to; column += WARP) {
                tiles[at + column - from] = (key)(row * columns + column);
                gaussians[at + column - from] = whose;
            }
            at += to - from;
        }
    }
}

// ranges: [tiles, 2], zeros at first.
extern "C" __global__ void __launch_bounds__(256) find_ranges(In<key> tiles, int count, Out<int> ranges) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const int tile = tiles[i];
    if (i == 0 || tiles[i - 1] != tile) ranges[2 * tile] = i;
    if (i == count - 1 || tiles[i + 1] != tile) ranges[2 * tile + 1] = i + 1;
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Blending
// ---------------------------------------------------------------------------------------------------------------------------------

// Alpha at a pixel, and before the cap; false where the Gaussian is skipped. d is Gaussian minus pixel.
__device__ __forceinline__ bool alpha_at(const Splat& s, const Pixel& at, real& dx, real& dy, real& uncapped, real& alpha) {
    dx = s.x - at.x;
    dy = s.y - at.y;
    const real power = s.a * dx * dx + s.c * dy * dy + s.b * dx * dy;
    uncapped = s.opacity * exp2(power);
    alpha = min(uncapped, ALPHA_CAP);
    return power <= 0 && alpha >= ALPHA_MIN;
}

__device__ __forceinline__ Pixel pixel_at(In<real> offsets, int x, int y, int width) {
    Pixel at = {(real)x, (real)y};
    if (OFFSETS) {
        at.x += offsets[2 * ((long long)y * width + x)];
        at.y += offsets[2 * ((long long)y * width + x) + 1];
    }
    return at;
}

struct Color { real of[FEATURES]; };

// image: [COLORS, H, W], the background under it; extras: [EXTRAS, H, W]; lasts: [H, W], one more than the position of the last Gaussian
// that the pixel took.
extern "C" __global__ void __launch_bounds__(AREA) blend(
    In<int> ranges, In<int> gaussians, In<Splat> splats, In<real> features, In<real> background, In<real> offsets, int width, int height,
    Out<real> image, Out<real> extras, Out<int> lasts) {
    SHARED(Splat, near, AREA);
    SHARED(Color, near_color, AREA);
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, begin = ranges[2 * tile], end = ranges[2 * tile + 1];
    const int x = blockIdx.x * TILE + threadIdx.x % TILE, y = blockIdx.y * TILE + threadIdx.x / TILE;
    const bool inside = x < width && y < height;
    const Pixel at = inside ? pixel_at(offsets, x, y, width) : Pixel{0, 0};
    Color sum = {};
    real left = 1;
    int last = 0;
    bool done = !inside;
    for (int first = begin; first < end; first += AREA) {
        if (__syncthreads_count(done) == AREA) break;
        if (first + (int)threadIdx.x < end) {
            const int which = gaussians[first + threadIdx.x];
            near[threadIdx.x] = splats[which];
            Color color;
            for (int f = 0; f < FEATURES; f++) color.of[f] = features[(long long)which * STRIDE + f];
            near_color[threadIdx.x] = color;
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
        }
    }
    if (!inside) return;
    const long long plane = (long long)width * height, pixel = (long long)y * width + x;
    for (int c = 0; c < COLORS; c++) image[c * plane + pixel] = sum.of[c] + left * background[c];
    for (int e = 0; e < EXTRAS; e++) extras[e * plane + pixel] = sum.of[COLORS + e];
    lasts[pixel] = last;
}

// What the way through a pixel carries from Gaussian to Gaussian, front to back.
struct Way {
    real left;  // transmittance in front
    real seen;  // sum so far of weight x (feature . upstream gradient)
};

// Sums for each Gaussian: dL/d of x, y, conic a, b, c (unscaled: power = -(a dx^2 + c dy^2) / 2 - b dx dy), opacity, |dL/dx|, |dL/dy|, features.
#define SUMS (8 + FEATURES)

// A block a tile, in turns of 256 Gaussians, front to back, and two phases a turn. First a thread is a pixel, goes through the 256 as `blend`
// did, and leaves its `Way` in shared memory in front of every 32nd. Then a warp takes 32 Gaussians, a lane each, and the pixels travel
// from lane to lane: lane k works on pixel t - k at step t and hands its Way on. So a lane sums the gradients of its Gaussian over all
// 256 pixels in registers, nothing is reduced across lanes, and global memory gets one atomic addition for a pair and number.
// (Gaussian-parallel backward passes: Taming-3DGS, Mallick et al. 2024, which keeps the ways of a forward pass in global memory instead.)
//
// With S the upstream gradient dotted with the final pixel, and `seen` up to and with Gaussian k,
//     dL/dalpha_k = left_k (feature_k . upstream) - (S - seen_k) / (1 - alpha_k):
// what lies behind k, background and all, is what S has and `seen` has not.
// Shared memory in float: 8 KB of Gaussians, their features 3 KB (6 with extras), 16 KB of ways, pixels 5 KB (8): 32 KB, of which
// sm_75 holds two blocks and sm_86 to sm_121 three; 38 with extras, 2 more with offsets.
extern "C" __global__ void __launch_bounds__(AREA) blend_backward(
    In<int> ranges, In<int> gaussians, In<Splat> splats, In<real> features, In<real> offsets, In<real> image, In<real> extras, In<real> upstream,
    In<real> upstream_extras, In<int> lasts, int width, int height, Out<real> sums) {
    SHARED(Splat, near, AREA);
    SHARED(Color, near_color, AREA);
    SHARED(Way, ways, BUCKETS * AREA);
    SHARED(Color, pixel_upstream, AREA);
#if OFFSETS
    SHARED(Pixel, pixel_place, AREA);
#endif
    SHARED(real, pixel_total, AREA);
    SHARED(int, pixel_last, AREA);
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, begin = ranges[2 * tile], end = ranges[2 * tile + 1];
    const int me = threadIdx.x, x = blockIdx.x * TILE + me % TILE, y = blockIdx.y * TILE + me / TILE;
    const bool inside = x < width && y < height;
    const long long plane = (long long)width * height, pixel = (long long)y * width + x;
    Color gradient = {};
    real total = 0;
    for (int c = 0; c < COLORS && inside; c++) {
        gradient.of[c] = upstream ? upstream[c * plane + pixel] : (real)0;
        total += gradient.of[c] * image[c * plane + pixel];
    }
    for (int e = 0; e < EXTRAS && inside; e++) {
        gradient.of[COLORS + e] = upstream_extras[e * plane + pixel];
        total += gradient.of[COLORS + e] * extras[e * plane + pixel];
    }
    const Pixel at = inside ? pixel_at(offsets, x, y, width) : Pixel{0, 0};
    const int last = inside ? lasts[pixel] : 0;
    pixel_upstream[me] = gradient;
#if OFFSETS
    pixel_place[me] = at;
#endif
    pixel_total[me] = total;
    pixel_last[me] = last;
    Way way = {1, 0};
    for (int first = begin; first < end; first += AREA) {
        // also the barrier between one turn's second phase and the next one's first
        if (!__syncthreads_count(last > first - begin)) break;
        const int which = first + me < end ? gaussians[first + me] : -1;
        Splat mine = {};
        Color color = {};
        if (which >= 0) {
            mine = splats[which];
            for (int f = 0; f < FEATURES; f++) color.of[f] = features[(long long)which * STRIDE + f];
        }
        near[me] = mine;
        near_color[me] = color;
        __syncthreads();

        for (int bucket = 0; bucket < BUCKETS; bucket++) {
            ways[bucket * AREA + me] = way;
            const int until = min((bucket + 1) * WARP, last - (first - begin));
            for (int k = bucket * WARP; k < until; k++) {
                real dx, dy, uncapped, alpha;
                const Splat s = near[k];
                if (!alpha_at(s, at, dx, dy, uncapped, alpha)) continue;
                const Color c = near_color[k];
                real own = 0;
#pragma unroll
                for (int f = 0; f < FEATURES; f++) own += c.of[f] * gradient.of[f];
                way.seen += alpha * way.left * own;
                way.left *= 1 - alpha;
            }
        }
        __syncthreads();

        const int lane = me % WARP, bucket = me / WARP, position = first - begin + me;
        real m0 = 0, mx = 0, my = 0, mxx = 0, mxy = 0, myy = 0, abs_x = 0, abs_y = 0;
        Color by_feature = {};
        Way passing = {0, 0};
        if (first + bucket * WARP < end) {  // the same for all lanes of a warp
            for (int step = 0; step < AREA + WARP - 1; step++) {
                passing.left = __shfl_up_sync(FULL_WARP, passing.left, 1);
                passing.seen = __shfl_up_sync(FULL_WARP, passing.seen, 1);
                const int p = step - lane;
                if (p < 0 || p >= AREA) continue;
                if (lane == 0) passing = ways[bucket * AREA + p];
                if (position >= pixel_last[p]) continue;
#if OFFSETS
                const Pixel place = pixel_place[p];
#else
                const Pixel place = pixel_at(offsets, blockIdx.x * TILE + p % TILE, blockIdx.y * TILE + p / TILE, width);
#endif
                real dx, dy, uncapped, alpha;
                if (!alpha_at(mine, place, dx, dy, uncapped, alpha)) continue;
                const Color g = pixel_upstream[p];
                const real weight = alpha * passing.left;
                real own = 0;
#pragma unroll
                for (int f = 0; f < FEATURES; f++) {
                    own += color.of[f] * g.of[f];
                    by_feature.of[f] += weight * g.of[f];
                }
                passing.seen += weight * own;
                const real by_alpha = passing.left * own - (pixel_total[p] - passing.seen) / (1 - alpha);
                const real e = by_alpha * uncapped;  // dL/d(power): the cap passes the gradient straight through
                passing.left *= 1 - alpha;
                m0 += e;
                mx += e * dx;
                my += e * dy;
                mxx += e * dx * dx;
                mxy += e * dx * dy;
                myy += e * dy * dy;
                abs_x += fabs(e * (2 * mine.a * dx + mine.b * dy));
                abs_y += fabs(e * (2 * mine.c * dy + mine.b * dx));
            }
        }
        if (which < 0) continue;
        const long long row = (long long)which * SUMS;
        const real to_natural = 1 / LOG2E;
        add_to(sums, row, (2 * mine.a * mx + mine.b * my) * to_natural);
        add_to(sums, row + 1, (2 * mine.c * my + mine.b * mx) * to_natural);
        add_to(sums, row + 2, (real)-0.5 * mxx);
        add_to(sums, row + 3, -mxy);
        add_to(sums, row + 4, (real)-0.5 * myy);
        add_to(sums, row + 5, m0 / mine.opacity);
        add_to(sums, row + 6, abs_x * to_natural);
        add_to(sums, row + 7, abs_y * to_natural);
        for (int f = 0; f < FEATURES; f++) add_to(sums, row + 8 + f, by_feature.of[f]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------------------
// The projection backwards
// ---------------------------------------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(256) project_backward(
    In<Vector> means, In<real> opacities, In<Vector> scales, In<Quaternion> rotations, In<real> covariances, In<real> shs, In<real> camera_numbers,
    In<int> radii, In<real> sums, int count, int width, int height, real tan_x, real tan_y, real modifier, real blur, int mode, int degree,
    int bands, Out<Vector> to_means, Out<real> to_opacities, Out<Vector> to_scales, Out<Quaternion> to_rotations, Out<real> to_covariances,
    Out<real> to_shs, Out<real> to_colors) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count || radii[i] <= 0) return;  // the results are zero before
    const Camera camera = {camera_numbers};
    const Vector p = means[i];
    const Shape shape = shape_of(i, scales, rotations, covariances);
    const Projected it = project_one(camera, p, (bool)scales, shape.scale, shape.rotation, shape.sigma, width, height, tan_x, tan_y, modifier, blur, mode);
    const long long row = (long long)i * SUMS;
    const real by_x = sums[row], by_y = sums[row + 1], by_share = sums[row + 5];

    // conic = inverse of [[a, b], [b, c]], damped as in v1
    const real A = sums[row + 2], B = sums[row + 3], C = sums[row + 4], scaled = 1 / (it.det * it.det + (real)1e-7);
    real by_a = scaled * (-it.c * it.c * A + it.b * it.c * B - it.b * it.b * C);
    real by_c = scaled * (-it.b * it.b * A + it.a * it.b * B - it.a * it.a * C);
    real by_b = scaled * (2 * it.b * it.c * A - (it.det + 2 * it.b * it.b) * B + 2 * it.a * it.b * C);

    // opacity and its compensation
    to_opacities[i] = by_share * it.share;
    if (mode != MODE_V1) {
        const real sharp = (real)((double)it.sharp_a * it.sharp_c - (double)it.b * it.b), by = by_share * opacities[i];
        real by_sharp = 0, by_det = 0;
        if (mode == MODE_ANTIALIASING && sharp / it.det >= (real)2.5e-5) {
            by_sharp = by * (real)0.5 / it.share / it.det;
            by_det = -by_sharp * sharp / it.det;
        }
        if (mode == MODE_KERNEL_SIZE && it.share > 0) {
            by_sharp = by * (real)0.5 / it.share / (it.det + (real)1e-6);
            by_det = -by_sharp * sharp / (it.det + (real)1e-6);
        }
        by_a += by_det * it.c + by_sharp * it.sharp_c;
        by_c += by_det * it.a + by_sharp * it.sharp_a;
        by_b -= 2 * it.b * (by_det + by_sharp);
    }

    // covariance in the image: to the shape, and to the two rows that project it
    Vector by_m0 = {0, 0, 0}, by_m1 = {0, 0, 0};
    if (scales) {
        const Axes axes = axes_of(shape.rotation);
        const real length[3] = {modifier * shape.scale.x, modifier * shape.scale.y, modifier * shape.scale.z};
        real by_scale[3], g[3][3];
#pragma unroll
        for (int k = 0; k < 3; k++) {
            const Vector axis = {axes.r[0][k], axes.r[1][k], axes.r[2][k]};
            const real by_u = 2 * by_a * it.u[k] + by_b * it.v[k], by_v = by_b * it.u[k] + 2 * by_c * it.v[k];
            const Vector by_axis = plus(times(by_u, it.m0), times(by_v, it.m1));  // of axis times length
            by_scale[k] = modifier * dot(axis, by_axis);
            g[0][k] = length[k] * by_axis.x;
            g[1][k] = length[k] * by_axis.y;
            g[2][k] = length[k] * by_axis.z;
            by_m0 = plus(by_m0, times(by_u * length[k], axis));
            by_m1 = plus(by_m1, times(by_v * length[k], axis));
        }
        to_scales[i] = {by_scale[0], by_scale[1], by_scale[2]};
        const Quaternion q = shape.rotation;
        to_rotations[i] = {
            2 * (q.z * (g[1][0] - g[0][1]) + q.y * (g[0][2] - g[2][0]) + q.x * (g[2][1] - g[1][2])),
            2 * (q.y * (g[0][1] + g[1][0]) + q.z * (g[0][2] + g[2][0]) + q.w * (g[2][1] - g[1][2]) - 2 * q.x * (g[1][1] + g[2][2])),
            2 * (q.x * (g[0][1] + g[1][0]) + q.w * (g[0][2] - g[2][0]) + q.z * (g[1][2] + g[2][1]) - 2 * q.y * (g[0][0] + g[2][2])),
            2 * (q.w * (g[1][0] - g[0][1]) + q.x * (g[0][2] + g[2][0]) + q.y * (g[1][2] + g[2][1]) - 2 * q.z * (g[0][0] + g[1][1]))};
    } else {
        const Vector s0 = times(shape.sigma, it.m0), s1 = times(shape.sigma, it.m1);
        by_m0 = plus(times(2 * by_a, s0), times(by_b, s1));
        by_m1 = plus(times(by_b, s0), times(2 * by_c, s1));
        const Vector m = it.m0, n = it.m1;
        const long long at = (long long)i * 6;
        to_covariances[at] = by_a * m.x * m.x + by_b * m.x * n.x + by_c * n.x * n.x;
        to_covariances[at + 1] = 2 * by_a * m.x * m.y + by_b * (m.x * n.y + m.y * n.x) + 2 * by_c * n.x * n.y;
        to_covariances[at + 2] = 2 * by_a * m.x * m.z + by_b * (m.x * n.z + m.z * n.x) + 2 * by_c * n.x * n.z;
        to_covariances[at + 3] = by_a * m.y * m.y + by_b * m.y * n.y + by_c * n.y * n.y;
        to_covariances[at + 4] = 2 * by_a * m.y * m.z + by_b * (m.y * n.z + m.z * n.y) + 2 * by_c * n.y * n.z;
        to_covariances[at + 5] = by_a * m.z * m.z + by_b * m.z * n.z + by_c * n.z * n.z;
    }

    // the rows are focal / z times an axis, less focal edge / z^2 times the forward axis
    const real z = it.t.z, focal_x = width / (2 * tan_x), focal_y = height / (2 * tan_y);
    const real along_x = dot(by_m0, camera.axis(0)), ahead_x = dot(by_m0, camera.axis(2));
    const real along_y = dot(by_m1, camera.axis(1)), ahead_y = dot(by_m1, camera.axis(2));
    Vector by_t;
    by_t.x = it.free_x ? -focal_x / (z * z) * ahead_x : (real)0;
    by_t.y = it.free_y ? -focal_y / (z * z) * ahead_y : (real)0;
    by_t.z = (-focal_x * along_x - focal_y * along_y + 2 / z * (focal_x * it.edge_x * ahead_x + focal_y * it.edge_y * ahead_y)) / (z * z);
#if EXTRAS
    by_t.z += sums[row + 8 + COLORS] - sums[row + 8 + COLORS + 1] / (z * z);
#endif
    Vector by_mean = plus(plus(times(by_t.x, camera.axis(0)), times(by_t.y, camera.axis(1))), times(by_t.z, camera.axis(2)));

    // the center: half the image times clip / w
    const real by_clip_x = by_x * (real)0.5 * width * it.inverse_w, by_clip_y = by_y * (real)0.5 * height * it.inverse_w;
    const real by_w = -(by_clip_x * it.clip_x + by_clip_y * it.clip_y) * it.inverse_w;
    by_mean.x += camera.clip(0, 0) * by_clip_x + camera.clip(0, 1) * by_clip_y + camera.clip(0, 3) * by_w;
    by_mean.y += camera.clip(1, 0) * by_clip_x + camera.clip(1, 1) * by_clip_y + camera.clip(1, 3) * by_w;
    by_mean.z += camera.clip(2, 0) * by_clip_x + camera.clip(2, 1) * by_clip_y + camera.clip(2, 3) * by_w;

    if (shs) {
        real basis[16] = {}, by_basis[16] = {};
        const Vector offset = {p.x - camera.center().x, p.y - camera.center().y, p.z - camera.center().z};
        const real inverse = 1 / sqrt(dot(offset, offset));
        const Vector direction = times(inverse, offset);
        sh_basis(degree, direction, basis);
        const int used = (degree + 1) * (degree + 1);
        for (int c = 0; c < COLORS; c++) {
            real value = 0;
#pragma unroll  // so that both arrays are registers
            for (int k = 0; k < 16; k++) if (k < used) value += basis[k] * shs[((long long)i * bands + k) * COLORS + c];
            const real by_color = value + (real)0.5 >= 0 ? sums[row + 8 + c] : (real)0;
#pragma unroll
            for (int k = 0; k < 16; k++) {
                if (k >= used) continue;
                by_basis[k] += by_color * shs[((long long)i * bands + k) * COLORS + c];
                to_shs[((long long)i * bands + k) * COLORS + c] = by_color * basis[k];
            }
        }
        const Vector by_direction = sh_slope(degree, direction, by_basis);
        by_mean = plus(by_mean, times(inverse, plus(by_direction, times(-dot(direction, by_direction), direction))));
    } else {
        for (int c = 0; c < COLORS; c++) to_colors[(long long)i * COLORS + c] = sums[row + 8 + c];
    }
    to_means[i] = by_mean;
}
