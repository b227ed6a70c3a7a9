# 3D Gaussian Splatting (Inria, 2024-04) for sm_61, sm_75, written by splatfix VERSION. Its build context is the checkout:
#
#   docker build -t inria-v1:sm_61-sm_75 -f Dockerfile CHECKOUT
#   docker run --rm --gpus all --shm-size 8g inria-v1:sm_61-sm_75 splatfix diagnose
#
# The folder splatfix-image has to lie in the checkout: splatfix dockerfile --out writes it. The checkout is
# /opt/splatfix/checkout inside, and /scratch can be written to. The build ends with an error if a binary lacks
# code for a target. Whether it computes and trains only a GPU shows: splatfix certify --level 2, splatfix certify.
#
# Chosen, and why:
# - torch 2.5.1 cu118: it carries machine code for sm_61, sm_75; the driver where it runs must be 450.80.02 or newer
# - the compiler of CUDA 11.8, which this torch was built with, is from nvidia/cuda:11.8.0-devel-ubuntu22.04
# - ubuntu:22.04 to run it: torch's wheels bring the CUDA runtime, the driver's libraries come from the host
#
# On a closed site: --build-arg BASE_IMAGE=, BUILD_IMAGE=, PIP_INDEX_URL=, TORCH= and TORCH_INDEX= name your mirrors,
# and splatfix-image/base/certificates.pem takes your certificate authority; HTTP_PROXY, HTTPS_PROXY and NO_PROXY need no
# line here. On a machine without a bridge for containers add --network host.

# A lane on a Debian-like base (Debian, Ubuntu, NVIDIA's CUDA images for Ubuntu): Python from the base or from apt.
# Compilers and pip's downloads stay in the first two stages. Also for the classic builder: no BuildKit features. What the
# last stage takes lies below /out and /ours and has the date SOURCE_DATE_EPOCH, so that equal content is an equal layer.
#
# Build context: splatfix-image/ has base/ (prepare.sh, certificates.pem, which may be empty), packages/ (requirements.txt,
# constraints.txt, wheels/) and splatfix.zip (splatfix as in site-packages). SOURCES is a folder with a checkout and extensions
# to build, by their place below /opt/splatfix, or with PLACE, the checkout itself.

ARG BASE_IMAGE="ubuntu:22.04"
# What compiles; of the same system as BASE_IMAGE.
ARG BUILD_IMAGE="nvidia/cuda:11.8.0-devel-ubuntu22.04"

FROM ${BUILD_IMAGE} AS packages
# The minor version of Python that it must have, such as 3.11.
ARG PYTHON_VERSION="3.10"
COPY splatfix-image/base/ /usr/local/share/splatfix/
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}"

# The site's package index; pip reads these names itself. Their values stay with this stage.
ARG PIP_INDEX_URL=""
ARG PIP_EXTRA_INDEX_URL=""
ARG PIP_FIND_LINKS=""
ARG PIP_TRUSTED_HOST=""
ARG TORCH="torch==2.5.1+cu118"
ARG TORCH_INDEX="https://download.pytorch.org/whl/cu118"
ARG SOURCE_DATE_EPOCH=315619200
COPY splatfix-image/packages/ /context/
# Hashed byte code is the same wherever and whenever it is made; what an interpreter writes without -B is dated. /opt/splatfix
# is a link, so that the paths in the environment are those of the image.
RUN set -eu; umask 022; \
    if [ -s /usr/local/share/splatfix/certificates.pem ]; then \
        export PIP_CERT=/usr/local/share/splatfix/certificates.pem; \
    fi; \
    mkdir -p /out/opt/splatfix && ln -s /out/opt/splatfix /opt/splatfix; \
    python3 -m venv --symlinks /opt/splatfix/venv; \
    pip() { /opt/splatfix/venv/bin/python -B -m pip --disable-pip-version-check "$@"; }; \
    install() { pip install --no-cache-dir --progress-bar off --no-compile --find-links /context/wheels \
        --constraint /context/constraints.txt "$@"; }; \
    install "${TORCH}" --requirement /context/requirements.txt \
    || { [ -n "${TORCH_INDEX}" ] || exit 1; \
        install --extra-index-url "${TORCH_INDEX}" "${TORCH}" --requirement /context/requirements.txt; }; \
    pip freeze --all > /out/opt/splatfix/packages.txt; \
    rm -rf /root/.cache /context/wheels; \
    PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash /opt/splatfix/venv/lib >/dev/null || true; \
    find /out -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

