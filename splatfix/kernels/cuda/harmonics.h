// Real spherical harmonics up to degree 3 in the signs of the 3DGS family.
#pragma once
#include "gaussians.h"

// At a unit vector: 16 values.
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

// The colors of a Gaussian to features[row ...], given or from harmonics towards it; returns a number that is not finite if a color is not.
__device__ __forceinline__ real write_colors(
    int i, const Vector& p, const Camera& camera, In<real> shs, In<real> colors, int degree, int bands, int channels, const Out<real>& features,
    long long row) {
    real known = 0;
    if (shs) {
        real basis[16] = {};
        const Vector offset = {p.x - camera.center().x, p.y - camera.center().y, p.z - camera.center().z};
        sh_basis(degree, times(1 / sqrt(dot(offset, offset)), offset), basis);
        const int used = (degree + 1) * (degree + 1);
        for (int c = 0; c < 3; c++) {
            real sum = 0;
#pragma unroll  // so that `basis` is registers
            for (int k = 0; k < 16; k++) if (k < used) sum += basis[k] * shs[((long long)i * bands + k) * 3 + c];
            known += sum;
            features[row + c] = max(sum + (real)0.5, (real)0);
        }
    } else {
        for (int c = 0; c < channels; c++) {
            const real color = colors[(long long)i * channels + c];
            known += color;
            features[row + c] = color;
        }
    }
    return known;
}
