#!/usr/bin/env bash
# Prints the number of tokens of the code in src/, by module, without tests, comments and documentation.
set -euo pipefail
cd "$(dirname "$0")/.."

# Removes the lines of libtest, which are not part of the table.
cargo test --quiet --test tidy -- --ignored --exact tokens::print_token_counts --nocapture | grep '^|'
