#!/bin/sh
# rustdoc with its unstable options: JSON is one. Only rustdoc gets the variable, so dependencies are not built again.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
