#!/usr/bin/env bash
# Prints the line coverage of src/, by module and file. Test code (`#[cfg(test)]`) is not counted.
#
#   scripts/coverage.sh            by all tests: unit, on servers (it/), in paused time (paused/)
#   SIM=1 scripts/coverage.sh      by the simulation alone, with SEEDS seeds of each mode (2000)
#   LINES=1 scripts/coverage.sh    also lists the lines that were not reached, file by file
#
# ARGS is passed to the test programs, as a filter, or to the simulation. An uncovered line is not
# necessarily a defect. Examples in the documentation are not measured, because their measurement
# needs a nightly compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

by=tests
[[ -z ${SIM:-} ]] || by=sim
out=${CARGO_TARGET_DIR:-$PWD/target}/coverage/$by
# A separate directory, because instrumented programs differ from those of `cargo test`. The script
# removes the data of an earlier run.
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

# Uses the LLVM tools directly, because `cargo llvm-cov report` omits files that are compiled
# through tests/, such as src/protocol for the model. Killed processes leave truncated profiles, or
# none.
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

# Builds the unit tests without running them. Their program contains all lines of src/, including
# lines that the simulation does not contain.
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
