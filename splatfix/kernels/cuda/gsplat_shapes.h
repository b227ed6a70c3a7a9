// Covariances from rotations and lengths, and back, in double: a few operations a Gaussian, where a needle would lose all digits.
#pragma once
#include "discs.h"
#include "shapes.h"

// The columns of the rotation times `lengths`, times their transpose.
__device__ __forceinline__ Symmetric covariance_of(const Turn& turn, const Triple& lengths) {
    const Triple u = times(lengths.x, turn.axes[0]), v = times(lengths.y, turn.axes[1]), w = times(lengths.z, turn.axes[2]);
    return {(real)(u.x * u.x + v.x * v.x + w.x * w.x), (real)(u.x * u.y + v.x * v.y + w.x * w.y), (real)(u.x * u.z + v.x * v.z + w.x * w.z),
            (real)(u.y * u.y + v.y * v.y + w.y * w.y), (real)(u.y * u.z + v.y * v.z + w.y * w.z), (real)(u.z * u.z + v.z * v.z + w.z * w.z)};
}

// `by`: the gradient of each of the six numbers of the covariance, every one there once; adds to that of the axes and of the lengths.
__device__ __forceinline__ void pull_covariance(const Turn& turn, const Triple& lengths, const Symmetric& by, Triple* by_axes, Triple& by_lengths) {
    const double length[3] = {lengths.x, lengths.y, lengths.z};
    double along[3];
    for (int k = 0; k < 3; k++) {
        const Triple a = times(length[k], turn.axes[k]);
        const Triple by_column = {2.0 * by.xx * a.x + (double)by.xy * a.y + (double)by.xz * a.z, (double)by.xy * a.x + 2.0 * by.yy * a.y + (double)by.yz * a.z,
                                  (double)by.xz * a.x + (double)by.yz * a.y + 2.0 * by.zz * a.z};
        along[k] = dot(by_column, turn.axes[k]);
        by_axes[k] = plus(by_axes[k], times(length[k], by_column));
    }
    by_lengths = plus(by_lengths, {along[0], along[1], along[2]});
}

// Of [P, 6], the upper triangle, or [P, 9].
__device__ __forceinline__ void put_symmetric(const Out<real>& to, int i, int triangle, const Symmetric& s) {
    if (triangle) {
        const long long at = (long long)i * 6;
        to[at] = s.xx; to[at + 1] = s.xy; to[at + 2] = s.xz; to[at + 3] = s.yy; to[at + 4] = s.yz; to[at + 5] = s.zz;
        return;
    }
    const long long at = (long long)i * 9;
    to[at] = s.xx; to[at + 4] = s.yy; to[at + 8] = s.zz;
    to[at + 1] = s.xy; to[at + 3] = s.xy;
    to[at + 2] = s.xz; to[at + 6] = s.xz;
    to[at + 5] = s.yz; to[at + 7] = s.yz;
}

// Gradients of the same; those of [P, 9] that are of one number are added.
__device__ __forceinline__ Symmetric symmetric_of(In<real> by, int i, int triangle) {
    const long long at = (long long)i * (triangle ? 6 : 9);
    if (triangle) return {by[at], by[at + 1], by[at + 2], by[at + 3], by[at + 4], by[at + 5]};
    return {by[at], by[at + 1] + by[at + 3], by[at + 2] + by[at + 6], by[at + 4], by[at + 5] + by[at + 7], by[at + 8]};
}
