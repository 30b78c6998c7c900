#!/bin/sh
# Ensures that the requirements of the demo, the tests and the benchmarks are installed: cargo, a C
# compiler (for linking, and for the TLS feature) and a Redis server. Python is optional: the
# tests with libraries of other languages use it.
#
#   scripts/setup.sh               check, and install what is missing (not cargo)
#   scripts/setup.sh COMMAND...    do this, then run COMMAND; if the server is not called redis-server,
#                                  COMMAND receives the server's name in REDIS_SERVER
#
# Prints nothing if all requirements are met. REDIS_SERVER=/path/to/redis-server selects a server
# other than the one on the PATH. Never starts a system service, and does not change an installed
# server.
set -eu

policy=/usr/sbin/policy-rc.d
policy_mark="Temporary, by scripts/setup.sh of quorlock, process $$"
log=

main() {
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM

    need_cargo
    need_compiler
    need_server
    case "$*" in
        "" | "cargo test "*) want_python ;;
    esac
    clean_up
    trap - EXIT HUP INT TERM
    [ $# -eq 0 ] || exec "$@"
}

say() {
    printf 'setup: %s\n' "$*" >&2
}

fail() {
    for line in "$@"; do say "$line"; done
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

need_cargo() {
    has cargo && return
    # In a shell that did not read the profile, the directory of rustup is not on the PATH yet.
    cargo_bin=${CARGO_HOME:-${HOME:-}/.cargo}/bin
    if [ -x "$cargo_bin/cargo" ]; then
        PATH=$cargo_bin:$PATH
        export PATH
        return
    fi
    fail "cargo not found. Install Rust from https://rustup.rs, then try again."
}

need_compiler() {
    find_compiler && return
    case $(manager) in
        apt) install_apt gcc libc6-dev ;;
        dnf) install_dnf gcc ;;
    esac || true
    find_compiler || fail \
        "no C compiler found, and none could be installed. Do one of these, then try again:" \
        "  - Debian, Ubuntu: apt-get install gcc libc6-dev (as root)" \
        "  - Fedora and kin: dnf install gcc (as root)" \
        "  - macOS:          xcode-select --install"
}

find_compiler() {
    has cc || has gcc || has clang
}

need_server() {
    if [ -n "${REDIS_SERVER:-}" ]; then
        has "$REDIS_SERVER" && return
        [ "$REDIS_SERVER" = redis-server ] || fail \
            "REDIS_SERVER='$REDIS_SERVER' is not an executable program." \
            "Correct it, or unset it to use the redis-server on the PATH."
    fi
    find_server && return
    case $(manager) in
        apt) install_service_apt ;;
        dnf) install_dnf redis || install_dnf valkey ;;
        brew) install_brew redis ;;
    esac || true
    find_server || fail \
        "redis-server not found, and it could not be installed. Do one of these, then try again:" \
        "  - Debian, Ubuntu: apt-get install redis-server (as root)" \
        "  - Fedora and kin: dnf install redis, or dnf install valkey (as root)" \
        "  - macOS:          brew install redis" \
        "  - elsewhere:      set REDIS_SERVER=/path/to/redis-server (or to a valkey-server)"
}

# Valkey supports the same protocol, and replaces Redis if only Valkey is packaged.
find_server() {
    has redis-server && return
    has valkey-server || return 1
    REDIS_SERVER=valkey-server
    export REDIS_SERVER
    say "no redis-server found: using valkey-server (REDIS_SERVER=valkey-server)"
}

# Only tests use Python, and without Python they are skipped. Therefore a missing Python is not an
# error, and the script does not ask for a password.
want_python() {
    find_python && return
    if [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null || [ "$(manager)" = brew ]; then
        case $(manager) in
            apt) install_apt python3 python3-venv ;;
            dnf) install_dnf python3 ;;
            brew) install_brew python3 ;;
        esac || true
    fi
    find_python || say "no python3 with the venv module: the tests with Python libraries are skipped"
}

# On Debian, the package python3-venv contains the module ensurepip, which venv needs.
find_python() {
    python3 -c 'import ensurepip, venv' 2>/dev/null
}

manager() {
    for each in apt-get dnf brew; do
        if has "$each"; then
            echo "${each%-get}"
            return
        fi
    done
    echo none
}

# Debian starts and enables the service of an installed package. This function prevents both, but
# only here, where no server was installed before.
install_service_apt() {
    forbid_services || return 1
    for package in redis-server valkey-server; do
        install_apt "$package" || continue
        as_root update-rc.d "$package" disable >/dev/null 2>&1 || true
        say "$package is installed; its system service is neither started nor enabled"
        return 0
    done
    return 1
}

# Keeps an existing policy of the administrator: `set -C` fails if the file exists.
forbid_services() {
    [ -e "$policy" ] && return
    # shellcheck disable=SC2016  # expanded by the inner shell
    as_root sh -c 'set -C; printf "#!/bin/sh\n# %s\nexit 101\n" "$2" >"$1" && chmod 755 "$1"' \
        sh "$policy" "$policy_mark"
}

install_apt() {
    say "installing $* with apt-get"
    # An unreachable package source must not prevent an installation that does not need it.
    logged as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update || say "apt-get update failed; continuing"
    logged as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 install "$@"
}

install_dnf() {
    say "installing $* with dnf"
    logged as_root dnf -q -y install "$@"
}

install_brew() {
    say "installing $* with brew"
    logged brew install "$@"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        say "root is required, and sudo is not installed"
        return 1
    fi
}

# Runs a command, and prints its output only if the command fails.
logged() {
    [ -n "$log" ] || log=$(mktemp)
    "$@" >"$log" 2>&1 && return
    cat "$log" >&2
    return 1
}

clean_up() {
    if [ -n "$log" ]; then rm -f "$log"; fi
    if grep -qs "$policy_mark" "$policy"; then as_root rm -f "$policy"; fi
}

main "$@"
