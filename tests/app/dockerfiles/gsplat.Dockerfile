# gsplat for sm_89, written by splatfix VERSION. The build context is the checkout:
#
#   docker build -t gsplat:sm_89 -f Dockerfile CHECKOUT
#   docker run --rm --gpus all --shm-size 8g gsplat:sm_89 splatfix diagnose
#
# A wheel of splatfix has to lie in the checkout: --out writes one, --build-arg SPLATFIX= takes what pip does.
#
# The build ends with an error if a binary lacks code for a target. Whether it computes and trains only a GPU
# shows: splatfix certify --level 2, splatfix certify.
#
# Chosen, and why:
# - torch 2.13.0 cu130: it carries machine code for sm_89; the driver where it runs must be 580 or newer
# - CUDA 13.0 from PyPI wheels: no image of NVIDIA's and no registry but pip's is needed
# - TORCH_CUDA_ARCH_LIST=8.9: where it is built, no GPU can be asked
# - debian:bookworm-slim to run it: torch's wheels bring the CUDA runtime, the driver's libraries come from the
#   host
#
# Not known, or left to you:
# - glm is its submodule gsplat/cuda/csrc/third_party/glm; nothing below 7.0 (labeled_partition)
#
# On a closed site: --build-arg BUILD_IMAGE=, RUN_IMAGE=, PIP_INDEX_URL=, TORCH_INDEX_URL= name your mirrors,
# --build-arg CA_PEM="$(cat ca.pem)" your certificate authority, HTTP_PROXY, HTTPS_PROXY and NO_PROXY need no
# line here. Build arguments stay readable in the image's history: no passwords in them. On a machine without a
# bridge for containers add --network host.
#
# Rules of hadolint that are not kept: DL3008, because distributions remove versions that a security fix
# replaces; DL3013 for what the trainer imports, because its authors pin other Pythons or nothing.

ARG BUILD_IMAGE=debian:bookworm-slim
ARG RUN_IMAGE=debian:bookworm-slim

