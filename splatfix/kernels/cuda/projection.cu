// From Gaussians in the world to ellipses and colors in the image, and back: a thread a Gaussian, which reads and writes nothing but its own.
// The way back projects again, which is less than reading what the way there could have kept.
#include "harmonics.h"
#include "shapes.h"
#include "tiles.h"

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

extern "C" __global__ void __launch_bounds__(256) project(
    In<Vector> means, In<real> opacities, In<Vector> scales, In<Quaternion> rotations, In<real> covariances, In<real> shs, In<real> colors,
    In<real> camera_numbers, int count, int width, int height, real tan_x, real tan_y, real modifier, real blur, int mode, int channels,
    int degree, int bands, real slack, real compact, Out<Splat> splats, Out<real> features, Out<real> depths, Out<int> radii, Out<int> tile_counts) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const Camera camera = {camera_numbers};
    const Vector p = means[i];
    const real opacity = opacities[i];
    const Shape shape = shape_of(i, scales, rotations, covariances);
    const Projected it = project_one(camera, p, (bool)scales, shape.scale, shape.rotation, shape.sigma, width, height, tan_x, tan_y, modifier, blur, mode);

    const long long row = (long long)i * (channels + 3);
    const real known = write_colors(i, p, camera, shs, colors, degree, bands, channels, features, row);

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
    if (seen && !(compact > 0)) {  // v1's: the square of the radius touches no tile
        const int columns = (width + TILE - 1) / TILE, rows = (height + TILE - 1) / TILE;
        seen = (clamp((s.x + s.radius + (TILE - 1)) / TILE, columns) - clamp((s.x - s.radius) / TILE, columns))
               * (clamp((s.y + s.radius + (TILE - 1)) / TILE, rows) - clamp((s.y - s.radius) / TILE, rows)) > 0;
    }
    const int tiles = seen ? count_tiles(s, width, height, slack, compact) : 0;
    if (!seen || (compact > 0 && !tiles)) s.radius = 0;
    splats[i] = s;
    features[row + channels] = s.z;
    features[row + channels + 1] = 1 / s.z;
    features[row + channels + 2] = 1;
    depths[i] = tiles ? s.z : (real)3.402823466e38f;  // those that are not drawn go last
    radii[i] = (int)s.radius;
    tile_counts[i] = tiles;
}

