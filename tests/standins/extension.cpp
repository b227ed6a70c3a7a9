// The pybind functions of the public rasterizers, simple-knn and fused-ssim, for the CPU: arguments are converted and refused by
// pybind11 as with the real ones, then handed to Python (compute.py). `signatures.inc` is made from signatures.toml.
//
// One library serves all variants: a text file beside it, "<name of the library up to its first dot>.standin", holds on
// three lines the variant, the sabotage, and the module that computes.
#include <torch/csrc/utils/pybind.h>

#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>

namespace py = pybind11;
using at::Tensor;

namespace {

std::string variant, sabotage, computes;

void read_description() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&read_description), &info)) {
        throw std::runtime_error("where this library lies is not known");
    }
    const std::string file = info.dli_fname;
    std::ifstream text(file.substr(0, file.find('.', file.rfind('/') + 1)) + ".standin");
    if (!std::getline(text, variant) || !std::getline(text, sabotage) || !std::getline(text, computes)) {
        throw std::runtime_error("a stand-in without its description");
    }
}

py::object call(const char* function, const char* names, py::tuple arguments) {
    if (sabotage == "segfault") {
        volatile int* nowhere = nullptr;
        *nowhere = 1;
    }
    while (sabotage == "hang") {
        sleep(1);
    }
    return py::module_::import(computes.c_str()).attr("call")(variant, sabotage, function, names, arguments);
}

void fill(py::module_& m) {
    read_description();
#include "signatures.inc"
}

}  // namespace

// What the libraries of the rasterizers and simple-knn are called, and fused-ssim's. Not by PYBIND11_MODULE: it keeps one module
// per name and process, and tests import one stand-in after the other.
#define STANDIN_MODULE(name)                                                      \
    extern "C" __attribute__((visibility("default"))) PyObject* PyInit_##name() { \
        static PyModuleDef definition;                                            \
        try {                                                                     \
            auto m = py::module_::create_extension_module(#name, "", &definition); \
            fill(m);                                                              \
            return m.release().ptr();                                             \
        } catch (const std::exception& error) {                                   \
            PyErr_SetString(PyExc_ImportError, error.what());                     \
            return nullptr;                                                       \
        }                                                                         \
    }
STANDIN_MODULE(_C)
STANDIN_MODULE(fused_ssim_cuda)
