# A lane on any Debian-like base (Debian, Ubuntu, NVIDIA's CUDA images for Ubuntu): Python from the base or from apt,
# everything else from the wheelhouse in the build context. Written for the classic builder too: no BuildKit features.
#
# Build context: requirements.txt, wheelhouse/*.whl, splatfix/*.whl, certificates.pem (may be empty).

ARG BASE_IMAGE
FROM ${BASE_IMAGE}

# The minor version of Python that the wheelhouse was gathered for, such as 3.11.
ARG PYTHON_VERSION
# Debian packages that the lane needs besides Python, separated by blanks.
ARG APT_PACKAGES=""

COPY certificates.pem /usr/local/share/splatfix/certificates.pem

# apt runs only for what the base lacks, so a base that has Python builds with no network at all.
# ensurepip is asked for as well: Debian ships it apart, in python3-venv.
RUN set -eu; \
    wanted="${APT_PACKAGES}"; \
    python3 -c 'import ensurepip, venv' 2>/dev/null || wanted="${wanted} python3 python3-venv"; \
    if [ -n "${wanted}" ]; then \
        if [ -s /usr/local/share/splatfix/certificates.pem ]; then \
            echo 'Acquire::https::CAInfo "/usr/local/share/splatfix/certificates.pem";' \
                > /etc/apt/apt.conf.d/90splatfix-certificates; \
        fi; \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ${wanted}; \
        rm -rf /var/lib/apt/lists/* /etc/apt/apt.conf.d/90splatfix-certificates; \
    fi; \
    found="$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; \
    if [ "${found}" != "${PYTHON_VERSION}" ]; then \
        echo "splatfix: python-mismatch: the base image has Python ${found}, the lane's wheels are for ${PYTHON_VERSION}" >&2; \
        exit 1; \
    fi

# A user with a name and a home: torch asks the system for both.
RUN useradd --create-home --uid 10001 --user-group splatfix \
    && install --directory --owner=splatfix --group=splatfix /report

# One stage on purpose: the classic builder keeps the layers of every stage, so that a second stage would not spare
# the disk the wheels but cost it the installed environment twice.
COPY requirements.txt /context/requirements.txt
COPY wheelhouse /context/wheelhouse
RUN python3 -m venv /opt/splatfix \
    && /opt/splatfix/bin/python -m pip install --disable-pip-version-check --no-cache-dir \
        --no-index --find-links /context/wheelhouse --requirement /context/requirements.txt

# Last, because it changes most often: an edit of splatfix rebuilds only from here.
COPY splatfix /context/splatfix
RUN /opt/splatfix/bin/python -m pip install --disable-pip-version-check --no-cache-dir --no-index --no-deps \
        /context/splatfix/*.whl

ENV PATH=/opt/splatfix/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /home/splatfix
# NVIDIA's bases bring an entry point that prints a banner into the output.
ENTRYPOINT []
CMD ["splatfix", "--version"]
