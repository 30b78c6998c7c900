#!/bin/sh
# rustc with the cfg of `make loom`. Used as cargo's wrapper for workspace packages, so other
# packages need not be built again.
exec "$@" --cfg quorlock_loom
