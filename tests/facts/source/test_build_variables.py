"""Which form an architecture variable wants, and what decides on CUDA code, in the shapes that setup.py files have."""

from pathlib import Path

import pytest

from splatfix.facts import ArchVariable, CudaSwitches, Source, read_source

START = "import os, sys\nimport torch\nfrom torch.utils.cpp_extension import CUDA_HOME, CppExtension, CUDAExtension\n"


def source(folder: Path, code: str) -> Source:
    (folder / "setup.py").write_text(START + code)
    return read_source(folder)


@pytest.mark.parametrize(
    ("code", "form"),
    [
        ("x = os.getenv('{}')", ArchVariable("")),
        ("x = os.getenv('{}', '75;80;89').split(';')", ArchVariable("")),
        ("x = os.getenv('{}', '8.0,8.6+PTX')", ArchVariable("", dotted=True, separator=",")),
        (
            "cc = [int(x) for x in os.environ['{}'].replace(';', ',').split(',')]",
            ArchVariable("", separator=",", plain=True),
        ),
        (
            "names = os.getenv('{}')\nfor name in names.split():\n    a, b = name.split('.')",
            ArchVariable("", True, " "),
        ),
        ("x = os.getenv('{}')\ny = [float(n) for n in x.split(',')]", ArchVariable("", True, ",")),
        ("n = [int(x.split('.')[0]) for x in os.getenv('{}').split(';')]", ArchVariable("", dotted=True)),
        (
            "x, s = os.getenv('{}'), 1\nsign = ';'\ny = x.split(sign)\nz = torch.version.cuda.split('.')",
            ArchVariable(""),
        ),
        ("x = os.getenv('{}')\nother = 'a,b'.split(',')", ArchVariable("")),
    ],
)
def test_the_form_of_an_architecture_variable(tmp_path: Path, code: str, form: ArchVariable) -> None:
    (found,) = source(tmp_path, code.format("MY_CUDA_ARCHITECTURES")).arch_variables
    assert (found.dotted, found.separator, found.plain) == (form.dotted, form.separator, form.plain)


def test_a_list_of_the_form_of_torchs_by_its_name(tmp_path: Path) -> None:
    (found,) = source(tmp_path, "x = os.getenv('MY_CUDA_ARCH_LIST')").arch_variables
    assert found.dotted


