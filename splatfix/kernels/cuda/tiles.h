// Which tiles a Gaussian covers, from its Splat alone: computed twice, by `project` to count and by `list_pairs` to write. PTX leaves it to the
// compiler of each kernel whether a product and a sum become one operation, so here every one is a `number`'s, which rounds by itself.
#pragma once
#include "gaussians.h"

__device__ __forceinline__ float rounded_sum(float u, float v) { return __fadd_rn(u, v); }
__device__ __forceinline__ double rounded_sum(double u, double v) { return __dadd_rn(u, v); }
__device__ __forceinline__ float rounded_product(float u, float v) { return __fmul_rn(u, v); }
__device__ __forceinline__ double rounded_product(double u, double v) { return __dmul_rn(u, v); }

template <class T> struct Rounded {
    T value;
    Rounded() = default;
    __device__ __forceinline__ Rounded(T value) : value(value) {}
    friend __device__ __forceinline__ Rounded operator-(Rounded u) { return -u.value; }
    friend __device__ __forceinline__ Rounded operator+(Rounded u, Rounded v) { return rounded_sum(u.value, v.value); }
    friend __device__ __forceinline__ Rounded operator-(Rounded u, Rounded v) { return rounded_sum(u.value, -v.value); }
    friend __device__ __forceinline__ Rounded operator*(Rounded u, Rounded v) { return rounded_product(u.value, v.value); }
    friend __device__ __forceinline__ Rounded operator/(Rounded u, Rounded v) { return u.value / v.value; }
    friend __device__ __forceinline__ Rounded min(Rounded u, Rounded v) { return min(u.value, v.value); }
    friend __device__ __forceinline__ Rounded max(Rounded u, Rounded v) { return max(u.value, v.value); }
    friend __device__ __forceinline__ Rounded floor(Rounded u) { return floor(u.value); }
    friend __device__ __forceinline__ Rounded sqrt(Rounded u) { return sqrt(u.value); }
};
typedef Rounded<real> number;
typedef Rounded<double> precise;

constexpr real SHARE_OF_TILE = (real)(1.0 / TILE);  // exact, and no division

__device__ __forceinline__ int clamp(number v, int high) { return clamp(v.value, high); }
__device__ __forceinline__ number single(precise v) { return (real)v.value; }

// The ellipse alpha = 1 / 255 of a Splat, within the square of 3 sigma that v1 allows it, and the tiles with a pixel center in it; or with
// `compact` > 0, FastGS's factor on the ellipse's level, all tiles that the smaller ellipse touches, a tile being 16 pixels wide and not 15.
struct Cover {
    int left, right, top, bottom;  // tiles, half open
    bool bounded;                  // false: not an ellipse, all of the square (none of it with `compact`)
    number x, y, level, half_x, half_y, slope, spread, steep, tilt, slack, height;
};

__device__ __forceinline__ Cover cover_of(const Splat& s, int width, int height, real slack, real compact) {
    const int columns = (width + TILE - 1) / TILE, rows = (height + TILE - 1) / TILE;
    const number radius = s.radius;
    Cover it;
    it.x = s.x;
    it.y = s.y;
    it.left = clamp((it.x - radius) * SHARE_OF_TILE, columns);
    it.right = clamp((it.x + radius + (TILE - 1)) * SHARE_OF_TILE, columns);
    it.top = clamp((it.y - radius) * SHARE_OF_TILE, rows);
    it.bottom = clamp((it.y + radius + (TILE - 1)) * SHARE_OF_TILE, rows);
    if (compact > 0) {
        it.left = it.top = 0;
        it.right = columns;
        it.bottom = rows;
    }
    const real drawn = log2(rounded_product((real)255, s.opacity));
    if (s.radius <= 0 || !(compact > 0 ? drawn >= 0 : s.opacity >= ALPHA_MIN * (real)(1 - 1e-6))) it.right = it.left;
    // d^T [[A, B], [B, C]] d = level, with A = -a, B = -b / 2, C = -c
    const precise A = -(double)s.a, B = precise(-0.5) * (double)s.b, C = -(double)s.c, det = A * C - B * B;
    it.level = number(max(drawn, (real)0)) * (compact > 0 ? compact : (real)1);
    it.bounded = det.value > 0 && A.value > 0;
    if (!it.bounded) {
        if (compact > 0) it.right = it.left;
        return it;
    }
    it.half_x = sqrt(it.level * single(C / det));
    it.half_y = sqrt(it.level * single(A / det));
    it.slope = single(-B / A);               // of the line through the middles of the rows
    it.spread = it.level / single(A);          // squared half width of the row through the center
    it.steep = single(det / (A * A));
    it.tilt = single(-B / C) * it.half_x;    // where, below the center, the rightmost point is
    it.slack = compact > 0 ? number(0) : number(slack) + (real)1e-5 * max(it.half_x, it.half_y);
    it.height = compact > 0 ? TILE : TILE - 1;
    it.top = max(it.top, clamp(floor((it.y - it.half_y - it.slack) * SHARE_OF_TILE), rows));
    it.bottom = min(it.bottom, clamp(floor((it.y + it.half_y + it.slack) * SHARE_OF_TILE) + 1, rows));
    return it;
}

// The tiles `from` ... `to - 1` of a row of tiles.
__device__ __forceinline__ void tiles_in_row(const Cover& it, int row, int& from, int& to) {
    from = it.left;
    to = it.right;
    if (!it.bounded) return;
    const number edge = row * TILE, high = edge - it.y - it.slack, low = edge + it.height - it.y + it.slack;
    const number right_y = min(max(it.tilt, high), low), left_y = min(max(-it.tilt, high), low);
    const number right = it.slope * right_y + sqrt(max(it.spread - it.steep * right_y * right_y, (real)0)) + it.slack;
    const number left = it.slope * left_y - sqrt(max(it.spread - it.steep * left_y * left_y, (real)0)) - it.slack;
    from = max(from, clamp(floor((it.x + left) * SHARE_OF_TILE), it.right));
    to = min(to, clamp(floor((it.x + right) * SHARE_OF_TILE) + 1, it.right));
    to = max(from, to);
}

__device__ __forceinline__ int count_tiles(const Splat& s, int width, int height, real slack, real compact) {
    const Cover it = cover_of(s, width, height, slack, compact);
    int count = 0;
    for (int row = it.top; row < it.bottom && it.left < it.right; row++) {
        int from, to;
        tiles_in_row(it, row, from, to);
        count += to - from;
    }
    return count;
}
