// Gaussians into the image of each camera, pinhole or orthographic, and back; and the tiles that each touches.
#include "gsplat.h"
#include "gsplat_shapes.h"

typedef View<Vector, real> Camera3;
struct Radii { int x, y; };
struct alignas(16) Box { int left, right, top, bottom; };  // tiles, half open

__device__ __forceinline__ Triple triple(const Vector& v) { return {v.x, v.y, v.z}; }

constexpr real MARGIN = (real)0.15;  // of the image around it, in which the Jacobian still follows a Gaussian

// A center in the image, and the two rows that take the world to pixels there: the Jacobian times the camera's rotation.
struct Seen {
    Vector t;               // in view space
    real inverse;           // of its depth; 1 for an orthographic camera
    real edge_x, edge_y;    // t.x and t.y by depth, clamped; 0 for an orthographic camera
    bool free_x, free_y;    // whether they were not
    real x, y;              // pixels
    Vector m0, m1;
};

__device__ __forceinline__ Seen see(const Camera3& view, const Vector& p, int width, int height, int orthographic) {
    Seen it;
    it.t = seen_from(view, p);
    it.inverse = 1;
    it.edge_x = it.edge_y = 0;
    it.free_x = it.free_y = false;
    if (!orthographic) {
        it.inverse = 1 / it.t.z;
        const real x = it.t.x * it.inverse, y = it.t.y * it.inverse, margin_x = MARGIN * width / view.fx, margin_y = MARGIN * height / view.fy;
        it.edge_x = min((width - view.cx) / view.fx + margin_x, max(-view.cx / view.fx - margin_x, x));
        it.edge_y = min((height - view.cy) / view.fy + margin_y, max(-view.cy / view.fy - margin_y, y));
        it.free_x = it.edge_x == x;
        it.free_y = it.edge_y == y;
    }
    it.x = view.fx * it.t.x * it.inverse + view.cx;
    it.y = view.fy * it.t.y * it.inverse + view.cy;
    it.m0 = times(view.fx * it.inverse, plus(view.axes[0], times(-it.edge_x, view.axes[2])));
    it.m1 = times(view.fy * it.inverse, plus(view.axes[1], times(-it.edge_y, view.axes[2])));
    return it;
}