ONE_SWITCH = """
def get_extensions():
    extension = CppExtension
    force = os.getenv("FORCE_CUDA", "0") == "1"
    never = os.getenv("MY_FORCE_NO_CUDA", "0") == "1"
    if (not never and torch.cuda.is_available() and CUDA_HOME is not None) or force:
        extension = CUDAExtension
    return [extension("x", ["x.cpp"])]
"""
BY_SUFFIX = """
WITH_CUDA = False
if torch.cuda.is_available():
    WITH_CUDA = CUDA_HOME is not None
suffixes = ["cpu", "cuda"] if WITH_CUDA else ["cpu"]
if os.getenv("FORCE_CUDA", "0") == "1":
    suffixes = ["cuda", "cpu"]
if os.getenv("FORCE_ONLY_CPU", "0") == "1":
    suffixes = ["cpu"]
made = [(CppExtension if suffix == "cpu" else CUDAExtension)("x", ["x.cpp"]) for suffix in suffixes]
"""
NO_SWITCH = """
cpu_only = "--cpu" in sys.argv or not torch.cuda.is_available()
extension = CUDAExtension
if cpu_only:
    extension = CppExtension
"""
ITS_GPU = """
if torch.cuda.is_available():
    major, minor = torch.cuda.get_device_capability()
    made = [CUDAExtension("x", ["x.cu"], extra_compile_args={"nvcc": [f"-arch=sm_{major}{minor}"]})]
else:
    made = [CppExtension("x", ["x.cpp"])]
"""
OWN_LIST = """
if "MY_CUDA_ARCHITECTURES" in os.environ:
    archs = os.environ["MY_CUDA_ARCHITECTURES"].split(",")
elif torch.cuda.is_available():
    archs = ["%d%d" % torch.cuda.get_device_capability()]
else:
    raise EnvironmentError("which?")
for arch in archs:
    CUDAExtension("x", ["x.cu"], extra_compile_args={"nvcc": [f"-arch=sm_{arch}"]})
"""
OTHERS_SIGHT = """
if torch.backends.mps.is_available() or torch.backends.cudnn.is_available():
    kind = CppExtension
if IS_ROCM:
    if not torch.cuda.is_available():
        raise RuntimeError("which gfx?")
CUDAExtension("x", ["x.cu"])
"""
NO_MODULES = """
wanted = os.getenv('BASICSR_EXT')
if wanted == 'True':
    from torch.utils.cpp_extension import BuildExtension, CUDAExtension
    ext_modules = [make("x", CUDAExtension)]
else:
    ext_modules = []
"""
DEBUG = """
if os.getenv("DEBUG") == "1":
    made = CUDAExtension("x", ["x.cu"], ["-G"])
else:
    made = CUDAExtension("x", ["x.cu"])
"""
ENDS = "if not torch.cuda.is_available():\n    raise RuntimeError('no GPU')\nCUDAExtension('x', ['x.cu'])\n"
ASSERTED = """
def load_cpp_ext(name):
    assert torch.cuda.is_available(), "no GPU"
    return load(name)
_knn = load_cpp_ext("knn")
"""
PLAIN = "CUDAExtension('x', ['x.cu'])\nprint(torch.cuda.is_available())\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ONE_SWITCH, CudaSwitches(True, False, {"FORCE_CUDA": "1"}, ("MY_FORCE_NO_CUDA",))),
        (BY_SUFFIX, CudaSwitches(True, False, {"FORCE_CUDA": "1"}, ("FORCE_ONLY_CPU",))),
        (NO_SWITCH, CudaSwitches(by_gpu=True)),
        (ITS_GPU, CudaSwitches(by_gpu=True, asks_gpu=True)),
        (OWN_LIST, CudaSwitches(asks_gpu=True)),
        (ENDS, CudaSwitches(by_gpu=True)),
        (ASSERTED, CudaSwitches(by_gpu=True)),
        (ASSERTED.replace("_knn = load_cpp_ext", "print"), CudaSwitches()),
        (PLAIN, CudaSwitches()),
        (OTHERS_SIGHT, CudaSwitches()),
        ("x = os.getenv('BUILD_CUDA', 'OFF').upper() == 'ON'\n", CudaSwitches(on={"BUILD_CUDA": "ON"})),
        ("x = os.getenv('USE_CUDA').lower() in ('true', '1')\n", CudaSwitches(on={"USE_CUDA": "1"})),
        ("x = 'MY_WITH_CUDA' in os.environ\n", CudaSwitches(on={"MY_WITH_CUDA": "1"})),
        (NO_MODULES, CudaSwitches(also={"BASICSR_EXT": "True"})),
        (NO_MODULES.replace("'True'", "'True' and x"), CudaSwitches()),
        (
            "x = os.getenv('MY_FORCE_BUILD', 'FALSE') == 'TRUE'\n",
            CudaSwitches(also={"MY_FORCE_BUILD": "TRUE"}),
        ),
        (DEBUG, CudaSwitches()),
        ("x = os.getenv('BUILD_NO_CUDA') == '1'\n", CudaSwitches(off=("BUILD_NO_CUDA",))),
    ],
)
def test_what_decides_on_cuda_code(tmp_path: Path, code: str, expected: CudaSwitches) -> None:
    assert source(tmp_path, code).switches == expected


def test_many_variables_and_conditions_end_soon(tmp_path: Path) -> None:
    lines = [f"v{n} = os.getenv('V{n}_CUDA_ARCH')\nos.environ['W{n}'] = v{n}" for n in range(300)]
    lines += ["if torch.cuda.is_available(): pass", *(f"elif v{n}: w = CUDAExtension" for n in range(300))]
    found = source(tmp_path, "\n".join(lines) + "\n")
    assert len(found.reads) == 300 and len(found.arch_variables) == 50
