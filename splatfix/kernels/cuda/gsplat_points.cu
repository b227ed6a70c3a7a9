// What works on each Gaussian by itself: covariances and precisions, spherical harmonics up to degree 4, relocation, Adam.
#include "gsplat.h"
#include "gsplat_shapes.h"
#include "harmonics.h"

// covariances, precisions: [P, 9], or with `triangle` [P, 6]; null where they are not wanted.
extern "C" __global__ void __launch_bounds__(256) gsplat_shapes(
    In<Quaternion> rotations, In<Vector> scales, int count, int triangle, Out<real> covariances, Out<real> precisions) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const Turn turn = turn_of(rotations[i]);
    const Vector s = scales[i];
    if (covariances) put_symmetric(covariances, i, triangle, covariance_of(turn, {s.x, s.y, s.z}));
    if (precisions) put_symmetric(precisions, i, triangle, covariance_of(turn, {1.0 / s.x, 1.0 / s.y, 1.0 / s.z}));
}

extern "C" __global__ void __launch_bounds__(256) gsplat_shapes_backward(
    In<Quaternion> rotations, In<Vector> scales, In<real> by_covariances, In<real> by_precisions, int count, int triangle,
    Out<Quaternion> to_rotations, Out<Vector> to_scales) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const Turn turn = turn_of(rotations[i]);
    const Vector s = scales[i];
    Triple by_axes[3] = {}, by_scales = {0, 0, 0};
    if (by_covariances) pull_covariance(turn, {s.x, s.y, s.z}, symmetric_of(by_covariances, i, triangle), by_axes, by_scales);
    if (by_precisions) {
        Triple by_inverses = {0, 0, 0};
        const Triple inverses = {1.0 / s.x, 1.0 / s.y, 1.0 / s.z};
        pull_covariance(turn, inverses, symmetric_of(by_precisions, i, triangle), by_axes, by_inverses);
        by_scales = plus(by_scales, {-by_inverses.x * inverses.x * inverses.x, -by_inverses.y * inverses.y * inverses.y,
                                     -by_inverses.z * inverses.z * inverses.z});
    }
    to_rotations[i] = turned_back(turn, by_axes[0], by_axes[1], by_axes[2]);
    to_scales[i] = {(real)by_scales.x, (real)by_scales.y, (real)by_scales.z};
}

constexpr real B16 = (real)2.5033429417967046, B17 = (real)-1.7701307697799304, B18 = (real)0.9461746957575601, B19 = (real)-0.6690465435572892;
constexpr real B20 = (real)0.10578554691520431, B22 = (real)0.47308734787878004, B24 = (real)0.6258357354491761;

// The nine of degree 4, and their part of the gradient with respect to the direction.
__device__ __forceinline__ void basis_of_degree_four(const Vector& d, real* out) {
    const real x = d.x, y = d.y, z = d.z, xx = x * x, yy = y * y, zz = z * z;
    out[0] = B16 * x * y * (xx - yy);
    out[1] = B17 * y * z * (3 * xx - yy);
    out[2] = B18 * x * y * (7 * zz - 1);
    out[3] = B19 * y * z * (7 * zz - 3);
    out[4] = B20 * (35 * zz * zz - 30 * zz + 3);
    out[5] = B19 * x * z * (7 * zz - 3);
    out[6] = B22 * (xx - yy) * (7 * zz - 1);
    out[7] = B17 * x * z * (xx - 3 * yy);
    out[8] = B24 * (xx * (xx - 3 * yy) - yy * (3 * xx - yy));
}

__device__ __forceinline__ Vector slope_of_degree_four(const Vector& d, const real* g) {
    const real x = d.x, y = d.y, z = d.z, xx = x * x, yy = y * y, zz = z * z;
    return {B16 * y * (3 * xx - yy) * g[0] + B17 * 6 * x * y * z * g[1] + B18 * y * (7 * zz - 1) * g[2] + B19 * z * (7 * zz - 3) * g[5]
                + B22 * 2 * x * (7 * zz - 1) * g[6] + B17 * 3 * z * (xx - yy) * g[7] + B24 * 4 * x * (xx - 3 * yy) * g[8],
            B16 * x * (xx - 3 * yy) * g[0] + B17 * 3 * z * (xx - yy) * g[1] + B18 * x * (7 * zz - 1) * g[2] + B19 * z * (7 * zz - 3) * g[3]
                - B22 * 2 * y * (7 * zz - 1) * g[6] - B17 * 6 * x * y * z * g[7] + B24 * 4 * y * (yy - 3 * xx) * g[8],
            B17 * y * (3 * xx - yy) * g[1] + B18 * 14 * x * y * z * g[2] + B19 * 3 * y * (7 * zz - 1) * g[3] + B20 * 20 * z * (7 * zz - 3) * g[4]
                + B19 * 3 * x * (7 * zz - 1) * g[5] + B22 * 14 * z * (xx - yy) * g[6] + B17 * x * (xx - 3 * yy) * g[7]};
}

