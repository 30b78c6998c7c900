#!/usr/bin/env bash
# Line coverage of src/, by room and file. Lines of tests (`#[cfg(test)]`) count neither as code nor as covered.
#
#   scripts/coverage.sh            by all tests: unit, on servers (it/), in paused time (paused/)
#   SIM=1 scripts/coverage.sh      by the simulation alone, with SEEDS seeds of each mode (2000)
#   LINES=1 scripts/coverage.sh    also lists the lines that were not reached, file by file
#
# ARGS goes to the test programs (a filter), or to the simulation. What no test reaches is no fault by itself: look at
# the lines. Examples in the documentation do not count, since only nightly compilers measure them.
set -euo pipefail
cd "$(dirname "$0")/.."

by=tests
[[ -z ${SIM:-} ]] || by=sim
out=${CARGO_TARGET_DIR:-$PWD/target}/coverage/$by
# Instrumented programs are others than those that `cargo test` builds; what was left by the last run does not mix in.
export CARGO_LLVM_COV_TARGET_DIR=$out
read -ra args <<<"${ARGS:-}"

main() {
    install
    mkdir -p "$out"
    cargo llvm-cov clean --workspace
    local failed=0
    "by_$by" || failed=1
    table
    if [[ $failed -ne 0 ]]; then
        echo "coverage: a test failed, so the figures are too low" >&2
        exit 1
    fi
}

install() {
    [[ -n $(command -v cargo) ]] || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    tools=$(rustc --print target-libdir)/../bin
    [[ -x $tools/llvm-cov ]] || rustup component add llvm-tools
    cargo llvm-cov --version >/dev/null 2>&1 || cargo install cargo-llvm-cov --locked
}

# By the tools of LLVM themselves: `cargo llvm-cov report` leaves out what is compiled by way of tests/, as src/protocol
# is for the model. Processes that a test kills leave a profile that was not written to its end, or none.
export_lines() {
    local objects=() object profile=$out/all.profdata
    while IFS= read -r object; do
        objects+=(-object "$object")
    done < <(find "$out/$1/deps" -type f -perm -u+x ! -name '*.so' ! -name '*.dylib')
    find "$out" -name '*.profraw' >"$out/profiles"
    "$tools/llvm-profdata" merge -sparse --failure-mode=all -f "$out/profiles" -o "$profile"
    "$tools/llvm-cov" export -format=lcov -instr-profile "$profile" "${objects[@]}" >"$out/lines.info"
}

by_tests() {
    local status=0
    cargo llvm-cov test --no-report --no-fail-fast --all-features --lib --test it --test paused -- \
        ${args+"${args[@]}"} || status=1
    export_lines debug
    return "$status"
}

# The unit tests are built, and not run: they have all lines of src/, also those of which the simulation has no part.
by_sim() {
    local status=0
    cargo llvm-cov test --no-report --release --all-features --lib -- --list >/dev/null
    simulate || status=1
    export_lines release
    return "$status"
}

simulate() {
    cargo llvm-cov run --no-report --release -p quorlock-sim -- --seeds "${SEEDS:-2000}" ${args+"${args[@]}"}
}

table() {
    echo
    find src -name '*.rs' | sort |
        awk -v root="$PWD" -v info="$out/lines.info" -v lines="${LINES:-}" -f scripts/coverage.awk
}

main