# Everything that compiles. Nothing of this stage but /opt/stack and /opt/splatfix gets into the image.
FROM ${BUILD_IMAGE} AS builder
ARG CA_PEM=""
ARG DEBIAN_FRONTEND=noninteractive
# hadolint ignore=DL3008
RUN if [ -n "${CA_PEM}" ]; then \
        mkdir -p /usr/local/share/ca-certificates; \
        printf '%s\n' "${CA_PEM}" > /usr/local/share/ca-certificates/site.crt; \
        update-ca-certificates \
            || echo 'Acquire::https::CAInfo "/usr/local/share/ca-certificates/site.crt";' \
                > /etc/apt/apt.conf.d/90site; \
    fi \
 && apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates g++ python3 python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/* /etc/apt/apt.conf.d/90site \
 && update-ca-certificates
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_DISABLE_PIP_VERSION_CHECK=1

ARG PIP_INDEX_URL=""
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cu130
# torch decides everything after it: it must be the build for CUDA 13.0, wherever it came from. The build tools
# stand beside it, because extensions are compiled against this very torch and not in an environment of their
# own.
# hadolint ignore=DL3013
RUN python3 -m venv /opt/stack \
 && /opt/stack/bin/python -m pip install --no-cache-dir ninja==1.13.0 setuptools==80.9.0 wheel==0.45.1 \
 && /opt/stack/bin/python -m pip install --no-cache-dir --index-url "${TORCH_INDEX_URL}" "torch==2.13.0" torchvision \
 && /opt/stack/bin/python -c 'import torch; assert torch.version.cuda == "13.0", torch.version.cuda' \
 && /opt/stack/bin/python -m pip freeze > /opt/stack/torch.txt

# The CUDA compiler from PyPI: no other registry is needed. Its parts are kept at one release, the newest do not fit.
RUN /opt/stack/bin/python -m pip install --no-cache-dir --target /opt/cuda \
        "cuda-toolkit[nvcc,cccl,cudart,cublas,cusparse,cusolver]==13.0.3" \
        "nvidia-nvvm==13.0.*" \
        "nvidia-cuda-crt==13.0.*" \
        "nvidia-nvjitlink==13.0.*" \
 && ln -s libcudart.so.13 /opt/cuda/nvidia/cu13/lib/libcudart.so \
 && ln -s lib /opt/cuda/nvidia/cu13/lib64
# g++ does not find cub and thrust there by itself, nvcc does.
ENV CUDA_HOME=/opt/cuda/nvidia/cu13 \
    CPATH=/opt/cuda/nvidia/cu13/include/cccl \
    TORCH_CUDA_ARCH_LIST="8.9"

# splatfix, apart from the stack: the wheel that splatfix dockerfile --out puts beside the Dockerfile.
# --build-arg SPLATFIX= takes whatever pip does. The first file is here because COPY must find one.
ARG SPLATFIX=/opt/wheels/splatfix-VERSION-py3-none-any.whl
COPY ["setup.py", "splatfix-*.whl", "/opt/wheels/"]
RUN python3 -m venv /opt/splatfix \
 && /opt/splatfix/bin/python -m pip install --no-cache-dir "${SPLATFIX}"

# The extensions, for sm_89. Edits are made in a scratch copy:
# . (gsplat)
COPY [".", "/src"]
# Compilers at once; each takes up to 2.5 GiB of memory.
ARG MAX_JOBS=4
RUN touch /opt/wheels/before \
 && /opt/splatfix/bin/splatfix install --yes --verbose --no-cache --python /opt/stack \
        --target sm_89 --jobs "${MAX_JOBS}" \
        /src
# The proof: every library that is new in the environment, read as bytes, has code for sm_89.
RUN find /opt/stack/lib -name '*.so' -newer /opt/wheels/before > /opt/wheels/built \
 && test -s /opt/wheels/built \
 && xargs -d '\n' /opt/splatfix/bin/splatfix inspect --target sm_89 < /opt/wheels/built

# What is shipped: no compiler, no root.
FROM ${RUN_IMAGE} AS runtime
ARG CA_PEM=""
ARG DEBIAN_FRONTEND=noninteractive
# hadolint ignore=DL3008
RUN if [ -n "${CA_PEM}" ]; then \
        mkdir -p /usr/local/share/ca-certificates; \
        printf '%s\n' "${CA_PEM}" > /usr/local/share/ca-certificates/site.crt; \
        update-ca-certificates \
            || echo 'Acquire::https::CAInfo "/usr/local/share/ca-certificates/site.crt";' \
                > /etc/apt/apt.conf.d/90site; \
    fi \
 && apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* /etc/apt/apt.conf.d/90site \
 && update-ca-certificates \
 && useradd --no-log-init --create-home --home-dir /home/splat --uid 10001 --user-group splat \
 && install --directory --owner=10001 --group=10001 /home/splat/checkout /home/splat/output
COPY --from=builder /opt/splatfix /opt/splatfix
COPY --from=builder /opt/stack /opt/stack
RUN ln -s /opt/splatfix/bin/splatfix /usr/local/bin/splatfix
COPY --chown=10001:10001 . /home/splat/checkout

# The last two are what NVIDIA's container runtime asks an image for.
ENV PATH=/opt/stack/bin:$PATH \
    VIRTUAL_ENV=/opt/stack \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
ARG RUN_IMAGE
LABEL org.opencontainers.image.base.name="${RUN_IMAGE}" \
      org.opencontainers.image.title="gsplat for sm_89" \
      org.opencontainers.image.description="torch 2.13.0 cu130, built for sm_89" \
      org.splatfix.version="VERSION" \
      org.splatfix.targets="sm_89"

USER 10001:10001
WORKDIR /home/splat
# Unhealthy without a GPU, with a driver that does not start, or without code for this GPU; docker inspect shows it.
HEALTHCHECK --interval=5m --timeout=60s --start-period=30s --retries=2 \
    CMD ["/bin/sh", "-c", "splatfix diagnose --python /opt/stack --only gpu --only driver --only container --only no-kernel-image && { test -e /dev/nvidiactl || test -e /dev/dxg; } || exit 1"]
# NVIDIA's images have an entry point of their own.
ENTRYPOINT []
CMD ["bash"]
