"""A simple_knn that is broken on purpose; tests/gpu_check/steps/sabotage.py says how."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="simple_knn",
    version="1.0",
    packages=["simple_knn"],
    ext_modules=[CUDAExtension("simple_knn._C", ["broken.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
