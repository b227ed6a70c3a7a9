// The pairs of a Gaussian and a tile that it covers, by tile and then by depth: the order in which blending.cu takes them.
#include "tiles.h"

#ifndef KEY
#define KEY int  // a tile's number; short where there are fewer than 32,768
#endif
#define MANY_TILES 64  // from here on a warp lists a Gaussian's tiles together

typedef KEY key;

// order: Gaussians by depth; ends: running sum of their tile counts in that order. Nothing is written at a Gaussian's end or behind it, and where
// fewer tiles are listed than were counted, a tile behind the last one stands for the rest: it sorts last, and `find_ranges` leaves it out.
extern "C" __global__ void __launch_bounds__(256) list_pairs(
    In<Splat> splats, In<long long> order, In<long long> ends, In<int> tile_counts, int count, int width, int height, real slack, real compact,
    Out<key> tiles, Out<int> gaussians) {
    const int rank = blockIdx.x * 256 + threadIdx.x, columns = (width + TILE - 1) / TILE, rows = (height + TILE - 1) / TILE, lane = threadIdx.x % WARP;
    const int mine = rank < count ? (int)order[rank] : 0, many = rank < count ? tile_counts[mine] : 0;
    const long long my_end = rank < count ? ends[rank] : 0;
    if (many && many < MANY_TILES) {
        const Splat s = splats[mine];
        const Cover it = cover_of(s, width, height, slack, compact);
        long long at = my_end - many;
        for (int row = it.top; row < it.bottom; row++) {
            int from, to;
            tiles_in_row(it, row, from, to);
            for (int column = from; column < to && at < my_end; column++, at++) {
                tiles[at] = (key)(row * columns + column);
                gaussians[at] = mine;
            }
        }
        for (; at < my_end; at++) {
            tiles[at] = (key)(rows * columns);
            gaussians[at] = mine;
        }
    }
    for (unsigned large = __ballot_sync(FULL_WARP, many >= MANY_TILES); large; large &= large - 1) {
        const int from_lane = __ffs((int)large) - 1;
        const int whose = __shfl_sync(FULL_WARP, mine, from_lane);
        const long long end = __shfl_sync(FULL_WARP, my_end, from_lane);
        long long at = end - __shfl_sync(FULL_WARP, many, from_lane);
        const Splat s = splats[whose];
        const Cover it = cover_of(s, width, height, slack, compact);
        for (int row = it.top; row < it.bottom; row++) {
            int from, to;
            tiles_in_row(it, row, from, to);
            for (long long k = at + lane; k < min(at + to - from, end); k += WARP) {
                tiles[k] = (key)(row * columns + from + (int)(k - at));
                gaussians[k] = whose;
            }
            at += to - from;
        }
        for (long long k = at + lane; k < end; k += WARP) {
            tiles[k] = (key)(rows * columns);
            gaussians[k] = whose;
        }
    }
}

// The same for rectangles of tiles (surfels).
struct alignas(16) Box { int left, right, top, bottom; };  // tiles, half open

extern "C" __global__ void __launch_bounds__(256) list_boxes(
    In<Box> boxes, In<long long> order, In<long long> ends, In<int> tile_counts, int count, int columns, Out<key> tiles, Out<int> gaussians) {
    const int rank = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x % WARP;
    const int mine = rank < count ? (int)order[rank] : 0, many = rank < count ? tile_counts[mine] : 0;
    const long long begin = rank < count ? ends[rank] - many : 0;
    if (many && many < MANY_TILES) {
        const Box box = boxes[mine];
        const int across = box.right - box.left;
        for (int k = 0; k < many; k++) {
            tiles[begin + k] = (key)((box.top + k / across) * columns + box.left + k % across);
            gaussians[begin + k] = mine;
        }
    }
    for (unsigned large = __ballot_sync(FULL_WARP, many >= MANY_TILES); large; large &= large - 1) {
        const int from_lane = __ffs((int)large) - 1;
        const int whose = __shfl_sync(FULL_WARP, mine, from_lane), how_many = __shfl_sync(FULL_WARP, many, from_lane);
        const long long at = __shfl_sync(FULL_WARP, begin, from_lane);
        const Box box = boxes[whose];
        const int across = box.right - box.left;
        for (int k = lane; k < how_many; k += WARP) {
            tiles[at + k] = (key)((box.top + k / across) * columns + box.left + k % across);
            gaussians[at + k] = whose;
        }
    }
}

// ranges: [tile_count, 2], zeros at first.
extern "C" __global__ void __launch_bounds__(256) find_ranges(In<key> tiles, int count, int tile_count, Out<int> ranges) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const int tile = tiles[i];
    if (tile >= tile_count) return;  // nobody's
    if (i == 0 || tiles[i - 1] != tile) ranges[2 * tile] = i;
    if (i == count - 1 || tiles[i + 1] != tile) ranges[2 * tile + 1] = i + 1;
}
