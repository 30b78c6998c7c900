# Functions of .ci/run and .ci/nightly: steps with a summary, the setup, and a check that no server is left.
# shellcheck shell=bash

export CARGO_INCREMENTAL=0
# A panic names its line without debug information.
export CARGO_PROFILE_DEV_DEBUG=none
# The tests on servers mostly wait.
export RUST_TEST_THREADS=6
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export peers=benches/peers/Cargo.toml
export fuzz=fuzz/Cargo.toml

# A file with one line per step.
summary=$(mktemp)
# The process IDs and the output files of the jobs that run beside the steps.
jobs=()
outputs=()

setup() {
    header "setup"
    ./scripts/setup.sh
    [[ -n $(command -v cargo) ]] || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    # setup.sh passes the name of the server to its command if that is not redis-server.
    # shellcheck disable=SC2016  # expanded by the inner shell
    REDIS_SERVER=$(./scripts/setup.sh sh -c 'echo "${REDIS_SERVER:-redis-server}"')
    export REDIS_SERVER
    local component
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
    done
    rustc --version
    "$REDIS_SERVER" --version
    # Tests create the directories of their servers below TMPDIR, so that no_server_left can find these servers. The
    # path is short, because the path of a Unix socket is limited to 107 bytes.
    TMPDIR=$(mktemp -d /tmp/quorlock.XXXXXX)
    export TMPDIR
    # Some servers run as another user and need access to their directories.
    chmod 711 "$TMPDIR"
    trap '[[ ${#jobs[@]} -eq 0 ]] || kill "${jobs[@]}"; rm -rf "$TMPDIR" "$summary"' EXIT
    servers_before=$(servers)
}

# Checks that no servers are left, prints the summary, and fails if a step has failed.
finish() {
    step "no Redis server is left" no_server_left "$servers_before"
    header "summary"
    echo "    time      CPU  result  step"
    cat "$summary"
    printf '%6d s in total\n' "$SECONDS"
    if grep -q ' FAILED ' "$summary"; then echo "steps have failed"; exit 1; fi
    echo "all steps passed"
}

header() {
    printf '\n==== %s\n' "$1"
}

# Runs a step. After a failure, the following steps still run.
step() {
    local name=$1 start=$SECONDS cpu cpu_times cpu_before result=ok status
    cpu_times=$(mktemp)
    read_cpu
    cpu_before=$cpu
    shift
    header "$name"
    # In a subshell, because `set -e` has no effect in a function that is called in a condition.
    set +e
    (set -e; "$@")
    status=$?
    set -e
    [[ $status -eq 0 ]] || result=FAILED
    printf -- '---- %s: %s, %d s\n' "$name" "$result" $((SECONDS - start))
    read_cpu
    rm "$cpu_times"
    printf '%6d s %6d s  %-6s  %s\n' $((SECONDS - start)) $((cpu - cpu_before)) "$result" "$name" >>"$summary"
}

# Sets `cpu` to the CPU seconds of the ended child processes of this shell. `times` runs in this shell, because a
# subshell has no ended child processes.
read_cpu() {
    times >"$cpu_times"
    cpu=$(awk -F '[ms ]+' 'END { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$cpu_times")
}

# Runs a function in the background, beside the steps that follow. `join` waits for this function.
beside() {
    local output
    output=$(mktemp)
    (set -e; trap - EXIT; "$@") >"$output" 2>&1 &
    jobs+=("$!")
    outputs+=("$output")
}

idle() {
    if [[ -n $(command -v chrt) ]]; then chrt --idle --pid 0 "$BASHPID"; else renice -n 19 -p "$BASHPID"; fi
}

# Waits for the functions that `beside` started, and prints their output.
join() {
    local at status
    for at in "${!jobs[@]}"; do
        status=0
        wait "${jobs[at]}" || status=$?
        cat "${outputs[at]}"
        [[ $status -eq 0 ]] || step "the steps beside others" exit "$status"
    done
    jobs=()
}

# Prints the process IDs of running Redis and Valkey servers.
servers() {
    ps -A -o pid= -o comm= | awk '$2 ~ /(redis|valkey)-server/ { print $1 }'
}

# Kills servers that the tests left behind, and fails if any exist. A left server did not run before the tests ($1),
# and its directory or arguments are below TMPDIR or this directory. A server renames its process, so its arguments
# may not contain the path.
no_server_left() {
    local pid place left=0
    for pid in $(servers); do
        if grep -qx "$pid" <<<"$1"; then continue; fi
        place=$(readlink "/proc/$pid/cwd" 2>/dev/null || true)" "$(ps -o args= -p "$pid" || true)
        [[ $place == *"$TMPDIR"* || $place == "$PWD"[/\ ]* ]] || continue
        echo "left behind: process $pid, $place"
        kill -KILL "$pid" || true
        left=$((left + 1))
    done
    [[ $left -eq 0 ]] || return 1
    echo "none"
}

# Checks the library with sets of its features. $1 is `each` for each feature alone, or `all` for all combinations.
# Clippy checks the library without features and with all features. Also tests quorlock-test without its feature.
features() {
    local names=(blocking metrics rustls-0-23 serde test-util tls-rustls tracing) set bit chosen
    for ((set = 1; set < 1 << ${#names[@]}; set++)); do
        chosen=()
        for ((bit = 0; bit < ${#names[@]}; bit++)); do
            if ((set >> bit & 1)); then chosen+=("${names[bit]}"); fi
        done
        [[ ${#chosen[@]} -eq 1 || $1 == all ]] || continue
        echo "${chosen[*]}"
        cargo check --quiet --lib --no-default-features --features "${chosen[*]}"
    done
    echo "quorlock-test without scripts"
    cargo test --quiet --package quorlock-test --no-default-features --lib
}

# Packs the library and quorlock-test, unpacks them, and checks that each package compiles alone: dev-dependencies of
# one could enable features that the other needs. The nightly runs the tests of the packages.
package() {
    cargo package --quiet --no-verify --allow-dirty --package quorlock --package quorlock-test
    cargo package --list --allow-dirty --package quorlock --package quorlock-test
    unpack
    in_package cargo check --quiet --package quorlock
    in_package cargo check --quiet --package quorlock-test
    in_package cargo check --quiet --workspace --all-features --examples
}

# Unpacks the packages, with the versions of Cargo.lock. cargo omits the dev-dependency on quorlock-test from the
# library's package, because this dependency has no version. It is therefore added again, with the path of the unpacked
# quorlock-test.
unpack() {
    local version
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
    local unpacked=$TMPDIR/package
    mkdir -p "$unpacked/testing"
    tar xzf "$CARGO_TARGET_DIR/package/quorlock-$version.crate" --strip-components 1 --directory "$unpacked"
    tar xzf "$CARGO_TARGET_DIR/package/quorlock-test-$version.crate" --strip-components 1 --directory "$unpacked/testing"
    cat >>"$unpacked/Cargo.toml" <<END

[workspace]
members = ["testing"]

[dev-dependencies.quorlock-test]
path = "testing"

[patch.crates-io.quorlock]
path = "."
END
}

# Runs a command in the directory of the unpacked packages.
in_package() {
    (cd "$TMPDIR/package" && COORDINATOR_SEEDS=1 "$@")
}
