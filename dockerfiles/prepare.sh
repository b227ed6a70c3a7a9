#!/bin/sh
# In an image being built: gives a Debian-like base Python PYTHON_VERSION with venv, and PACKAGES besides.
#   prepare.sh PYTHON_VERSION "PACKAGES"
# apt runs only for what the base lacks, so a base with Python needs no network, and its layer stays empty.
set -eu
certificates=/usr/local/share/splatfix/certificates.pem
export PYTHONDONTWRITEBYTECODE=1 DEBIAN_FRONTEND=noninteractive
wanted="${2:-}"
# ensurepip is a separate package in Debian (python3-venv)
python3 -c 'import ensurepip, venv' 2>/dev/null || wanted="${wanted} python3 python3-venv"
if [ -n "${wanted}" ]; then
    trust=""
    [ ! -s "${certificates}" ] || trust="--option Acquire::https::CAInfo=${certificates}"
    # shellcheck disable=SC2086  # words
    apt-get ${trust} update
    # shellcheck disable=SC2086
    apt-get ${trust} install --yes --no-install-recommends ${wanted}
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/apt/* /var/log/dpkg.log
fi
found="$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
if [ "${found}" != "$1" ]; then
    echo "splatfix: python-mismatch: the base image has Python ${found}, the lane is for $1" >&2
    exit 1
fi
