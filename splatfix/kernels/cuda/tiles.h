// Which tiles a Gaussian covers, from its Splat alone: computed twice, by `project` to count and by `list_pairs` to write, and the two
// always agree.
#pragma once
#include "gaussians.h"

// The ellipse alpha = 1 / 255 of a Splat, within the square of 3 sigma that v1 allows it, and the tiles with a pixel center in it; or with
// `compact` > 0, FastGS's factor on the ellipse's level, all tiles that the smaller ellipse touches, a tile being 16 pixels wide and not 15.
struct Cover {
    int left, right, top, bottom;  // tiles, half open
    bool bounded;                  // false: not an ellipse, all of the square (none of it with `compact`)
    real level, half_x, half_y, slope, spread, steep, tilt, slack, height;
};

__device__ __forceinline__ Cover cover_of(const Splat& s, int width, int height, real slack, real compact) {
    const int columns = (width + TILE - 1) / TILE, rows = (height + TILE - 1) / TILE;
    Cover it;
    it.left = clamp((s.x - s.radius) / TILE, columns);
    it.right = clamp((s.x + s.radius + (TILE - 1)) / TILE, columns);
    it.top = clamp((s.y - s.radius) / TILE, rows);
    it.bottom = clamp((s.y + s.radius + (TILE - 1)) / TILE, rows);
    if (compact > 0) {
        it.left = it.top = 0;
        it.right = columns;
        it.bottom = rows;
    }
    const real drawn = log2((real)255 * s.opacity);
    if (s.radius <= 0 || !(compact > 0 ? drawn >= 0 : s.opacity >= ALPHA_MIN * (real)(1 - 1e-6))) it.right = it.left;
    // d^T [[A, B], [B, C]] d = level, with A = -a, B = -b / 2, C = -c
    const double A = -(double)s.a, B = -0.5 * (double)s.b, C = -(double)s.c, det = A * C - B * B;
    it.level = max(drawn, (real)0) * (compact > 0 ? compact : (real)1);
    it.bounded = det > 0 && A > 0;
    if (!it.bounded) {
        if (compact > 0) it.right = it.left;
        return it;
    }
    it.half_x = sqrt(it.level * (real)(C / det));
    it.half_y = sqrt(it.level * (real)(A / det));
    it.slope = (real)(-B / A);               // of the line through the middles of the rows
    it.spread = it.level / (real)A;          // squared half width of the row through the center
    it.steep = (real)(det / (A * A));
    it.tilt = (real)(-B / C) * it.half_x;    // where, below the center, the rightmost point is
    it.slack = compact > 0 ? (real)0 : slack + (real)1e-5 * max(it.half_x, it.half_y);
    it.height = compact > 0 ? TILE : TILE - 1;
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
    const real high = (real)(row * TILE) - s.y - it.slack, low = (real)(row * TILE) + it.height - s.y + it.slack;
    const real right_y = min(max(it.tilt, high), low), left_y = min(max(-it.tilt, high), low);
    const real right = it.slope * right_y + sqrt(max(it.spread - it.steep * right_y * right_y, (real)0)) + it.slack;
    const real left = it.slope * left_y - sqrt(max(it.spread - it.steep * left_y * left_y, (real)0)) - it.slack;
    from = max(from, clamp(floor((s.x + left) / TILE), it.right));
    to = min(to, clamp(floor((s.x + right) / TILE) + 1, it.right));
    to = max(from, to);
}

__device__ __forceinline__ int count_tiles(const Splat& s, int width, int height, real slack, real compact) {
    const Cover it = cover_of(s, width, height, slack, compact);
    int count = 0;
    for (int row = it.top; row < it.bottom && it.left < it.right; row++) {
        int from, to;
        tiles_in_row(s, it, row, from, to);
        count += to - from;
    }
    return count;
}
