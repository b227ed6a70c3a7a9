"""What is said of a build: little, and never nothing for long."""

import time

from splatfix.containers.building import Building

CLASSIC = """\
Step 3/57 : FROM ${BUILD_IMAGE} AS packages
 ---> 6bd85ca2e5bc
Step 7/57 : RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${APT_PACKAGES}"
 ---> Using cache
 ---> 8b4023bef772
Step 14/57 : ARG SOURCE_DATE_EPOCH=315619200
 ---> Running in d3f93b5cdec3
Step 16/57 : RUN set -eu; umask 022; /opt/splatfix/venv/bin/python -m pip --disable-pip-version-check "$@"; }
 ---> Running in 3208df27e09c
Looking in indexes: https://index.example/simple
Collecting torch==2.13.0
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (192.3 MB)
Collecting numpy
  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.3 MB)
Installing collected packages: numpy, torch
Successfully installed numpy-2.4.6 torch-2.13.0
Removing intermediate container 3208df27e09c
Step 17/57 : FROM packages AS compilers
Step 26/57 : RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${BUILD_APT_PACKAGES}"
 ---> Running in eebc62388b9f
Get:1 http://mirror.example bookworm InRelease [151 kB]
Get:2 http://mirror.example bookworm/main amd64 Packages [8790 kB]
Selecting previously unselected package g++.
Unpacking g++ (12.2) ...
Setting up g++ (12.2) ...
Step 36/57 : RUN set -eu; python -B -m splatfix install ${EXTENSIONS} ${INSTALL_ARGUMENTS} --yes --json > built.json
 ---> Running in 98c1504fd4d0
[1/10] install plyfile
[2/10] build simple-knn
Step 40/57 : FROM ${BASE_IMAGE}
Step 43/57 : COPY --from=packages /out/ /
 ---> 68e69173478b
Successfully built 83256ab65cde
"""
SAID = """\
stage packages: seeing to Python packages
stage packages: downloading Python packages
stage packages: downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (192.3 MB)
stage packages: installing Python packages
stage packages: compiling Python's byte code, and writing the layer
stage compilers: seeing to Python and Debian packages
stage compilers: downloading Debian packages
stage compilers: installing Debian packages
stage compilers: adding splatfix, and what is built with it
stage compilers: [1/10] install plyfile
stage compilers: [2/10] build simple-knn
the image itself: copying what stage packages made
"""
PODMAN = """\
[1/4] STEP 1/14: FROM base AS packages
[1/4] STEP 5/14: RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${APT_PACKAGES}"
Get:1 http://mirror.example bookworm InRelease [151 kB]
--> 1234567890ab
"""


def test_stages_and_what_is_done_instead_of_every_line() -> None:
    for log, said in ((CLASSIC, SAID), (PODMAN, "stage packages: downloading Debian packages\n")):
        lines: list[str] = []
        with Building(lines.append) as building:
            for line in log.splitlines():
                building.hear(line)
        assert lines == said.splitlines()


def test_silence_is_told_with_its_seconds() -> None:
    lines: list[str] = []
    with Building(lines.append, every_s=0.1) as building:
        building.hear("Step 40/57 : FROM ${BASE_IMAGE}")
        building.hear("Step 43/57 : COPY --from=packages /out/ /")
        deadline = time.monotonic() + 10
        while len(lines) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert lines[1].startswith("the image itself: copying what stage packages made, ")
    assert lines[1].endswith(" s so far") and lines[1].split()[-4].isdigit()