// sums: [P, 8 + channels + extras], which blending.cu describes; extras: 3, or 0 where no gradient comes from depth, its inverse and alpha.
// upstream: the CUDA kernels' gradients also where they are not the derivative (see rasterizer.py). to_statistic: [P, columns], 2 to 4: the
// gradient of the center in NDC units, and the absolute one: its sum, with Mip-Splatting's kernel, or both parts. Blocks of 128, of which a multiprocessor
// holds five with the 88 to 94 registers that this takes; 80, for three of 256, would spill some of them.
extern "C" __global__ void __launch_bounds__(128) project_backward(
    In<Vector> means, In<real> opacities, In<Vector> scales, In<Quaternion> rotations, In<real> covariances, In<real> camera_numbers,
    In<int> radii, In<real> sums, int count, int width, int height, real tan_x, real tan_y, real modifier, real blur, int mode, int channels,
    int extras, int upstream, int columns, Out<Vector> to_means, Out<real> to_statistic, Out<real> to_opacities, Out<Vector> to_scales,
    Out<Quaternion> to_rotations, Out<real> to_covariances, Out<real> to_colors) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= count) return;
    if (radii[i] <= 0) {
        to_means[i] = {0, 0, 0};
        to_opacities[i] = 0;
        if (scales) {
            to_scales[i] = {0, 0, 0};
            to_rotations[i] = {0, 0, 0, 0};
        } else {
            put_nothing(to_covariances, i, 6);
        }
        if (to_statistic) put_nothing(to_statistic, i, columns);
        if (to_colors) put_nothing(to_colors, i, channels);
        return;
    }
    const Camera camera = {camera_numbers};
    const Vector p = means[i];
    const Shape shape = shape_of(i, scales, rotations, covariances);
    const Projected it = project_one(camera, p, (bool)scales, shape.scale, shape.rotation, shape.sigma, width, height, tan_x, tan_y, modifier, blur, mode);
    const long long row = (long long)i * (8 + channels + extras);
    const real by_x = sums[row], by_y = sums[row + 1], by_share = sums[row + 5];
    if (to_statistic) {
        const real half_x = (real)0.5 * width, half_y = (real)0.5 * height, absolute_x = half_x * sums[row + 6], absolute_y = half_y * sums[row + 7];
        const long long at = (long long)i * columns;
        to_statistic[at] = half_x * by_x;
        to_statistic[at + 1] = half_y * by_y;
        if (columns == 3) to_statistic[at + 2] = mode == MODE_KERNEL_SIZE ? absolute_x + absolute_y : (real)0;
        if (columns > 3) {
            to_statistic[at + 2] = absolute_x;
            to_statistic[at + 3] = absolute_y;
        }
    }

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
            if (upstream) {  // the formula of the original, given the blurred variances where it wants the sharp ones
                const real a = it.a + blur, c = it.c + blur, twice = (real)((double)a * c - (double)it.b * it.b);
                by_det = by * (real)0.5 / it.share / twice;
                const real by_twice = -by_det * it.det / twice;
                by_a += by_twice * c;
                by_c += by_twice * a;
                by_b -= 2 * it.b * by_twice;
            } else {
                by_sharp = by * (real)0.5 / it.share / it.det;
                by_det = -by_sharp * sharp / it.det;
            }
        }
        if (mode == MODE_KERNEL_SIZE && it.share > 0) {
            const real root = it.share + (real)1e-6, half = by * (real)0.5 * (upstream ? it.share / (root * root) : 1 / it.share);
            by_sharp = half / (it.det + (real)1e-6);
            by_det = upstream ? -half * sharp / (it.det * it.det + (real)1e-6) : -by_sharp * sharp / (it.det + (real)1e-6);
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
            by_scale[k] = (upstream ? (real)1 : modifier) * dot(axis, by_axis);
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
    if (extras) by_t.z += sums[row + 8 + channels] - sums[row + 8 + channels + 1] / (z * z);
    Vector by_mean = plus(plus(times(by_t.x, camera.axis(0)), times(by_t.y, camera.axis(1))), times(by_t.z, camera.axis(2)));

    // the center: half the image times clip / w
    const real by_clip_x = by_x * (real)0.5 * width * it.inverse_w, by_clip_y = by_y * (real)0.5 * height * it.inverse_w;
    const real by_w = -(by_clip_x * it.clip_x + by_clip_y * it.clip_y) * it.inverse_w;
    by_mean.x += camera.clip(0, 0) * by_clip_x + camera.clip(0, 1) * by_clip_y + camera.clip(0, 3) * by_w;
    by_mean.y += camera.clip(1, 0) * by_clip_x + camera.clip(1, 1) * by_clip_y + camera.clip(1, 3) * by_w;
    by_mean.z += camera.clip(2, 0) * by_clip_x + camera.clip(2, 1) * by_clip_y + camera.clip(2, 3) * by_w;

    if (to_colors) for (int c = 0; c < channels; c++) to_colors[(long long)i * channels + c] = sums[row + 8 + c];
    to_means[i] = by_mean;
}

// The gradient of the coefficients, and what the colors add to that of the centers, which `project_backward` has written: apart from it, so
// that neither needs the other's registers. Of Gaussians and surfels: the gradients of the colors are in `sums`, [P, stride], from `place` on.
extern "C" __global__ void __launch_bounds__(256, 4) harmonics_backward(
    In<Vector> means, In<real> shs, In<real> camera_numbers, In<int> radii, In<real> sums, int count, int degree, int bands, int stride,
    int place, Out<Vector> to_means, Out<real> to_shs) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    // all of to_shs is written here: the largest tensor of a backward pass, which nobody needs to fill with zeros before
    const int used = radii[i] > 0 ? (degree + 1) * (degree + 1) : 0;
    for (int k = 3 * used; k < 3 * bands; k++) to_shs[(long long)i * bands * 3 + k] = 0;
    if (!used) return;
    const Camera camera = {camera_numbers};
    const Vector p = means[i];
    real basis[16] = {}, by_basis[16] = {};
    const Vector offset = {p.x - camera.center().x, p.y - camera.center().y, p.z - camera.center().z};
    const real inverse = 1 / sqrt(dot(offset, offset));
    const Vector direction = times(inverse, offset);
    sh_basis(degree, direction, basis);
    for (int c = 0; c < 3; c++) {
        real value = 0;
#pragma unroll  // so that both arrays are registers
        for (int k = 0; k < 16; k++) if (k < used) value += basis[k] * shs[((long long)i * bands + k) * 3 + c];
        const real by_color = value + (real)0.5 >= 0 ? sums[(long long)i * stride + place + c] : (real)0;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            if (k >= used) continue;
            by_basis[k] += by_color * shs[((long long)i * bands + k) * 3 + c];
            to_shs[((long long)i * bands + k) * 3 + c] = by_color * basis[k];
        }
    }
    const Vector by_direction = sh_slope(degree, direction, by_basis);
    to_means[i] = plus(to_means[i], times(inverse, plus(by_direction, times(-dot(direction, by_direction), direction))));
}
