# A lane on a Debian-like base (Debian, Ubuntu, NVIDIA's CUDA images for Ubuntu): Python from the base or from apt,
# everything else from the build context. Also for the classic builder: no BuildKit features.
#
# Build context: requirements.txt, wheelhouse/*.whl, source/ (splatfix as in site-packages), certificates.pem (may be empty).

ARG BASE_IMAGE
FROM ${BASE_IMAGE}

# The minor version of Python that the wheels are for, such as 3.11.
ARG PYTHON_VERSION
# Debian packages besides Python, separated by spaces.
ARG APT_PACKAGES=""

COPY certificates.pem /usr/local/share/splatfix/certificates.pem

# apt runs only for what the base lacks, so a base with Python needs no network.
# ensurepip is a separate package in Debian (python3-venv).
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

# torch needs a user with a name and a home.
RUN useradd --create-home --uid 10001 --user-group splatfix \
    && install --directory --owner=splatfix --group=splatfix /report

# One stage: the classic builder keeps the layers of all stages, so a second one would store the environment twice.
COPY requirements.txt /context/requirements.txt
COPY wheelhouse /context/wheelhouse
RUN python3 -m venv /opt/splatfix \
    && /opt/splatfix/bin/python -m pip install --disable-pip-version-check --no-cache-dir \
        --no-index --find-links /context/wheelhouse --requirement /context/requirements.txt

# Last, because it changes most often: an edit of splatfix rebuilds only from here.
COPY source /opt/splatfix/lib/python${PYTHON_VERSION}/site-packages/

ENV PATH=/opt/splatfix/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /home/splatfix
# NVIDIA's base images have an entry point that prints a banner.
ENTRYPOINT []
CMD ["python", "-m", "splatfix", "--version"]
