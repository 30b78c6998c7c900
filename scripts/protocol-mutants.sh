#!/usr/bin/env bash
# Runs cargo-mutants on src/protocol: changes one small piece of the rules at a time, and runs the
# unit tests on each change. Lists the surviving mutants. Each is a behaviour without a unit test.
#
#   scripts/protocol-mutants.sh                    all mutants (about half an hour on one core)
#   SHARD=1/8 scripts/protocol-mutants.sh          the first eighth
#   ARGS="--file '**/round.rs'" scripts/protocol-mutants.sh
#
# The protocol does not import the rest of the crate, so the script builds it as a separate crate.
# A build takes two seconds per mutant, instead of a minute for all of quorlock. .cargo/mutants.toml
# lists equivalent mutants, with the reasons.
set -euo pipefail
cd "$(dirname "$0")/.."

shard=${SHARD:-1/1}
[[ $shard =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ && ${BASH_REMATCH[1]} -le ${BASH_REMATCH[2]} ]] || {
    echo "SHARD=$shard: expected a shard such as 1/8" >&2
    exit 2
}
part=${BASH_REMATCH[1]} parts=${BASH_REMATCH[2]}
target=${CARGO_TARGET_DIR:-$PWD/target}
crate=$target/protocol-mutants/$part-of-$parts

main() {
    [[ -n $(command -v cargo) ]] || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    cargo mutants --version >/dev/null 2>&1 || cargo install cargo-mutants --locked
    write_crate
    cd "$crate"
    # A separate target directory, so that `cargo build` does not find these files.
    unset CARGO_TARGET_DIR
    # A failing case suffices, so test cases are not minimised.
    export PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_FAILURE_PERSISTENCE=off
    local status=0
    # shellcheck disable=SC2086  # words, quoted by the caller
    eval nice cargo mutants --in-place --baseline run --shard $((part - 1))/$parts --timeout 20 \
        --no-shuffle ${ARGS:-} -- --lib || status=$?
    echo "mutants that survived:"
    if [[ -s mutants.out/missed.txt ]]; then cat mutants.out/missed.txt; else echo "none"; fi
    exit $status
}

# Copies the protocol with its unit tests into a crate.
write_crate() {
    mkdir -p "$crate/src" "$crate/.cargo"
    rm -rf "$crate/src/protocol"
    cp -r src/protocol "$crate/src/"
    cp Cargo.lock "$crate/"
    cp .cargo/mutants.toml "$crate/.cargo/"
    cat >"$crate/src/lib.rs" <<'CODE'
#![allow(dead_code, unused_imports)]
mod protocol;
CODE
    cat >"$crate/Cargo.toml" <<TOML
[package]
name = "protocol"
version = "0.0.0"
$(grep -m 1 '^edition = ' Cargo.toml)

[dev-dependencies]
$(sed -n 's/^\(proptest = { version.*\) }$/\1, features = ["std"] }/p' Cargo.toml)

[workspace]

[profile.dev]
debug = 0
opt-level = 1
TOML
}

main