# What compiles, in the lanes that do: so that others with the same packages share the stage before.
FROM packages AS compilers
ARG PYTHON_VERSION="3.10"
# Debian packages of this stage and the next only, and wheels to be at hand there (a CUDA toolkit's), separated by spaces.
ARG BUILD_APT_PACKAGES="gcc g++ python3-dev git"
ARG DOWNLOADS=""
ARG PIP_INDEX_URL=""
ARG PIP_EXTRA_INDEX_URL=""
ARG PIP_FIND_LINKS=""
ARG PIP_TRUSTED_HOST=""
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${BUILD_APT_PACKAGES}"
RUN set -eu; \
    if [ -s /usr/local/share/splatfix/certificates.pem ]; then \
        export PIP_CERT=/usr/local/share/splatfix/certificates.pem; \
    fi; \
    if [ -n "${DOWNLOADS}" ]; then \
        /opt/splatfix/venv/bin/python -B -m pip --disable-pip-version-check download --progress-bar off --no-cache-dir \
            --only-binary :all: --dest /context/downloads ${DOWNLOADS}; \
    fi
# Debian packages with libraries that a stack's Python packages load: from here on and in the image.
ARG LIBRARIES="libegl1 libgl1 libglib2.0-0 libusb-1.0-0"
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${LIBRARIES}"

# What changes most often: an edit of splatfix rebuilds only from here, and only what this stage wrote is copied.
FROM compilers AS builder
ARG EXTENSIONS="/opt/splatfix/checkout"
ARG INSTALL_ARGUMENTS="--target sm_61 --target sm_75 --with-dependencies --jobs 4"
ARG PIP_INDEX_URL=""
ARG PIP_EXTRA_INDEX_URL=""
ARG PIP_FIND_LINKS=""
ARG PIP_TRUSTED_HOST=""
ARG SOURCE_DATE_EPOCH=315619200
ARG SOURCES="."
ARG PLACE="checkout/"
COPY splatfix-image/splatfix.zip /context/
COPY ${SOURCES} /context/sources/${PLACE}
# What is in the pipe below is files that were just written.
# hadolint ignore=DL3003,DL4006
RUN set -eu; umask 022; touch --date="@${SOURCE_DATE_EPOCH}" /epoch; \
    cd /opt/splatfix; site="$(echo venv/lib/python3*/site-packages)"; \
    rm -rf /context/sources/checkout/splatfix-image; chmod -R a+rX /context/sources; \
    python3 -m zipfile -e /context/splatfix.zip "${site}/"; cp -r /context/sources/. .; \
    printf '#!/opt/splatfix/venv/bin/python\nimport sys\nfrom splatfix.cli import main\nsys.exit(main())\n' > venv/bin/splatfix; \
    chmod 755 venv/bin/splatfix; \
    if [ -n "${EXTENSIONS}" ]; then \
        if [ -s /usr/local/share/splatfix/certificates.pem ]; then \
            export PIP_CERT=/usr/local/share/splatfix/certificates.pem; \
        fi; \
        export PATH="/opt/splatfix/venv/bin:${PATH}" SPLATFIX_CACHE=/context/cache; \
        export PIP_FIND_LINKS="/context/downloads ${PIP_FIND_LINKS}"; \
        python -B -m splatfix install ${EXTENSIONS} ${INSTALL_ARGUMENTS} --yes --no-cache --json > built.json \
            || { cat built.json; exit 1; }; \
        rm -rf venv/.splatfix /context/cache; \
    fi; \
    PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash "${site}/splatfix" "${site}/smoke_trainer"; \
    mkdir -p /out/report /out/scratch && chmod 1777 /out/report /out/scratch; \
    mkdir /ours; cd /out; \
    find . -newer /epoch \( ! -type d -o -empty \) -print0 | tar --create --null --files-from=- | tar --extract --directory=/ours; \
    find /ours -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

FROM ${BASE_IMAGE}
ARG PYTHON_VERSION="3.10"
COPY splatfix-image/base/ /usr/local/share/splatfix/
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}"
COPY --from=packages /out/ /
ARG LIBRARIES="libegl1 libgl1 libglib2.0-0 libusb-1.0-0"
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${LIBRARIES}"
COPY --from=builder /ours/ /
# torch asks for the name of the user, which has none in the base
ENV PATH=/opt/splatfix/venv/bin:$PATH \
    HOME=/scratch \
    USER=splatfix \
    TMPDIR=/scratch \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /scratch
HEALTHCHECK --interval=10m --timeout=2m --start-period=1m CMD ["python", "-m", "splatfix", "diagnose"]
# NVIDIA's base images have an entry point that prints a banner.
ENTRYPOINT []
CMD ["python", "-m", "splatfix", "diagnose"]
LABEL org.splatfix.version="VERSION" org.splatfix.targets="sm_61, sm_75"
