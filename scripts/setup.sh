#!/usr/bin/env bash
# Installs what building and testing FarFS needs, and does nothing where all of it is there.
set -euo pipefail

# The one list: what the build, the tests that mount, and the demonstration call upon.
packages=(
    gcc         # links, and builds zstd and ring
    make        # the front of everything here
    git         # the tree that `cargo xtask tidy` reads
    fuse3       # fusermount3, for mounts by ordinary users
    iproute2    # network namespaces and shaped links
    util-linux  # unshare, nsenter, mountpoint
    procps      # ps
    attr        # extended attributes in the tests
    acl         # access lists in the tests
    sqlite3     # a demanding writer in the tests
    rsync       # another one, and the measure to beat
)

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# apt-get waits while another program installs packages, but not while one brings the lists of them up to date.
update_lists() {
    local said
    for _ in $(seq 60); do
        said=$(as_root env LC_ALL=C apt-get update -qq 2>&1) && return
        [[ $said == *'Could not get lock'* ]] || break
        sleep 5
    done
    echo "setup: $said" >&2
    return 1
}

missing=()
if command -v dpkg-query >/dev/null; then
    for package in "${packages[@]}"; do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = installed ] || missing+=("$package")
    done
fi
if [ "${#missing[@]}" -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    update_lists
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
elif ! command -v dpkg-query >/dev/null; then
    echo "setup: this is not Debian or a relative of it; it needs: ${packages[*]}" >&2
fi

if ! command -v cargo >/dev/null; then
    echo "setup: there is no cargo; install rustup from https://rustup.rs and try again" >&2
    exit 1
fi
# rust-toolchain.toml names the toolchain. Whether it is there, cargo itself knows best.
cd "$(dirname "$0")/.."
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    echo "setup: installing the toolchain $channel"
    rustup toolchain install "$channel" --profile minimal --component clippy --component rustfmt
fi

if [ ! -e /dev/fuse ]; then
    as_root modprobe fuse 2>/dev/null || true
    [ -e /dev/fuse ] || echo "setup: there is no /dev/fuse; nothing can be mounted here" >&2
fi
