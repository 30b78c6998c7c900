#!/bin/sh
# Runs rustdoc with unstable options enabled, because its JSON output is unstable. Only rustdoc gets
# RUSTC_BOOTSTRAP, so cargo does not rebuild the dependencies.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
