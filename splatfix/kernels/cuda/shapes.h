// The shape of a Gaussian: scales and a rotation, or its covariance.
#pragma once
#include "gaussians.h"

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
