// gsplat's compiled functions, forward and backward, for a GPU in single precision: the contract of splatfix/kernels/gsplat_csrc.py.
//
//   gsplat_points.cu      a thread a Gaussian: covariances, spherical harmonics, relocation, Adam
//   gsplat_projection.cu  a thread a Gaussian and camera: into the image; the tiles of each
//                         (torch: sort by depth; binning.cu lists; torch: sort by tile)
//   gsplat_pixels.cu      a block a tile, as blending.cu; and which Gaussians a pixel takes
//   gsplat_surfels.cu     2DGS: projection, and a block a tile, as surfels.cu
//
// Layouts are gsplat's. Images are numbered through batches and cameras; `image` and `entry` are numbers of one and of a Gaussian in one.
#pragma once
#include "discs.h"

constexpr real CAP = (real)0.999;  // of alpha: beyond it there is no gradient

// A camera: [R t] from the world, row by row, and the intrinsics.
template <class V, class T> struct View {
    V axes[3], shift;
    T fx, fy, cx, cy;
};

template <class V, class T> __device__ __forceinline__ View<V, T> view_of(In<real> viewmats, In<real> intrinsics, int image) {
    const long long m = (long long)image * 16, k = (long long)image * 9;
    View<V, T> it;
    for (int row = 0; row < 3; row++) it.axes[row] = {(T)viewmats[m + 4 * row], (T)viewmats[m + 4 * row + 1], (T)viewmats[m + 4 * row + 2]};
    it.shift = {(T)viewmats[m + 3], (T)viewmats[m + 7], (T)viewmats[m + 11]};
    it.fx = intrinsics[k];
    it.fy = intrinsics[k + 4];
    it.cx = intrinsics[k + 2];
    it.cy = intrinsics[k + 5];
    return it;
}

template <class V, class T> __device__ __forceinline__ V seen_from(const View<V, T>& view, const V& p) {
    return plus(V{dot(view.axes[0], p), dot(view.axes[1], p), dot(view.axes[2], p)}, view.shift);
}

// Of V = (x, y, z) of camera axes in the world: the vector in the world.
template <class V, class T> __device__ __forceinline__ V to_world(const View<V, T>& view, const V& v) {
    return plus(plus(times(v.x, view.axes[0]), times(v.y, view.axes[1])), times(v.z, view.axes[2]));
}

// Adds what each lane has for the 3 x 4 numbers of its camera; once for the warp where all have the same. All lanes come here.
template <class V> __device__ __forceinline__ void add_to_view(const Out<real>& to_viewmats, int image, bool has, const V* by_axes, const V& by_shift) {
    const unsigned lanes = __ballot_sync(FULL_WARP, has);
    if (!lanes) return;
    const int first = __shfl_sync(FULL_WARP, image, __ffs((int)lanes) - 1);
    const bool same = __all_sync(FULL_WARP, !has || image == first);
    const real by[12] = {(real)by_axes[0].x, (real)by_axes[0].y, (real)by_axes[0].z, (real)by_shift.x,
                         (real)by_axes[1].x, (real)by_axes[1].y, (real)by_axes[1].z, (real)by_shift.y,
                         (real)by_axes[2].x, (real)by_axes[2].y, (real)by_axes[2].z, (real)by_shift.z};
#pragma unroll
    for (int k = 0; k < 12; k++) {
        real sum = has ? by[k] : (real)0;
        for (int d = WARP / 2; same && d; d /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, d);
        if (same ? threadIdx.x % WARP == 0 : has) add_to(to_viewmats, (long long)(same ? first : image) * 16 + k, sum);
    }
}

// Where the pairs of the tile of a pixel begin and end; `masked` where nothing of it is drawn.
struct Tile { int begin, end; bool masked; };

// A block draws TILE x TILE pixels, of which one of gsplat's tiles has a whole number; pixel x, y is its first.
__device__ __forceinline__ Tile tile_of(In<int> offsets, In<bool> masks, int image, int x, int y, int tile_size, int columns, int rows, int pairs) {
    const int tile = (image * rows + y / tile_size) * columns + x / tile_size, last = (int)gridDim.z * rows * columns - 1;
    return {offsets[tile], tile == last ? pairs : (int)offsets[tile + 1], masks && !masks[tile]};
}
