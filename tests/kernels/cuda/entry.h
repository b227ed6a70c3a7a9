// Behind the kernels of a file, and `run_by_name`, which runs one of them or says that there is none of that name.
#pragma once

extern "C" int emulate(
    const char* name, const unsigned* grid, const unsigned* block, unsigned first, void** arguments, size_t count, unsigned seed,
    char* said, size_t room
) {
    auto& m = emu::machine();
    m.problems.clear();
    m.random.seed(seed);
    m.first_block = first;
    dim3 g{grid[0], grid[1], grid[2]}, b{block[0], block[1], block[2]};
    std::string all;
    if (!run_by_name(name, g, b, arguments, count)) return -1;
    for (auto& one : m.problems) all += one + "\n";
    snprintf(said, room, "%s", all.c_str());
    return (int)m.problems.size();
}