// picked: [entries], which of the images' Gaussians these are; null for all of them. compensations may be null; without conics, radii alone.
extern "C" __global__ void __launch_bounds__(256) gsplat_project(
    In<Vector> means, In<real> covariances, In<Quaternion> rotations, In<Vector> scales, In<real> opacities, In<real> viewmats, In<real> intrinsics,
    In<long long> picked, int entries, int count, int cameras, int width, int height, real blur, real near, real far, real smallest,
    int compensated, int orthographic, int isotropic, Out<Radii> radii, Out<Pixel> centers, Out<real> depths, Out<Vector> conics,
    Out<real> compensations) {
    const int entry = blockIdx.x * 256 + threadIdx.x;
    if (entry >= entries) return;
    const int which = picked ? (int)picked[entry] : entry, image = which / count, i = image / cameras * count + which % count;
    const Camera3 view = view_of<Vector, real>(viewmats, intrinsics, image);
    const Vector p = means[i];
    const Seen it = see(view, p, width, height, orthographic);

    real a = 0, b = 0, c = 0;
    double sharp;  // determinant
    if (covariances) {
        const Triple m = triple(it.m0), n = triple(it.m1), first = three_of(covariances, (long long)i * 6), second = three_of(covariances, (long long)i * 6 + 3);
        const Triple rows[3] = {first, {first.y, second.x, second.y}, {first.z, second.y, second.z}};
        const Triple seen_m = {dot(rows[0], m), dot(rows[1], m), dot(rows[2], m)}, seen_n = {dot(rows[0], n), dot(rows[1], n), dot(rows[2], n)};
        const double aa = dot(seen_m, m), ab = dot(seen_m, n), cc = dot(seen_n, n);
        a = (real)aa;
        b = (real)ab;
        c = (real)cc;
        sharp = aa * cc - ab * ab;
    } else {
        Quaternion q = rotations[i];
        const real scale = 1 / sqrt(q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z);
        q = {q.w * scale, q.x * scale, q.y * scale, q.z * scale};
        const Axes axes = axes_of(q);
        const Vector lengths = scales[i];
        const real length[3] = {lengths.x, lengths.y, lengths.z};
        real u[3], v[3];
#pragma unroll
        for (int k = 0; k < 3; k++) {
            const Vector axis = {axes.r[0][k], axes.r[1][k], axes.r[2][k]};
            u[k] = length[k] * dot(axis, it.m0);
            v[k] = length[k] * dot(axis, it.m1);
            a += u[k] * u[k];
            b += u[k] * v[k];
            c += v[k] * v[k];
        }
        // the sum of the squared minors: nothing cancels between a c and b b
        const double xy = (double)u[0] * v[1] - (double)u[1] * v[0], xz = (double)u[0] * v[2] - (double)u[2] * v[0];
        const double yz = (double)u[1] * v[2] - (double)u[2] * v[1];
        sharp = xy * xy + xz * xz + yz * yz;
    }
    a += blur;
    c += blur;
    const double det = (double)a * c - (double)b * b;
    const real compensation = (real)sqrt(max(sharp / det, 0.0));

    real reach = (real)3.33, opacity = 1;
    if (opacities) {
        opacity = opacities[i] * (compensated ? compensation : (real)1);
        reach = min(reach, sqrt((real)1.3862943611198906 * log2(opacity * (real)255)));  // 2 ln 2
    }
    real radius_x = ceil(reach * sqrt(a)), radius_y = ceil(reach * sqrt(c));
    if (isotropic) {
        const real mid = (real)0.5 * (a + c);
        radius_x = radius_y = ceil(3 * sqrt(mid + sqrt(max(mid * mid - (real)det, (real)0.01))));
    }
    const bool seen = it.t.z >= near && it.t.z <= far && det > 0 && opacity >= ALPHA_MIN && !(radius_x <= smallest && radius_y <= smallest)
                      && it.x + radius_x > 0 && it.x - radius_x < width && it.y + radius_y > 0 && it.y - radius_y < height
                      && is_finite(radius_x + radius_y);
    radii[entry] = seen ? Radii{(int)min(radius_x, (real)2147483520.0), (int)min(radius_y, (real)2147483520.0)} : Radii{0, 0};
    if (!conics) return;
    centers[entry] = seen ? Pixel{it.x, it.y} : Pixel{0, 0};
    depths[entry] = seen ? it.t.z : (real)0;
    conics[entry] = seen ? Vector{(real)(c / det), (real)(-b / det), (real)(a / det)} : Vector{0, 0, 0};
    if (compensations) compensations[entry] = seen ? compensation : (real)0;
}

