// Gaussian splatting, forward and backward, for a GPU in single precision: the contract of splatfix/kernels/rasterizer.py, which
// describes the method and its rules. Three files of kernels, in this order:
//
//   projection.cu  project: a thread a Gaussian: ellipse, color, radius, depth, and how many 16 x 16 tiles it covers
//                  (torch: stable sort by depth; running sum of the tile counts, whose last number is the one the host must read)
//   binning.cu     list_pairs: a thread a Gaussian, a warp for one with many tiles: (tile, Gaussian) in order of depth
//                  (torch: stable sort by tile, 16 bits where they suffice, so depth stays in order and never enters a key)
//                  find_ranges: where each tile's pairs begin and end
//   blending.cu    blend: a block a tile, a thread a pixel, front to back
//                  blend_backward: a block a tile; see there
//   contributions.cu   contribute: a block a tile; where each Gaussian is blended, for those who ask
//   projection.cu  project_backward: a thread a Gaussian: from ellipses and colors to the inputs
//
// Data layout: a Gaussian in the image is one `Splat`, 32 bytes, which is two aligned loads; features are [P, channels + 3]: colors, then
// depth, its inverse and 1. The conic is kept times -log2(e) / 2 (off the diagonal: -log2(e)), so that alpha
// is opacity 2^(a dx^2 + b dx dy + c dy^2).
//
// Numerics: everything is `real`, but the determinant of a conic, where a needle would lose all digits, is a double. The cap of alpha,
// the threshold 1 / 255 and the stop at 1e-4 are decided by the same expression forward and backward, on the same numbers.
#pragma once
#include "common.h"

#ifndef TILE
#define TILE 16
#endif
#define AREA (TILE * TILE)
#define WARP 32

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

// Row i of an array of rows: a result that nothing has been added to.
__device__ __forceinline__ void put_nothing(const Out<real>& to, int i, int columns) {
    for (int k = 0; k < columns; k++) to[(long long)i * columns + k] = 0;
}

// view and projection [4, 4] for row vectors, then the camera's center: 35 numbers.
struct Camera {
    In<real> numbers;
    __device__ real view(int row, int column) const { return numbers[row * 4 + column]; }
    __device__ real clip(int row, int column) const { return numbers[16 + row * 4 + column]; }
    __device__ Vector axis(int k) const { return {view(0, k), view(1, k), view(2, k)}; }  // of the camera, in the world
    __device__ Vector center() const { return {numbers[32], numbers[33], numbers[34]}; }
};

// A Splat with its tile's corner as the origin, as all that blend hold it: pixels of a tile are small whole numbers then.
__device__ __forceinline__ Splat in_tile(Splat s) {
    s.x -= (real)(blockIdx.x * TILE);
    s.y -= (real)(blockIdx.y * TILE);
    return s;
}

// Alpha at a pixel, and before the cap; false where the Gaussian is skipped. d is Gaussian minus pixel.
__device__ __forceinline__ bool alpha_at(
    const Splat& s, const Pixel& at, real& dx, real& dy, real& uncapped, real& alpha, real cap = ALPHA_CAP) {
    dx = s.x - at.x;
    dy = s.y - at.y;
    const real power = dx * (s.a * dx + s.b * dy) + s.c * dy * dy;
    uncapped = s.opacity * power_of_two(power);
    alpha = min(uncapped, cap);
    return power <= 0 && alpha >= ALPHA_MIN;
}
