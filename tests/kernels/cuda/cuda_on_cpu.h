// CUDA's execution model on a CPU, for tests: every thread of a block is a fiber, and everything a kernel may do wrong is reported.
//
// Blocks run one after the other in a random order; the fibers of a block run in random orders between barriers. Reported are: an
// index outside an array; an array that does not begin where its elements may be loaded at once; shared memory that is read before it is written (it starts as garbage); two threads that touch the same
// element, one of them writing, without a barrier between (shared memory) or at all (global memory: within one launch no barrier
// orders blocks, so any such pair is one), atomics apart; a barrier or warp primitive that not all threads reach, or from
// different lines. What a real GPU can still do differently: the rounding of exp2f and of contracted multiply-adds, the order of
// atomic additions, and memory that is reused while a launch is under way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

struct dim3 { unsigned x = 1, y = 1, z = 1; };
using std::min; using std::max; using std::exp2; using std::log2; using std::sqrt; using std::ceil; using std::floor; using std::fabs;
inline long long min(long long a, int b) { return std::min<long long>(a, b); }
inline long long max(long long a, int b) { return std::max<long long>(a, b); }
inline double min(double a, float b) { return std::min<double>(a, b); }
inline double max(double a, float b) { return std::max<double>(a, b); }
inline double min(float a, double b) { return std::min<double>(a, b); }
inline double max(float a, double b) { return std::max<double>(a, b); }
inline int __float_as_int(float x) { int out; memcpy(&out, &x, 4); return out; }
inline float __int_as_float(int x) { float out; memcpy(&out, &x, 4); return out; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

namespace emu {

const unsigned NOBODY = ~0u, MANY = ~0u - 1, LANES = 32;

struct SharedArray { virtual void reset() = 0; };
enum State { READY, AT_BARRIER, AT_WARP, DONE };

struct Fiber {
    std::unique_ptr<char[]> stack;
#ifdef __x86_64__
    void* sp = nullptr;
#else
    ucontext_t context;
#endif
    State state = DONE;
    int line = 0;
    unsigned char slot[64];  // what a lane offers in a warp primitive
};

struct Machine {
    std::vector<Fiber> fibers;
    std::vector<SharedArray*> shared;
    std::set<std::string> problems;
    std::mt19937 random;
    dim3 grid, block, block_index, thread_index;
    unsigned current = 0, threads = 0, launch_block = 0, epoch = 1, first_block = 0;
    int votes = 0, voted = 0;
    void (*body)(void*) = nullptr;
    void* argument = nullptr;
#ifdef __x86_64__
    void* home = nullptr;
#else
    ucontext_t home;
#endif
    unsigned global_id() const { return launch_block * threads + current; }
};
inline Machine& machine() { static Machine it; return it; }

inline void problem(const char* format, const char* what, long long a = 0, long long b = 0) {
    char text[300];
    snprintf(text, sizeof text, format, what, a, b);
    if (machine().problems.size() < 20) machine().problems.insert(text);
}

const size_t STACK = 64 << 10;

#ifdef __x86_64__
extern "C" void emu_switch(void** save, void* load);
asm(R"(
.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
inline void leave() { auto& m = machine(); emu_switch(&m.fibers[m.current].sp, m.home); }
inline void enter(unsigned t) { auto& m = machine(); emu_switch(&m.home, m.fibers[t].sp); }
#else
inline void leave() { auto& m = machine(); swapcontext(&m.fibers[m.current].context, &m.home); }
inline void enter(unsigned t) { auto& m = machine(); swapcontext(&m.home, &m.fibers[t].context); }
#endif

inline void fiber_main() {
    for (;;) {
        auto& m = machine();
        m.body(m.argument);
        m.fibers[m.current].state = DONE;
        leave();
    }
}

inline void prepare(Fiber& fiber) {
    if (!fiber.stack) fiber.stack.reset(new char[STACK]);
#ifdef __x86_64__
    auto top = (uintptr_t)(fiber.stack.get() + STACK) & ~(uintptr_t)15;
    auto* frame = (void**)top - 8;  // six registers, the address that `ret` takes, and one for alignment
    memset(frame, 0, 8 * sizeof(void*));
    frame[6] = (void*)fiber_main;
    fiber.sp = frame;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
#endif
}

inline void place(unsigned t) {
    auto& m = machine();
    m.current = t;
    m.thread_index = {t % m.block.x, t / m.block.x % m.block.y, t / (m.block.x * m.block.y)};
}

inline void wait(State state, int line) {
    auto& m = machine();
    Fiber& mine = m.fibers[m.current];
    mine.state = state;
    mine.line = line;
    leave();
}

// Frees warps whose 32 lanes wait at the same line; true if any was.
inline bool free_warps() {
    auto& m = machine();
    bool freed = false;
    for (unsigned w = 0; w < m.threads; w += LANES) {
        bool all = true;
        for (unsigned t = w; t < w + LANES; t++) all &= m.fibers[t].state == AT_WARP && m.fibers[t].line == m.fibers[w].line;
        if (all) for (unsigned t = w; t < w + LANES; t++) m.fibers[t].state = READY;
        freed |= all;
    }
    return freed;
}

inline void run_block() {
    auto& m = machine();
    for (auto* array : m.shared) array->reset();
    m.epoch++;
    m.votes = 0;
    std::vector<unsigned> order(m.threads);
    for (unsigned t = 0; t < m.threads; t++) { order[t] = t; prepare(m.fibers[t]); m.fibers[t].state = READY; }
    for (;;) {
        std::shuffle(order.begin(), order.end(), m.random);
        for (unsigned t : order) if (m.fibers[t].state == READY) { place(t); enter(t); }
        if (free_warps()) continue;
        unsigned done = 0, waiting = 0;
        bool one_line = true;
        int line = 0;
        for (unsigned t = 0; t < m.threads; t++) {
            done += m.fibers[t].state == DONE;
            if (m.fibers[t].state != AT_BARRIER) continue;
            one_line &= !waiting || m.fibers[t].line == line;
            line = m.fibers[t].line;
            waiting++;
        }
        if (done == m.threads) return;
        if (waiting != m.threads || !one_line) {
            if (waiting) problem("%s at line %lld: %lld threads did not come, or to another one", "barrier", line, m.threads - waiting);
            else problem("%s: lanes of a warp are at different places, or ended", "warp primitive");
            return;
        }
        m.voted = m.votes;
        m.votes = 0;
        m.epoch++;
        for (unsigned t = 0; t < m.threads; t++) m.fibers[t].state = READY;
    }
}

// Who touched an element, and when: `epoch` counts the barriers of a block, or the launches for global memory.
struct Touch { unsigned writer = NOBODY, reader = NOBODY, written = 0, read = 0; bool atomic = false; };

inline void touch(Touch& it, bool writes, bool atomic, unsigned who, unsigned epoch, const char* name, long long i) {
    bool others_wrote = it.written == epoch && it.writer != who && !(atomic && it.atomic);
    bool others_read = it.read == epoch && it.reader != who;
    if (others_wrote || (writes && others_read)) problem("race on %s[%lld]", name, i);
    if (writes) {
        it.writer = it.written == epoch && it.writer != who ? MANY : who;
        it.written = epoch;
        it.atomic = atomic;
    } else {
        it.reader = it.read == epoch && it.reader != who ? MANY : who;
        it.read = epoch;
    }
}

template <class A> struct Ref {
    A* array;
    long long i;
    typedef typename A::Item T;
    operator T() const { return array->get(i); }
    Ref& operator=(const T& value) { array->put(i, value); return *this; }
    Ref& operator=(const Ref& other) { array->put(i, (T)other); return *this; }
    Ref& operator+=(const T& value) { array->put(i, array->get(i) + value); return *this; }
};

template <class T, size_t N> struct Shared : SharedArray {
    typedef T Item;
    const char* name;
    T items[N];
    Touch touched[N];
    unsigned born[N];
    explicit Shared(const char* name) : name(name) { machine().shared.push_back(this); reset(); }
    void reset() override { memset((void*)items, 0xff, sizeof items); memset(born, 0, sizeof born); }
    bool outside(long long i) { if (i >= 0 && i < (long long)N) return false; problem("%s[%lld] is outside its %lld", name, i, N); return true; }
    T get(long long i) {
        if (outside(i)) return T();
        if (!born[i]) problem("%s[%lld] is read before it is written", name, i);
        touch(touched[i], false, false, machine().current, machine().epoch, name, i);
        return items[i];
    }
    void put(long long i, const T& value, bool atomic = false) {
        if (outside(i)) return;
        touch(touched[i], true, atomic, machine().current, machine().epoch, name, i);
        born[i] = 1;
        items[i] = value;
    }
    Ref<Shared> operator[](long long i) { return {this, i}; }
};

struct Raw { void* data; long long bytes, start; };  // how the caller passes an array, or of a long one the part from `start` on

template <class T> void check_alignment(const Raw& raw, int index) {
    if ((uintptr_t)raw.data % alignof(T)) problem("%s %lld is not aligned to %lld bytes", "argument", index, alignof(T));
}

template <class T> struct In {
    const T* data; long long count, start; int index;
    In(const Raw& raw, int index) : data((const T*)raw.data), count(raw.bytes / sizeof(T)), start(raw.start / sizeof(T)), index(index) {
        check_alignment<T>(raw, index);
    }
    explicit operator bool() const { return data != nullptr; }
    T operator[](long long i) const {
        if (i >= start && i < start + count) return data[i - start];
        problem("%s %lld is read outside, at %lld", "argument", index, i);
        return T();
    }
};

template <class T> struct Out {
    typedef T Item;
    T* data; long long count, start; int index;
    std::shared_ptr<std::vector<Touch>> touched;
    char name[24];
    Out(const Raw& raw, int index)
        : data((T*)raw.data), count(raw.bytes / sizeof(T)), start(raw.start / sizeof(T)), index(index), touched(new std::vector<Touch>(count)) {
        snprintf(name, sizeof name, "argument %d", index);
        check_alignment<T>(raw, index);
    }
    explicit operator bool() const { return data != nullptr; }
    bool outside(long long i) {
        if (i >= start && i < start + count) return false;
        problem("%s is touched outside, at %lld of %lld", name, i, start + count);
        return true;
    }
    T get(long long i) {
        if (outside(i)) return T();
        touch((*touched)[i - start], false, false, machine().global_id(), 1, name, i);
        return data[i - start];
    }
    void put(long long i, const T& value) {
        if (outside(i)) return;
        touch((*touched)[i - start], true, false, machine().global_id(), 1, name, i);
        data[i - start] = value;
    }
    void add(long long i, const T& value) {
        if (outside(i)) return;
        touch((*touched)[i - start], true, true, machine().global_id(), 1, name, i);
        data[i - start] += value;
    }
    Ref<Out> operator[](long long i) const { return {const_cast<Out*>(this), i}; }
};

template <class T> struct Argument { static T make(void* raw, int) { return *(T*)raw; } };
template <class T> struct Argument<In<T>> { static In<T> make(void* raw, int i) { return {*(Raw*)raw, i}; } };
template <class T> struct Argument<Out<T>> { static Out<T> make(void* raw, int i) { return {*(Raw*)raw, i}; } };

template <class... A, size_t... I>
void run(void (*kernel)(A...), dim3 grid, dim3 block, void** raw, std::index_sequence<I...>) {
    auto arguments = std::make_tuple(Argument<A>::make(raw[I], I)...);
    auto call = [&] { kernel(std::get<I>(arguments)...); };
    auto& m = machine();
    if (!m.problems.empty()) return;  // an array that is not aligned ends this process, as it does a GPU's context
    m.grid = grid;
    m.block = block;
    m.threads = block.x * block.y * block.z;
    if (m.threads % LANES) return problem("%s of %lld threads is no whole number of warps", "block", m.threads);
    if (m.fibers.size() < m.threads) m.fibers.resize(m.threads);
    m.body = [](void* it) { (*(decltype(call)*)it)(); };
    m.argument = &call;
    std::vector<unsigned> order(grid.x * grid.y * grid.z - m.first_block);
    for (unsigned i = 0; i < order.size(); i++) order[i] = m.first_block + i;
    std::shuffle(order.begin(), order.end(), m.random);
    for (unsigned i : order) {
        m.launch_block = i;
        m.block_index = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
        run_block();
    }
}
template <class... A> void run(void (*kernel)(A...), dim3 grid, dim3 block, void** raw, size_t count) {
    if (count != sizeof...(A)) return problem("%s takes %lld arguments", "the kernel", (long long)sizeof...(A));
    run(kernel, grid, block, raw, std::index_sequence_for<A...>());
}

inline void check_mask(unsigned mask, int line) { if (mask != ~0u) problem("%s at line %lld: not the whole warp", "warp primitive", line); }
template <class T> T exchange(unsigned mask, const T& value, unsigned from, int line) {
    auto& m = machine();
    static_assert(sizeof(T) <= sizeof(Fiber::slot), "too large to exchange");
    check_mask(mask, line);
    unsigned me = m.current;
    memcpy(m.fibers[me].slot, &value, sizeof(T));
    wait(AT_WARP, line);
    T out;
    memcpy((void*)&out, m.fibers[me / LANES * LANES + from].slot, sizeof(T));
    wait(AT_WARP, -line);  // nobody offers anew before all have read
    return out;
}
inline unsigned gather(unsigned mask, bool vote, int line) {
    auto& m = machine();
    check_mask(mask, line);
    m.fibers[m.current].slot[0] = vote;
    wait(AT_WARP, line);
    unsigned out = 0;
    for (unsigned lane = 0; lane < LANES; lane++) out |= (unsigned)m.fibers[m.current / LANES * LANES + lane].slot[0] << lane;
    wait(AT_WARP, -line);
    return out;
}
inline int barrier(int vote, int line) { auto& m = machine(); m.votes += vote != 0; wait(AT_BARRIER, line); return m.voted; }
inline unsigned lane() { return machine().current % LANES; }
}  // namespace emu

using emu::In;
using emu::Out;
#define SHARED(T, name, n) static emu::Shared<T, n> name(#name)
template <class T> void add_to(const Out<T>& array, long long i, T value) { const_cast<Out<T>&>(array).add(i, value); }

#define threadIdx (emu::machine().thread_index)
#define blockIdx (emu::machine().block_index)
#define blockDim (emu::machine().block)
#define gridDim (emu::machine().grid)
#define __syncthreads() emu::barrier(0, __LINE__)
#define __syncthreads_count(p) emu::barrier(p, __LINE__)
#define __shfl_sync(mask, v, from) emu::exchange(mask, v, (from) % 32u, __LINE__)
#define __shfl_up_sync(mask, v, d) emu::exchange(mask, v, emu::lane() >= (unsigned)(d) ? emu::lane() - (d) : emu::lane(), __LINE__)
#define __shfl_xor_sync(mask, v, d) emu::exchange(mask, v, emu::lane() ^ (d), __LINE__)
#define __ballot_sync(mask, p) emu::gather(mask, p, __LINE__)
#define __any_sync(mask, p) (emu::gather(mask, p, __LINE__) != 0)
#define __all_sync(mask, p) (emu::gather(mask, p, __LINE__) == ~0u)