// A thread a row: a Gaussian of a batch, through all its cameras, or with `picked` one of these entries. radii are null with it.
extern "C" __global__ void __launch_bounds__(128) gsplat_project_backward(
    In<Vector> means, In<real> covariances, In<Quaternion> rotations, In<Vector> scales, In<real> viewmats, In<real> intrinsics,
    In<long long> picked, In<Radii> radii, In<Vector> conics, In<real> compensations, In<Pixel> by_centers, In<real> by_depths,
    In<Vector> by_conics, In<real> by_compensations, int rows, int count, int cameras, int width, int height, real blur, int orthographic,
    Out<Vector> to_means, Out<real> to_covariances, Out<Quaternion> to_rotations, Out<Vector> to_scales, Out<real> to_viewmats) {
    const int row = blockIdx.x * 128 + threadIdx.x;
    const bool mine = row < rows;
    int first_image = 0, i = 0;
    if (mine && picked) {
        first_image = (int)picked[row] / count;
        i = first_image / cameras * count + (int)picked[row] % count;
    } else if (mine) {
        first_image = row / count * cameras;
        i = row;
    }
    const Vector p = mine ? (Vector)means[i] : Vector{0, 0, 1};
    Vector columns[3] = {}, by_columns[3] = {};  // of the rotation, times lengths; or the covariance, in the first two
    if (mine && covariances) {
        const long long at = (long long)i * 6;
        columns[0] = {covariances[at], covariances[at + 1], covariances[at + 2]};
        columns[1] = {covariances[at + 3], covariances[at + 4], covariances[at + 5]};
    } else if (mine) {
        const Turn turn = turn_of(rotations[i]);
        const Vector s = scales[i];
        columns[0] = {(real)(s.x * turn.axes[0].x), (real)(s.x * turn.axes[0].y), (real)(s.x * turn.axes[0].z)};
        columns[1] = {(real)(s.y * turn.axes[1].x), (real)(s.y * turn.axes[1].y), (real)(s.y * turn.axes[1].z)};
        columns[2] = {(real)(s.z * turn.axes[2].x), (real)(s.z * turn.axes[2].y), (real)(s.z * turn.axes[2].z)};
    }
    Vector by_mean = {0, 0, 0};
    bool anywhere = false;
    for (int camera = 0; camera < (picked ? 1 : cameras); camera++) {  // as often in all lanes
        const int image = first_image + camera, entry = picked ? row : image * count + row % count;
        const bool seen = mine && (picked || (radii[entry].x > 0 && radii[entry].y > 0));
        Vector by_axes[3] = {}, by_t = {0, 0, 0};
        anywhere |= seen;
        if (seen) {
            const Camera3 view = view_of<Vector, real>(viewmats, intrinsics, image);
            const Seen it = see(view, p, width, height, orthographic);
            // of an inverse P: -P G P
            const Vector conic = conics[entry], by_conic = by_conics[entry];
            const real A = conic.x, B = conic.y, C = conic.z, half = (real)0.5 * by_conic.y;
            const real t00 = by_conic.x * A + half * B, t01 = by_conic.x * B + half * C, t10 = half * A + by_conic.z * B, t11 = half * B + by_conic.z * C;
            real by_a = -(A * t00 + B * t10), by_b = -2 * (A * t01 + B * t11), by_c = -(B * t01 + C * t11);
            real by_sharp = 0;  // by the determinant without blur
            if (by_compensations) {  // its square is sharp D
                const real compensation = compensations[entry], by_square = by_compensations[entry] * (real)0.5 / (compensation + (real)1e-6);
                by_sharp = by_square * (real)((double)A * C - (double)B * B);
                by_a -= by_square * compensation * compensation * A;
                by_b -= by_square * compensation * compensation * 2 * B;
                by_c -= by_square * compensation * compensation * C;
            }
            const Vector m = it.m0, n = it.m1;
            Vector by_m0 = {0, 0, 0}, by_m1 = {0, 0, 0};
            if (covariances) {
                const Symmetric sigma = {columns[0].x, columns[0].y, columns[0].z, columns[1].x, columns[1].y, columns[1].z};
                const Vector s0 = times(sigma, m), s1 = times(sigma, n);
                by_a += by_sharp * dot(s1, n);
                by_b -= by_sharp * 2 * dot(s0, n);
                by_c += by_sharp * dot(s0, m);
                by_columns[0] = plus(by_columns[0], {by_a * m.x * m.x + by_b * m.x * n.x + by_c * n.x * n.x,
                                                     2 * by_a * m.x * m.y + by_b * (m.x * n.y + m.y * n.x) + 2 * by_c * n.x * n.y,
                                                     2 * by_a * m.x * m.z + by_b * (m.x * n.z + m.z * n.x) + 2 * by_c * n.x * n.z});
                by_columns[1] = plus(by_columns[1], {by_a * m.y * m.y + by_b * m.y * n.y + by_c * n.y * n.y,
                                                     2 * by_a * m.y * m.z + by_b * (m.y * n.z + m.z * n.y) + 2 * by_c * n.y * n.z,
                                                     by_a * m.z * m.z + by_b * m.z * n.z + by_c * n.z * n.z});
                by_m0 = plus(times(2 * by_a, s0), times(by_b, s1));
                by_m1 = plus(times(by_b, s0), times(2 * by_c, s1));
            } else {
                real u[3], v[3];
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    u[k] = dot(columns[k], m);
                    v[k] = dot(columns[k], n);
                }
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    real by_u = 2 * by_a * u[k] + by_b * v[k], by_v = by_b * u[k] + 2 * by_c * v[k];
                    for (int other = 0; other < 3; other++) {  // the squares of the minors: a needle's cancel in none of them
                        const real minor = 2 * by_sharp * (real)((double)u[k] * v[other] - (double)u[other] * v[k]);
                        by_u += minor * v[other];
                        by_v -= minor * u[other];
                    }
                    by_columns[k] = plus(by_columns[k], plus(times(by_u, m), times(by_v, n)));
                    by_m0 = plus(by_m0, times(by_u, columns[k]));
                    by_m1 = plus(by_m1, times(by_v, columns[k]));
                }
            }

            const Pixel by = by_centers[entry];
            const real over_x = view.fx * it.inverse, over_y = view.fy * it.inverse;
            by_axes[0] = times(over_x, by_m0);
            by_axes[1] = times(over_y, by_m1);
            by_axes[2] = plus(times(-it.edge_x, by_axes[0]), times(-it.edge_y, by_axes[1]));
            by_t = {over_x * by.x, over_y * by.y, by_depths[entry]};
            if (!orthographic) {
                const real ahead_x = dot(by_axes[0], view.axes[2]), ahead_y = dot(by_axes[1], view.axes[2]);
                real by_z = by.x * view.fx * it.t.x + by.y * view.fy * it.t.y;  // times -1 / z^2
                by_z += (dot(by_m0, m) + dot(by_m1, n)) * it.t.z;
                if (it.free_x) {
                    by_t.x -= ahead_x * it.inverse;
                    by_z -= ahead_x * it.t.x;
                }
                if (it.free_y) {
                    by_t.y -= ahead_y * it.inverse;
                    by_z -= ahead_y * it.t.y;
                }
                by_t.z -= by_z * it.inverse * it.inverse;
            }
            by_mean = plus(by_mean, to_world(view, by_t));
            for (int k = 0; k < 3; k++) by_axes[k] = plus(by_axes[k], times(k == 0 ? by_t.x : k == 1 ? by_t.y : by_t.z, p));
        }
        if (to_viewmats) add_to_view(to_viewmats, image, seen, by_axes, by_t);
    }
    if (!mine) return;
    to_means[row] = by_mean;
    if (covariances) {
        put_symmetric(to_covariances, row, 1, {by_columns[0].x, by_columns[0].y, by_columns[0].z, by_columns[1].x, by_columns[1].y, by_columns[1].z});
        return;
    }
    const Turn turn = turn_of(anywhere ? (Quaternion)rotations[i] : Quaternion{1, 0, 0, 0});  // what is seen nowhere may be no number
    const Vector s = anywhere ? (Vector)scales[i] : Vector{0, 0, 0};
    const Triple by[3] = {triple(by_columns[0]), triple(by_columns[1]), triple(by_columns[2])};
    to_rotations[row] = turned_back(turn, times(s.x, by[0]), times(s.y, by[1]), times(s.z, by[2]));
    to_scales[row] = {(real)dot(by[0], turn.axes[0]), (real)dot(by[1], turn.axes[1]), (real)dot(by[2], turn.axes[2])};
}

