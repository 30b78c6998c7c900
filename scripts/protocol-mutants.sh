#!/usr/bin/env bash
# Changes the rules of src/protocol one small piece at a time, and runs their unit tests against each change: a mutant
# that survives is something that no unit test says.
#
#   scripts/protocol-mutants.sh                    all of them (about half an hour on one core)
#   SHARD=1/8 scripts/protocol-mutants.sh          the first eighth
#   ARGS="--file '**/round.rs'" scripts/protocol-mutants.sh
#
# The protocol imports nothing of the crate, so it is built as a crate of its own: in two seconds for each mutant,
# where all of quorlock takes a minute. What changes nothing is listed, with the reason, in .cargo/mutants.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

shard=${SHARD:-1/1}
[[ $shard =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ && ${BASH_REMATCH[1]} -le ${BASH_REMATCH[2]} ]] || {
    echo "SHARD=$shard: it is 1/8 to 8/8, say" >&2
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
    # A target directory of its own: what is built there is no part of what `cargo build` finds.
    unset CARGO_TARGET_DIR
    # That a case fails is enough: which is the smallest, nobody asks.
    export PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_FAILURE_PERSISTENCE=off
    # shellcheck disable=SC2086  # words, quoted by whoever calls
    eval exec nice cargo mutants --in-place --baseline run --shard $((part - 1))/$parts --timeout 20 \
        --no-shuffle ${ARGS:-} -- --lib
}

# The protocol as it stands, with its unit tests.
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
