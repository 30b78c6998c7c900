#!/bin/sh
# Runs rustc with the cfg of `make loom`. cargo uses this wrapper for workspace packages only, so
# other packages are not rebuilt.
exec "$@" --cfg quorlock_loom
