#!/usr/bin/env bash
# A private Docker engine for tests: own socket, own data, no bridge, no firewall rules. Nothing of a system-wide
# engine is touched, and no registry is needed: the base image is made with debootstrap.
#
#   engine.sh start FOLDER         start it; the last line printed is its DOCKER_HOST
#   engine.sh base FOLDER          give it a Debian base image with Python, by the name that the lanes have for theirs
#   engine.sh stop FOLDER          stop it; its data stays in FOLDER
#   engine.sh podman FOLDER        Podman in its place, rootless: as a user of its own that is made for it, and removed with
#   engine.sh unpodman FOLDER      FOLDER
#
# Needs root, and on Debian or Ubuntu: apt-get install docker.io debootstrap; for Podman: podman uidmap
# The base image's tar is kept in splatfix's cache, so it is made once per machine. DEBOOTSTRAP_MIRROR names
# another mirror than debootstrap's own default.
set -euo pipefail
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

SUITE=bookworm
START_SECONDS=60

die() { echo "engine.sh: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || die "$1 is not installed; on Debian or Ubuntu: apt-get install $2"; }

start() {
    [ "$(id -u)" = 0 ] || die "a private engine needs root"
    need dockerd docker.io
    need containerd docker.io
    mkdir -p "$FOLDER"
    # a socket's path may have 107 bytes; containerd's lies deepest
    local deepest="$FOLDER/exec/containerd/containerd.sock.ttrpc"
    [ "${#deepest}" -le 107 ] || die "the path $FOLDER is too long for sockets; choose a shorter one"
    if running; then echo "$HOST"; return; fi
    forget_containerd
    rm -f "$FOLDER/docker.pid" "$FOLDER/docker.sock"
    setsid dockerd --host "$HOST" --data-root "$FOLDER/data" --exec-root "$FOLDER/exec" \
        --pidfile "$FOLDER/docker.pid" --bridge=none --iptables=false --ip6tables=false \
        >"$FOLDER/dockerd.log" 2>&1 </dev/null &
    local child=$!
    for _ in $(seq $((START_SECONDS * 5))); do
        if answers; then echo "$HOST"; return; fi
        kill -0 "$child" 2>/dev/null || break
        sleep 0.2
    done
    tail -n 20 "$FOLDER/dockerd.log" >&2
    kill "$child" 2>/dev/null || true
    die "dockerd did not come up; the end of $FOLDER/dockerd.log is above"
}

# A dockerd that was killed leaves its containerd, or the number of one that died with it and that nobody has reaped: the next
# dockerd would wait for that one and give up.
forget_containerd() {
    local file="$FOLDER/exec/containerd/containerd.pid" pid
    [ -s "$file" ] || return 0
    pid="$(cat "$file")"
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != containerd ] || kill -KILL "$pid" 2>/dev/null || true
    rm -f "$file"
}

answers() { [ -S "$FOLDER/docker.sock" ] && docker --host "$HOST" version >/dev/null 2>&1; }

# True when the process in the pid file is a dockerd: a number left from before a reboot may be anybody's.
running() {
    [ -s "$FOLDER/docker.pid" ] || return 1
    local about; about="/proc/$(cat "$FOLDER/docker.pid")"
    [ "$(cat "$about/comm" 2>/dev/null)" = dockerd ] && ! grep -q '^State:.*Z' "$about/status"
}

stop() {
    running || { echo "engine.sh: no engine runs in $FOLDER" >&2; return; }
    local pid; pid="$(cat "$FOLDER/docker.pid")"
    kill "$pid"
    for _ in $(seq 150); do
        kill -0 "$pid" 2>/dev/null || { unmount; return; }
        sleep 0.2
    done
    die "dockerd (process $pid) does not end"
}

# Network namespaces of builds stay mounted after the engine's end; with them FOLDER could not be removed.
unmount() {
    awk -v below="$FOLDER/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | while read -r point; do
        umount "$point" || echo "engine.sh: cannot unmount $point" >&2
    done
}