// The rectangle of tiles that the radii touch; that of a later image lies below those of the ones before. images: [entries], of packed ones.
extern "C" __global__ void __launch_bounds__(256) gsplat_boxes(
    In<Pixel> centers, In<Radii> radii, In<long long> images, int entries, int count, real tile_size, int columns, int rows, Out<Box> boxes,
    Out<int> tile_counts) {
    const int entry = blockIdx.x * 256 + threadIdx.x;
    if (entry >= entries) return;
    const Radii r = radii[entry];
    Box box = {0, 0, 0, 0};
    if (r.x > 0 && r.y > 0) {
        const Pixel at = centers[entry];
        const real x = at.x / tile_size, y = at.y / tile_size, half_x = r.x / tile_size, half_y = r.y / tile_size;
        box = {clamp(floor(x - half_x), columns), clamp(ceil(x + half_x), columns), clamp(floor(y - half_y), rows), clamp(ceil(y + half_y), rows)};
    }
    tile_counts[entry] = (box.right - box.left) * (box.bottom - box.top);
    const int below = (images ? (int)images[entry] : entry / count) * rows;
    box.top += below;
    box.bottom += below;
    boxes[entry] = box;
}

// gsplat's number of a pair: image | tile | bits of the depth, the last of 32 bits, the tile of `bits`. tiles: numbers through all images.
extern "C" __global__ void __launch_bounds__(256) gsplat_pair_ids(
    In<int> tiles, In<int> gaussians, In<int> depths, int pairs, int tiles_of_image, int bits, Out<long long> ids) {
    const int k = blockIdx.x * 256 + threadIdx.x;
    if (k >= pairs) return;
    const long long tile = (long long)(tiles[k] / tiles_of_image) << bits | tiles[k] % tiles_of_image;
    ids[k] = tile << 32 | (unsigned)depths[gaussians[k]];
}
