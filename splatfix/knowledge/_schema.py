"""The shape of every data file, said once: it holds our own tables (by a test) and a user's override file (when read)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from splatfix.knowledge._shapes import (
    ANY_KEY,
    ANY_TEXT,
    ARCH,
    DRIVER,
    FLAG,
    HEX_KEY,
    INT,
    NAME_AND_ARCHS,
    NUMBER,
    NUMBER_KEY,
    PAIR,
    PATTERN,
    RELEASE_KEY,
    TEXT,
    VERSION,
    VERSION_KEY,
    Kind,
    Rows,
    by_name,
    each,
    maybe,
    one_of,
    row_problems,
    rows,
    shape,
)

_BOUNDS = by_name(shape(min=VERSION, max_exclusive=VERSION))
_CODE = shape(cubins=each(ARCH), ptx=each(ARCH))
_BUILD = rows(
    cuda=PAIR,
    linux_x86_64=maybe(_CODE),
    windows_x86_64=maybe(_CODE),
    linux_aarch64=maybe(_CODE),
    windows_wheel=FLAG,
    windows_versions=maybe(each(TEXT)),
    versions=maybe(each(TEXT)),
    cxx11_abi=FLAG,
    code_verified=FLAG,
    ptx_verified=FLAG,
    index_verified=FLAG,
    evidence=TEXT,
)

_BUILDS = Kind("a table of builds", lambda value: isinstance(value, dict) and bool(value))

SECTIONS: Mapping[str, Mapping[str, Rows]] = {
    "archs": {
        "archs": rows(
            keys=NUMBER_KEY,
            cc=PAIR,
            name=TEXT,
            gpus=each(TEXT),
            first_toolkit=maybe(PAIR),
            last_toolkit=maybe(PAIR),
            tegra=FLAG,
            variants=by_name(PAIR),
            verified=FLAG,
        ),
        "families": rows(keys=NUMBER_KEY, members=each(INT)),
        "device_exclusions": rows(keys=NUMBER_KEY, not_on=each(INT)),
        "only_on": rows(keys=NUMBER_KEY, devices=each(INT)),
        "sbsa_unified": rows(single=True, min_build_cuda=PAIR, code=each(INT)),
        "nvcc_default": rows(keys=NUMBER_KEY, sm=INT, verified=FLAG),
        "products": rows(sm=INT, verified=FLAG, pattern=PATTERN),
    },
    "drivers": {
        "runtime_floors": rows(keys=VERSION_KEY, linux=DRIVER, windows=DRIVER),
        "native": rows(
            keys=VERSION_KEY, cuda=PAIR, update=INT, linux=maybe(DRIVER), windows=maybe(DRIVER), verified=FLAG
        ),
        "driver_levels": rows(keys=NUMBER_KEY, cuda=PAIR, verified=FLAG),
        "ptx_isa": rows(keys=VERSION_KEY, ptx=PAIR, verified=FLAG),
        "errors": rows(keys=NUMBER_KEY, name=TEXT, meaning=TEXT),
        "gpu_floors": rows(keys=NUMBER_KEY, linux=DRIVER, verified=FLAG),
        "gpu_ceilings": rows(keys=NUMBER_KEY, last_branch=INT, verified=FLAG),
        "open_modules": rows(single=True, supported_from=INT, required_names=each(PATTERN)),
        "unbundled": rows(since=PAIR, verified=FLAG),
        "forward_compat": rows(
            single=True,
            package=TEXT,
            conda_package=TEXT,
            library_dir=TEXT,
            variable=TEXT,
            supported_on=each(TEXT),
            error_elsewhere=INT,
        ),
    },
    "host_compilers": {
        "limits": rows(
            keys=VERSION_KEY,
            gcc_max_major=INT,
            clang_max_major=INT,
            msvc=maybe(each(INT)),
            verified=FLAG,
            optional={"evidence": TEXT},
        ),
        "msvc_products": rows(keys=NUMBER_KEY, last=INT, name=TEXT),
        "not_published": rows(),
        "unreadable_libraries": rows(cuda=PAIR, gcc_major=INT, verified=FLAG),
        "torch_headers": rows(keys=VERSION_KEY, oldest_gcc=INT),
    },
    "cpp_extension": {
        "releases": rows(
            keys=VERSION_KEY,
            supported_arches=each(ARCH),
            named_arches=each(NAME_AND_ARCHS),
            gcc=_BOUNDS,
            clang=_BOUNDS,
            min_gcc=VERSION,
            min_msvc=VERSION,
            default_std=one_of("c++14", "c++17", "c++20", "c++23"),
            env=each(TEXT),
            native_keyword=FLAG,
            adds_glibcxx_abi_flag=FLAG,
            clamps_to_torch_max_sm=FLAG,
            checks_nvcc_exists=FLAG,
            py_limited_api=FLAG,
            cuda_home_needs_cuda_build=FLAG,
            extension_name_exempt_from_arch_rule=FLAG,
            accepts_letter_arch_in_torch_list=FLAG,
            checks_setuptools=FLAG,
        ),
        "special": rows(single=True, nvcc_build=TEXT, gcc_max_exclusive=VERSION),
        "compiler_check_off": rows(single=True, variable=TEXT, values=each(TEXT)),
    },
    "torch_releases": {
        "releases": rows(
            keys=RELEASE_KEY,
            python_min=PAIR,
            python_max=maybe(PAIR),
            python_experimental=each(PAIR),
            python_note=ANY_TEXT,
            pypi_linux_default=TEXT,
            pypi_verified=FLAG,
            pypi_evidence=TEXT,
            cxx_std=one_of("c++14", "c++17", "c++20", "c++23"),
            linux_wheel_tag=TEXT,
            min_glibc=maybe(PAIR),
            builds=_BUILDS,
        ),
    },
    "toolkits": {
        "majors": rows(
            keys=NUMBER_KEY, compiler=FLAG, wheel=TEXT, holds=TEXT, instead=each(TEXT), verified=FLAG
        ),
        "recipe": rows(
            single=True,
            meta_package=TEXT,
            extras=each(TEXT),
            cuda_home=TEXT,
            unpacked_gb=NUMBER,
            verified=FLAG,
        ),
        "extras": rows(wheels=each(TEXT)),
        "wheels": rows(holds=TEXT),
        "fixes": rows(
            platform=one_of("linux", "windows"),
            needed=FLAG,
            why=TEXT,
            optional={"path": TEXT, "links_to": TEXT, "flag": TEXT},
        ),
        "windows": rows(single=True, needs_fixes=FLAG, verified=FLAG),
        "torch_cuda": rows(cuda=TEXT),
        "versions_seen": rows(newest=TEXT, oldest=TEXT, optional={"all": each(TEXT)}),
    },
    "stacks": {
        "variants": rows(
            kind=one_of("rasterizer", "ssim", "knn"),
            module=TEXT,
            distribution=TEXT,
            extension=TEXT,
            commit=ANY_TEXT,
            settings=maybe(each(TEXT)),
            rasterizer_class=maybe(TEXT),
            forward=maybe(each(TEXT)),
            methods=each(TEXT),
            extra_classes=each(TEXT),
            returns=maybe(each(TEXT)),
            exports=each(TEXT),
            functions=by_name(each(TEXT)),
            sources=each(TEXT),
            nvcc_flags=each(TEXT),
            arch_flags=one_of("torch", "own"),
            arch_variable=TEXT,
            glm=maybe(one_of("submodule", "vendored")),
            traps=each(TEXT),
            sha256_prefix=by_name(TEXT),
            verified=FLAG,
        ),
        "stacks": rows(
            name=TEXT,
            repository=TEXT,
            commit=TEXT,
            licence=TEXT,
            commercial_use=FLAG,
            recognise=each(TEXT),
            needs=each(TEXT),
            also_needs=each(TEXT),
            submodules=by_name(ANY_TEXT),
            python=maybe(TEXT),
            torch=maybe(TEXT),
            cuda=maybe(TEXT),
            entry=TEXT,
            vram_gb=maybe(shape(mean=NUMBER, max=NUMBER, what=TEXT, source=TEXT)),
            verified=FLAG,
        ),
        "extensions": rows(role=TEXT, pure_torch=maybe(TEXT)),
        "lookalikes": rows(found=maybe(TEXT), really=TEXT, wanted=TEXT),
        "breakages": rows(
            symptom=TEXT,
            cure=TEXT,
            optional={
                "since_cuda": PAIR,
                "until_cuda": PAIR,
                "since_torch": PAIR,
                "since_gcc": INT,
                "since_glibc": PAIR,
                "since_gsplat": PAIR,
                "since_setuptools": INT,
                "since_colmap": PAIR,
                "since_commit": TEXT,
            },
        ),
        "gsplat": rows(optional={"cubins": each(ARCH), "all": each(TEXT)}),
    },
    "failures": {"classes": rows(definition=TEXT, fix=TEXT, optional={"examples": each(TEXT)})},
    "nvml": {
        "errors": rows(keys=NUMBER_KEY, name=TEXT, meaning=TEXT),
        "architectures": rows(keys=NUMBER_KEY, name=TEXT),
        "libraries": rows(names=each(TEXT)),
    },
    "fatbin": {
        "sections": rows(format=one_of("elf", "pe"), holds=TEXT),
        "magics": rows(value=INT),
        "kinds": rows(keys=NUMBER_KEY, name=TEXT),
        **{
            section: rows(keys=HEX_KEY if section == "flags" else ANY_KEY, meaning=TEXT)
            for section in (
                "flags",
                "entry_fields",
                "container_fields",
                "wrapper_fields",
                "cubin_e_flags",
                "compression",
            )
        },
    },
    "uv_torch_backend": {"backends": rows(linux=DRIVER, windows=DRIVER)},
}

_ADDRESS = Kind(
    "an address with {tag} in it, 'https://host/whl/{tag}'",
    lambda value: (
        isinstance(value, str)
        and "{tag}" in value
        and not re.search(r"[\s{}\"']", value.replace("{tag}", ""))
    ),
)

SETTINGS: Mapping[str, Mapping[str, Kind]] = {
    "archs": {"newest_toolkit": PAIR},
    "drivers": {"driver_levels_known_through": INT},
    "torch_releases": {"index_url": _ADDRESS},
}
"""Single values beside the sections that are read as they stand, and that a user's file may give anew: how far a table
reaches, and where PyTorch's wheels lie (a mirror)."""


def problems(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    """Every way in which a table (with its sections and rows) departs from its shape, each as a sentence."""
    for setting, kind in SETTINGS.get(name, {}).items():
        if not kind.holds(document.get(setting)):
            yield f"{name}.{setting} is {document.get(setting)!r}; it must be {kind.name}."
    for section, wanted in SECTIONS[name].items():
        found = document.get(section)
        where = f"{name}.{section}"
        if not isinstance(found, dict):
            yield f"{where} must be a table."
        elif wanted.single:
            yield from row_problems(where, found, wanted)
        else:
            for key, row in found.items():
                if not wanted.key.holds(key):
                    yield f"{where} has a row called {key!r}; its key must be {wanted.key.name}."
                yield from row_problems(f"{where}.{key}", row, wanted)
                if (
                    where == "torch_releases.releases"
                    and isinstance(row, dict)
                    and _BUILDS.holds(row.get("builds"))
                ):
                    for tag, build in row["builds"].items():
                        yield from row_problems(f"{where}.{key}.builds.{tag}", build, _BUILD)