podman_start() {
    [ "$(id -u)" = 0 ] || die "another user can be made by root only"
    need podman podman
    need newuidmap uidmap
    chmod 755 "$FOLDER"  # its parents must be open to others too
    useradd --system --home-dir "$FOLDER/home" --create-home --shell /usr/sbin/nologin "$PODMAN_USER"
    usermod --add-subuids 1000000-1065535 --add-subgids 1000000-1065535 "$PODMAN_USER"
    local settings="$FOLDER/home/.config/containers" runtime=""
    # crun refuses machines with both cgroup hierarchies
    ! command -v runc >/dev/null || runtime='runtime = "runc"'
    mkdir -p "$settings" "$FOLDER/run"
    printf '[storage]\ndriver = "overlay"\n' >"$settings/storage.conf"
    printf '[engine]\n%s\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' "$runtime" >"$settings/containers.conf"
    chown -R "$PODMAN_USER:" "$FOLDER/home" "$FOLDER/run"
    chmod 700 "$FOLDER/run"
    cd "$FOLDER"
    setsid setpriv --reuid "$PODMAN_USER" --regid "$PODMAN_USER" --init-groups \
        env HOME="$FOLDER/home" XDG_RUNTIME_DIR="$FOLDER/run" podman system service --time=0 "unix://$FOLDER/run/podman.sock" \
        >"$FOLDER/podman.log" 2>&1 </dev/null &
    for _ in $(seq $((START_SECONDS * 5))); do
        if [ -S "$FOLDER/run/podman.sock" ]; then echo "unix://$FOLDER/run/podman.sock"; return; fi
        sleep 0.2
    done
    tail -n 20 "$FOLDER/podman.log" >&2
    die "podman did not come up; the end of $FOLDER/podman.log is above"
}

podman_stop() {
    local pids
    for _ in $(seq 50); do
        pids="$(ps -o pid= -u "$PODMAN_USER")" || break
        # shellcheck disable=SC2086  # words
        kill -KILL $pids 2>/dev/null || true
        sleep 0.1
    done
    userdel "$PODMAN_USER"
    rm -rf "$FOLDER/home" "$FOLDER/run"
}

base() {
    running || [ -S "${HOST#unix://}" ] || die "no engine runs in $FOLDER; first: engine.sh start $FOLDER"
    local cache tar
    # an import makes a new image each time, and nothing built on the last one could be used again
    if docker --host "$HOST" image inspect "$NAME" >/dev/null 2>&1; then echo "$NAME"; return; fi
    cache="${SPLATFIX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/splatfix}/containers"
    tar="$cache/test-base-$SUITE-$(uname -m).tar"
    [ -s "$tar" ] || make_tar "$tar"
    docker --host "$HOST" import "$tar" "$NAME" >/dev/null
    echo "$NAME"
}

make_tar() {
    need debootstrap debootstrap
    local root; root="$(mktemp -d)"
    # shellcheck disable=SC2064  # the name is wanted as it is now
    trap "rm -rf '$root' '$1.part'" EXIT
    debootstrap --variant=minbase --include=python3,python3-venv "$SUITE" "$root" \
        ${DEBOOTSTRAP_MIRROR:+"$DEBOOTSTRAP_MIRROR"} >&2 || die "debootstrap could not make a Debian $SUITE"
    mkdir -p "$(dirname "$1")"
    tar --directory="$root" --exclude=./var/cache/apt/archives/*.deb --exclude=./var/lib/apt/lists/* \
        --create --file="$1.part" .
    mv "$1.part" "$1"
}

[ $# -ge 2 ] || die "usage: engine.sh start|base|stop|podman|unpodman FOLDER"
mkdir -p "$2"
FOLDER="$(cd "$2" && pwd)"
HOST="unix://$FOLDER/docker.sock"
[ ! -S "$FOLDER/run/podman.sock" ] || HOST="unix://$FOLDER/run/podman.sock"
PODMAN_USER=splatfix-test-podman
NAME="debian:$SUITE-slim"
case "$1" in
    start) start ;;
    base) base ;;
    stop) stop ;;
    podman) podman_start ;;
    unpodman) podman_stop ;;
    *) die "unknown command $1" ;;
esac
