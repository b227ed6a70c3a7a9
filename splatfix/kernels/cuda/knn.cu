// The mean of the squared distances to the 3 nearest other points, exactly: the contract of splatfix/kernels/knn.py.
//
// The points come sorted along a Morton curve (`knn_codes`, then torch's stable sort). Eight neighbors on the curve are a leaf, eight
// leaves a node, and so on: a tree without pointers, whose node i of level l holds the nodes 8 i ... 8 i + 7 of level l - 1, each with
// its bounding box (`knn_leaves`, `knn_nodes`). One thread a point walks it without a stack: go down where the box is nearer than
// the third best distance so far, else to the next node, and up where a group of eight ends. The walk begins with a bound from the point's own
// leaf, and neighboring threads are neighboring points, so a warp walks together.
//
// Distances are sums of squared differences, so duplicates are at exactly 0 and a shift of all points costs what it costs in the input.
// A box is never farther than a point in it: its distance is computed from the same subtractions, which round monotonically.
#include "common.h"

#define GROUP 8
#define LEVELS 12  // 8^11 leaves: more points than 31 bits count

struct Point { real x, y, z; };
struct Box { Point low, high; };

__device__ __forceinline__ unsigned long long spread_bits(unsigned long long v) {  // 21 bits to every third place
    v = (v | v << 32) & 0x001f00000000ffffull;
    v = (v | v << 16) & 0x001f0000ff0000ffull;
    v = (v | v << 8) & 0x100f00f00f00f00full;
    v = (v | v << 4) & 0x10c30c30c30c30c3ull;
    return (v | v << 2) & 0x1249249249249249ull;
}

__device__ __forceinline__ unsigned long long cell(real v, real low, real high) {
    const real part = high > low ? (v - low) / (high - low) : (real)0;
    return (unsigned long long)(min(max(part, (real)0), (real)1) * (real)2097151);
}

// bounds: lowest and highest coordinates, six numbers.
extern "C" __global__ void __launch_bounds__(256) knn_codes(In<Point> points, In<real> bounds, int count, Out<long long> codes) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const Point p = points[i];
    codes[i] = (long long)(spread_bits(cell(p.x, bounds[0], bounds[3])) | spread_bits(cell(p.y, bounds[1], bounds[4])) << 1
                           | spread_bits(cell(p.z, bounds[2], bounds[5])) << 2);
}

__device__ __forceinline__ void grow(Box& box, const Point& low, const Point& high) {
    box.low = {min(box.low.x, low.x), min(box.low.y, low.y), min(box.low.z, low.z)};
    box.high = {max(box.high.x, high.x), max(box.high.y, high.y), max(box.high.z, high.z)};
}

extern "C" __global__ void __launch_bounds__(256) knn_leaves(In<Point> points, int count, int leaves, Out<Box> boxes) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= leaves) return;
    Box box = {points[i * GROUP], points[i * GROUP]};
    for (int k = i * GROUP + 1; k < min(count, (i + 1) * GROUP); k++) grow(box, points[k], points[k]);
    boxes[i] = box;
}

// The boxes of a level, `nodes` of them, from the `below` boxes of the level below.
extern "C" __global__ void __launch_bounds__(256) knn_nodes(In<Box> children, int below, int nodes, Out<Box> boxes) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= nodes) return;
    Box box = children[i * GROUP];
    for (int k = i * GROUP + 1; k < min(below, (i + 1) * GROUP); k++) { const Box child = children[k]; grow(box, child.low, child.high); }
    boxes[i] = box;
}

__device__ __forceinline__ real outside(real v, real low, real high) { return max(max(low - v, v - high), (real)0); }

__device__ __forceinline__ real distance(const Point& p, const Box& box) {
    const real x = outside(p.x, box.low.x, box.high.x), y = outside(p.y, box.low.y, box.high.y), z = outside(p.z, box.low.z, box.high.z);
    return x * x + y * y + z * z;
}

__device__ __forceinline__ real distance(const Point& p, const Point& q) {
    const real x = p.x - q.x, y = p.y - q.y, z = p.z - q.z;
    return x * x + y * y + z * z;
}

struct Best { real first, second, third; };

__device__ __forceinline__ void keep(Best& best, real d) {
    if (d >= best.third) return;
    if (d >= best.second) { best.third = d; return; }
    best.third = best.second;
    if (d >= best.first) { best.second = d; return; }
    best.second = best.first;
    best.first = d;
}

__device__ __forceinline__ void look_into(In<Point> points, int leaf, int count, int self, const Point& p, Best& best) {
    for (int k = leaf * GROUP; k < min(count, (leaf + 1) * GROUP); k++)
        if (k != self) keep(best, distance(p, points[k]));
}

// boxes: all levels one after the other, beginning with the leaves; order: which point each sorted one was.
extern "C" __global__ void __launch_bounds__(128) knn_search(
    In<Point> points, In<Box> boxes, In<long long> order, int count, Out<real> mean_squared) {
    const int self = blockIdx.x * 128 + threadIdx.x;
    if (self >= count) return;
    const Point p = points[self];
    const real most = (real)3.402823466e38f;
    Best best = {most, most, most};
    const int own = self / GROUP;
    look_into(points, own, count, self, p, best);

    int sizes[LEVELS], starts[LEVELS], top = 0;
    sizes[0] = (count + GROUP - 1) / GROUP;
    starts[0] = 0;
    while (sizes[top] > 1) {
        starts[top + 1] = starts[top] + sizes[top];
        sizes[top + 1] = (sizes[top] + GROUP - 1) / GROUP;
        top++;
    }
    int level = top, node = 0;
    while (true) {
        if (distance(p, boxes[starts[level] + node]) < best.third) {
            if (level > 0) { level--; node *= GROUP; continue; }
            if (node != own) look_into(points, node, count, self, p, best);
        }
        node++;
        while (level < top && (node % GROUP == 0 || node == sizes[level])) {
            node = (node + GROUP - 1) / GROUP;  // the parent's next
            level++;
        }
        if (level == top) break;
    }
    mean_squared[order[self]] = (best.first + best.second + best.third) / 3;
}
