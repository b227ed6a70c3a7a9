# A lane on a Debian-like base (Debian, Ubuntu, NVIDIA's CUDA images for Ubuntu): Python from the base or from apt.
# Compilers and pip's downloads stay in the first two stages. Also for the classic builder: no BuildKit features. What the
# last stage takes lies below /out and /ours and has the date SOURCE_DATE_EPOCH, so that equal content is an equal layer.
#
# Build context: splatfix-image/ has base/ (prepare.sh, certificates.pem, which may be empty), packages/ (requirements.txt,
# constraints.txt, wheels/) and splatfix.zip (splatfix as in site-packages). SOURCES is a folder with a checkout and extensions
# to build, by their place below /opt/splatfix, or with PLACE, the checkout itself.

ARG BASE_IMAGE
# What compiles; of the same system as BASE_IMAGE.
ARG BUILD_IMAGE

FROM ${BUILD_IMAGE} AS packages
# The minor version of Python that it must have, such as 3.11.
ARG PYTHON_VERSION
COPY splatfix-image/base/ /usr/local/share/splatfix/
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}"

# The site's package index; pip reads these names itself. Their values stay with this stage.
ARG PIP_INDEX_URL=""
ARG PIP_EXTRA_INDEX_URL=""
ARG PIP_FIND_LINKS=""
ARG PIP_TRUSTED_HOST=""
ARG TORCH
ARG TORCH_INDEX=""
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
ARG PYTHON_VERSION
# Debian packages of this stage and the next only, and wheels to be at hand there (a CUDA toolkit's), separated by spaces.
ARG BUILD_APT_PACKAGES=""
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
ARG LIBRARIES=""
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${LIBRARIES}"

# What changes most often: an edit of splatfix rebuilds only from here, and only what this stage wrote is copied.
FROM compilers AS builder
ARG EXTENSIONS=""
ARG INSTALL_ARGUMENTS=""
ARG PIP_INDEX_URL=""
ARG PIP_EXTRA_INDEX_URL=""
ARG PIP_FIND_LINKS=""
ARG PIP_TRUSTED_HOST=""
ARG SOURCE_DATE_EPOCH=315619200
ARG SOURCES=sources/
ARG PLACE=""
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
ARG PYTHON_VERSION
COPY splatfix-image/base/ /usr/local/share/splatfix/
RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}"
COPY --from=packages /out/ /
ARG LIBRARIES=""
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
