// Rotations, and the geometry of a flat disc under a projective map, most of it in double. The map's columns are u, v, w: of a place
// s = (x, y, 1) on the disc it gives (x w, y w, w) = (u . s, v . s, w . s), x and y in pixels.
#pragma once
#include "gaussians.h"

struct Triple { double x, y, z; };
__device__ __forceinline__ double dot(const Triple& u, const Triple& v) { return u.x * v.x + u.y * v.y + u.z * v.z; }
__device__ __forceinline__ Triple times(double s, const Triple& v) { return {s * v.x, s * v.y, s * v.z}; }
__device__ __forceinline__ Triple plus(const Triple& u, const Triple& v) { return {u.x + v.x, u.y + v.y, u.z + v.z}; }
__device__ __forceinline__ Triple cross(const Triple& u, const Triple& v) { return {u.y * v.z - u.z * v.y, u.z * v.x - u.x * v.z, u.x * v.y - u.y * v.x}; }
__device__ __forceinline__ Triple three_of(In<real> array, long long at) { return {array[at], array[at + 1], array[at + 2]}; }
__device__ __forceinline__ Vector rounded(const Triple& v) { return {(real)v.x, (real)v.y, (real)v.z}; }
__device__ __forceinline__ Vector cross(const Vector& u, const Vector& v) { return {u.y * v.z - u.z * v.y, u.z * v.x - u.x * v.z, u.x * v.y - u.y * v.x}; }
__device__ __forceinline__ real sum(const Triple& v) { return (real)v.x + (real)v.y + (real)v.z; }
__device__ __forceinline__ Vector product(const Vector& u, const Vector& v) { return {u.x * v.x, u.y * v.y, u.z * v.z}; }
__device__ __forceinline__ void put_three(const Out<real>& to, long long at, const Vector& v) {
    to[at] = v.x;
    to[at + 1] = v.y;
    to[at + 2] = v.z;
}
__device__ __forceinline__ Vector vector_of(In<real> array, long long at) { return {array[at], array[at + 1], array[at + 2]}; }
__device__ __forceinline__ real largest(const Triple& v) { return (real)max(max(fabs(v.x), fabs(v.y)), fabs(v.z)); }
__device__ __forceinline__ bool is_number(double v) { return v - v == 0; }

// The box around the ellipse |s|^2 = level: center, squared half sides, and the denominator, below 0 where the ellipse is before the camera.
struct Bounds { double x, y, squared_x, squared_y, denominator; Triple weights; };

__device__ __forceinline__ Bounds bounds_of(const Triple& u, const Triple& v, const Triple& w, double level) {
    Bounds it;
    // what does not depend on the level is first, and is computed once for two levels
    it.denominator = level * (w.x * w.x + w.y * w.y) - w.z * w.z;
    const double inverse = 1 / it.denominator;  // of divisions in double there are few: each is ten multiplications
    it.weights = {level * inverse, level * inverse, -inverse};
    it.x = inverse * (level * (u.x * w.x + u.y * w.y) - u.z * w.z);
    it.y = inverse * (level * (v.x * w.x + v.y * w.y) - v.z * w.z);
    it.squared_x = it.x * it.x - inverse * (level * (u.x * u.x + u.y * u.y) - u.z * u.z);
    it.squared_y = it.y * it.y - inverse * (level * (v.x * v.x + v.y * v.y) - v.z * v.z);
    return it;
}

// As blended: p at the anchor and its slopes, and the map's determinant, all times a Meeting's unit.
struct alignas(16) Surfel {
    real p0[3], px[3], py[3], det;
    real center_x, center_y;  // pixels from the anchor
    real anchor_x, anchor_y;  // a pixel
    real opacity;
    union { real depth, inverse_det; };  // gsplat's depth; of those in surfels.cu 1 / det
};

// A ray's meeting with a surfel.
struct Met {
    real dx, dy, x, y, z, inverse;  // from the anchor; p, 1 / p.z
    real away_x, away_y;            // center less pixel
    real rho, uncapped, alpha;
    bool disc;                      // rho is the disc's, not the low-pass
};

