#!/bin/sh
# rustc with the cfg of `make loom`. As cargo's wrapper for the packages of this workspace, it leaves other packages as
# they were built before.
exec "$@" --cfg quorlock_loom
