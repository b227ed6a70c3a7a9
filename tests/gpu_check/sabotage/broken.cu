// distCUDA2(points) as broken extensions have it; without torch's headers, so that it compiles in seconds.
// SABOTAGE 1: a segmentation fault in the launch; 2: a kernel that writes to an illegal address; 3: a wrong result.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cuda_runtime.h>

__global__ void write_nowhere(int *nowhere) { nowhere[threadIdx.x] = 1; }

static PyObject *broken(PyObject *, PyObject *points) {
#if SABOTAGE == 1
    *reinterpret_cast<volatile int *>(8) = 1;
#elif SABOTAGE == 2
    write_nowhere<<<1, 32>>>(reinterpret_cast<int *>(16));
#endif
    return PyObject_CallMethod(points, "sum", "i", 1);  // of the right shape
}

static PyMethodDef methods[] = {{"distCUDA2", broken, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&module); }