// Where it meets the disc's plane; false where p.z is not above `smallest`, for the ray lies in the plane.
__device__ __forceinline__ bool meet_plane(const Surfel& s, int x, int y, real smallest, Met& it) {
    it.dx = (real)x - s.anchor_x;
    it.dy = (real)y - s.anchor_y;
    it.x = s.p0[0] + it.dx * s.px[0] + it.dy * s.py[0];
    it.y = s.p0[1] + it.dx * s.px[1] + it.dy * s.py[1];
    it.z = s.p0[2] + it.dx * s.px[2] + it.dy * s.py[2];
    it.away_x = s.center_x - it.dx;
    it.away_y = s.center_y - it.dy;
    const real low_pass = 2 * (it.away_x * it.away_x + it.away_y * it.away_y);
    it.disc = it.x * it.x + it.y * it.y <= low_pass * it.z * it.z;
    it.inverse = reciprocal(it.z);
    const real sx = it.x * it.inverse, sy = it.y * it.inverse;
    it.rho = it.disc ? sx * sx + sy * sy : low_pass;
    return fabs(it.z) > smallest;
}

// Alpha there; false where it is too little.
__device__ __forceinline__ bool cover(const Surfel& s, real cap, Met& it) {
    it.uncapped = s.opacity * power_of_two((real)-0.5 * LOG2E * it.rho);
    it.alpha = min(it.uncapped, cap);
    return it.alpha >= ALPHA_MIN;
}

constexpr real LEAST = sizeof(real) == 4 ? (real)1e-36 : (real)1e-300;

// The map counted from the anchor, where nothing is large beside the disc; p at the anchor and its slopes, before they are multiplied by
// `unit`, which makes the largest of them 1 to 2 and is a power of two, so that no digit changes.
struct Meeting { Triple u, v, at_anchor, slope_x, slope_y; double anchor_x, anchor_y; real unit; };

__device__ __forceinline__ Meeting meeting_of(const Triple& u, const Triple& v, const Triple& w, double x, double y, int width, int height) {
    Meeting it;
    it.anchor_x = min(max(floor(x + 0.5), 0.0), (double)(width - 1));
    it.anchor_y = min(max(floor(y + 0.5), 0.0), (double)(height - 1));
    it.u = plus(u, times(-it.anchor_x, w));
    it.v = plus(v, times(-it.anchor_y, w));
    it.at_anchor = cross(it.u, it.v);
    it.slope_x = cross(it.v, w);
    it.slope_y = cross(w, it.u);
    it.unit = ldexp((real)1, -ilogb(max(max(largest(it.at_anchor), largest(it.slope_x)), max(largest(it.slope_y), LEAST))));
    return it;
}

__device__ __forceinline__ void put(real* to, real unit, const Triple& v) {
    to[0] = unit * (real)v.x;
    to[1] = unit * (real)v.y;
    to[2] = unit * (real)v.z;
}

// The columns of a rotation, from a quaternion of any length.
struct Turn { Triple axes[3]; double inverse_length, w, x, y, z; };

__device__ __forceinline__ Turn turn_of(const Quaternion& q) {
    Turn it;
    const double k = it.inverse_length = 1 / sqrt((double)q.w * q.w + (double)q.x * q.x + (double)q.y * q.y + (double)q.z * q.z);
    const double w = it.w = k * q.w, x = it.x = k * q.x, y = it.y = k * q.y, z = it.z = k * q.z;
    it.axes[0] = {1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)};
    it.axes[1] = {2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)};
    it.axes[2] = {2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)};
    return it;
}

// The gradient of the quaternion from those of the axes, in their precision.
template <class Axis>
__device__ __forceinline__ Quaternion turned_back(const Turn& it, const Axis& a, const Axis& b, const Axis& c) {
    typedef decltype(a.x) number;
    const number qw = (number)it.w, qx = (number)it.x, qy = (number)it.y, qz = (number)it.z, k = (number)it.inverse_length;
    const number by_qw = 2 * (qz * (a.y - b.x) + qy * (c.x - a.z) + qx * (b.z - c.y));
    const number by_qx = 2 * (qy * (b.x + a.y) + qz * (c.x + a.z) + qw * (b.z - c.y) - 2 * qx * (b.y + c.z));
    const number by_qy = 2 * (qx * (b.x + a.y) + qw * (c.x - a.z) + qz * (c.y + b.z) - 2 * qy * (a.x + c.z));
    const number by_qz = 2 * (qw * (a.y - b.x) + qx * (c.x + a.z) + qy * (c.y + b.z) - 2 * qz * (a.x + b.y));
    const number along = qw * by_qw + qx * by_qx + qy * by_qy + qz * by_qz;  // lost in the normalization
    return {(real)(k * (by_qw - along * qw)), (real)(k * (by_qx - along * qx)), (real)(k * (by_qy - along * qy)), (real)(k * (by_qz - along * qz))};
}
