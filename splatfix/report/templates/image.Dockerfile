{#- An image of a checkout. Equal plans give equal texts, for every builder (BuildKit, Docker's classic one, Podman, Kaniko). -#}

{# Packages of the distribution, with the certificate authority of a closed site trusted. #}
{% macro install(names) %}
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
 && apt-get install --yes --no-install-recommends {{ names|sort|join(" ") }} \
 && rm -rf /var/lib/apt/lists/* /etc/apt/apt.conf.d/90site \
 && update-ca-certificates
{% endmacro %}
{{ (plan.name ~ " for " ~ targets ~ ", written by splatfix " ~ version ~ ". The build context is the checkout:")|comment("") }}
#
#   docker build -t {{ image }} -f Dockerfile CHECKOUT
#   docker run --rm --gpus all --shm-size 8g {{ image }} splatfix diagnose
#
# A wheel of splatfix has to lie in the checkout: --out writes one, --build-arg SPLATFIX= takes what pip does.
#
# The build ends with an error if a binary lacks code for a target. Whether it computes and trains only a GPU
# shows: splatfix certify --level 2, splatfix certify.
#
# Chosen, and why:
{% for item in plan.reasons %}
{{ ("- " ~ item.text)|comment }}
{% endfor %}
{% for item in plan.rejected %}
{{ ("- not " ~ item.what ~ ": " ~ item.why)|comment }}
{% endfor %}
{# NVIDIA's images exist for both; an emulated nvcc takes hours #}
{% if plan.machine != "x86_64" %}
{{ ("- for a machine with an " ~ plan.machine ~ " processor: build it on one, or with --platform linux/arm64")|comment }}
{% endif %}
{% if plan.notes %}
#
# Not known, or left to you:
{% for note in plan.notes %}
{{ ("- " ~ note)|comment }}
{% endfor %}
{% endif %}
#
# On a closed site: --build-arg BUILD_IMAGE=, RUN_IMAGE=, PIP_INDEX_URL=, TORCH_INDEX_URL= name your mirrors,
# --build-arg CA_PEM="$(cat ca.pem)" your certificate authority, HTTP_PROXY, HTTPS_PROXY and NO_PROXY need no
# line here. Build arguments stay readable in the image's history: no passwords in them. On a machine without a
# bridge for containers add --network host.
#
# Rules of hadolint that are not kept: DL3008, because distributions remove versions that a security fix
# replaces; DL3013 for what the trainer imports, because its authors pin other Pythons or nothing.

ARG BUILD_IMAGE={{ plan.build_image }}
ARG RUN_IMAGE={{ plan.run_image }}

# Everything that compiles. Nothing of this stage but /opt/stack and /opt/splatfix gets into the image.
FROM ${BUILD_IMAGE} AS builder
{{ install(["ca-certificates", "g++", "python3", "python3-dev", "python3-venv"]) -}}
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_DISABLE_PIP_VERSION_CHECK=1

ARG PIP_INDEX_URL=""
ARG TORCH_INDEX_URL={{ plan.torch_index }}
# torch decides everything after it: it must be the build for CUDA {{ plan.cuda }}, wherever it came from. The build tools
# stand beside it, because extensions are compiled against this very torch and not in an environment of their
# own.
# hadolint ignore=DL3013
RUN python3 -m venv /opt/stack \
 && /opt/stack/bin/python -m pip install --no-cache-dir {{ plan.build_tools|join(" ") }} \
 && /opt/stack/bin/python -m pip install --no-cache-dir --index-url "${TORCH_INDEX_URL}" "torch=={{ plan.torch }}" torchvision \
 && /opt/stack/bin/python -c 'import torch; assert torch.version.cuda == "{{ plan.cuda }}", torch.version.cuda' \
 && /opt/stack/bin/python -m pip freeze > /opt/stack/torch.txt

{% if plan.requirements %}
# What the extensions and the trainer's scripts import; torch stays as it is.
# hadolint ignore=DL3013
RUN /opt/stack/bin/python -m pip install --no-cache-dir --constraint /opt/stack/torch.txt \
        {{ plan.requirements|quoted }}

{% endif %}
{% if not plan.toolkit_requirements %}
# torch takes the toolkit from here, not from the first nvcc on PATH.
ENV CUDA_HOME=/usr/local/cuda \
    TORCH_CUDA_ARCH_LIST="{{ plan.arch_list }}"

{% else %}
{% set root = "/opt/cuda/" ~ plan.toolkit_folder %}
# The CUDA compiler from PyPI: no other registry is needed. Its parts are kept at one release, the newest do not fit.
RUN /opt/stack/bin/python -m pip install --no-cache-dir --target /opt/cuda \
        {{ plan.toolkit_requirements|quoted }} \
{% for path, target in plan.toolkit_links %}
 && ln -s {{ target }} {{ root }}/{{ path }}{% if not loop.last %} \{% endif +%}
{% endfor %}
# g++ does not find cub and thrust there by itself, nvcc does.
ENV CUDA_HOME={{ root }} \
    CPATH={{ root }}/include/cccl \
    TORCH_CUDA_ARCH_LIST="{{ plan.arch_list }}"

{% endif %}
# splatfix, apart from the stack: the wheel that splatfix dockerfile --out puts beside the Dockerfile.
# --build-arg SPLATFIX= takes whatever pip does. The first file is here because COPY must find one.
ARG SPLATFIX=/opt/wheels/splatfix-{{ version }}-py3-none-any.whl
COPY ["{{ plan.marker }}", "splatfix-*.whl", "/opt/wheels/"]
RUN python3 -m venv /opt/splatfix \
 && /opt/splatfix/bin/python -m pip install --no-cache-dir "${SPLATFIX}"

# The extensions, for {{ targets }}. Edits are made in a scratch copy:
{% for source in plan.sources %}
{{ (source.path ~ " (" ~ source.name ~ ")")|comment("") }}
{% for edit in source.edits %}
{{ ("  - " ~ edit)|comment("    ") }}
{% endfor %}
{% endfor %}
{% for path in plan.copies %}
COPY ["{{ path }}", "{{ path|inside }}"]
{% endfor %}
# Compilers at once; each takes up to 2.5 GiB of memory.
ARG MAX_JOBS={{ plan.jobs }}
RUN touch /opt/wheels/before \
 && /opt/splatfix/bin/splatfix install --yes --verbose --no-cache --python /opt/stack \
        {{ options }} --jobs "${MAX_JOBS}" \
        {{ plan.sources|map(attribute="path")|map("inside")|join(" ") }}
# The proof: every library that is new in the environment, read as bytes, has code for {{ targets }}.
RUN find /opt/stack/lib -name '*.so' -newer /opt/wheels/before > /opt/wheels/built \
 && test -s /opt/wheels/built \
 && xargs -d '\n' /opt/splatfix/bin/splatfix inspect {{ options }} < /opt/wheels/built

# What is shipped: no compiler, no root.
FROM ${RUN_IMAGE} AS runtime
{{ install(["ca-certificates", "python3"] + run_packages)|trim }} \
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
{% for name, value in labels %}
      {{ name }}="{{ value|label }}"{% if not loop.last %} \{% endif +%}
{% endfor %}

USER 10001:10001
WORKDIR {{ workdir }}
# Unhealthy without a GPU, with a driver that does not start, or without code for this GPU; docker inspect shows it.
HEALTHCHECK --interval=5m --timeout=60s --start-period=30s --retries=2 \
    CMD ["/bin/sh", "-c", "splatfix diagnose --python /opt/stack --only gpu --only driver --only container --only no-kernel-image && { test -e /dev/nvidiactl || test -e /dev/dxg; } || exit 1"]
# NVIDIA's images have an entry point of their own.
ENTRYPOINT []
CMD ["bash"]