#define BANDS 25

__device__ __forceinline__ void basis_of(int degree, const Vector& direction, real* basis) {
    sh_basis(degree, direction, basis);
    if (degree > 3) basis_of_degree_four(direction, basis + 16);
}

extern "C" __global__ void __launch_bounds__(256) gsplat_harmonics(
    In<Vector> directions, In<real> coefficients, In<bool> masks, int count, int degree, int bands, Out<Vector> colors) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    Vector sum = {0, 0, 0};
    if (!masks || masks[i]) {
        const Vector d = directions[i];
        const int used = (degree + 1) * (degree + 1);
        real basis[BANDS] = {};
        basis_of(degree, times(1 / sqrt(dot(d, d)), d), basis);
#pragma unroll  // so that `basis` is registers
        for (int k = 0; k < BANDS; k++) {
            const long long at = ((long long)i * bands + k) * 3;
            if (k < used) sum = plus(sum, times(basis[k], Vector{coefficients[at], coefficients[at + 1], coefficients[at + 2]}));
        }
    }
    colors[i] = sum;
}

// The results are zeros before; to_directions may be null.
extern "C" __global__ void __launch_bounds__(256) gsplat_harmonics_backward(
    In<Vector> directions, In<real> coefficients, In<bool> masks, In<Vector> by_colors, int count, int degree, int bands, Out<real> to_coefficients,
    Out<Vector> to_directions) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count || (masks && !masks[i])) return;
    const Vector d = directions[i], by = by_colors[i];
    const real inverse = 1 / sqrt(dot(d, d));
    const Vector direction = times(inverse, d);
    const int used = (degree + 1) * (degree + 1);
    real basis[BANDS] = {}, by_basis[BANDS] = {};
    basis_of(degree, direction, basis);
#pragma unroll
    for (int k = 0; k < BANDS; k++) {
        if (k >= used) continue;
        const long long at = ((long long)i * bands + k) * 3;
        if (to_directions) by_basis[k] = by.x * coefficients[at] + by.y * coefficients[at + 1] + by.z * coefficients[at + 2];
        to_coefficients[at] = basis[k] * by.x;
        to_coefficients[at + 1] = basis[k] * by.y;
        to_coefficients[at + 2] = basis[k] * by.z;
    }
    if (!to_directions) return;
    Vector by_direction = sh_slope(degree, direction, by_basis);
    if (degree > 3) by_direction = plus(by_direction, slope_of_degree_four(direction, by_basis + 16));
    to_directions[i] = times(inverse, plus(by_direction, times(-dot(direction, by_direction), direction)));
}

// Equation 9 of 3DGS-MCMC (Kheradmand et al. 2024): opacity and scales of each of n that together look as the one. The sum alternates: in double.
extern "C" __global__ void __launch_bounds__(256, 4) gsplat_relocate(
    In<real> opacities, In<Vector> scales, In<int> ratios, In<real> binomials, int count, int most, Out<real> to_opacities, Out<Vector> to_scales) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const double opacity = opacities[i];
    const int n = ratios[i];
    const double part = 1 - exp(log(1 - opacity) / n);
    double sum = 0;
    for (int row = 0; row < n; row++) {
        double power = part;
        for (int k = 0; k <= row; k++) {
            sum += binomials[(long long)row * most + k] * power / sqrt((double)(k + 1));
            power *= -part;
        }
    }
    to_opacities[i] = (real)part;
    to_scales[i] = times((real)(opacity / sum), scales[i]);
}

// `width` numbers of a row; rows that are not valid stay as they are.
extern "C" __global__ void __launch_bounds__(256) gsplat_adam(
    In<real> gradients, In<bool> valid, int count, int width, real rate, real beta1, real beta2, real epsilon, Out<real> values, Out<real> means,
    Out<real> squares) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count || (valid && !valid[i / width])) return;
    const real gradient = gradients[i];
    const real mean = beta1 * means[i] + (1 - beta1) * gradient, square = beta2 * squares[i] + (1 - beta2) * gradient * gradient;
    values[i] = values[i] - rate * mean / (sqrt(square) + epsilon);
    means[i] = mean;
    squares[i] = square;
}
