#!/bin/sh
# Runs rustdoc with unstable options enabled, because its JSON output is unstable. Only rustdoc gets
# RUSTC_BOOTSTRAP, so cargo does not rebuild the dependencies.
#
# The hidden items of quorlock include `test_util`, the only hidden module, whose items quorlock-test re-exports.
case " $* " in
    *" --crate-name quorlock "*) set -- "$@" --document-hidden-items ;;
esac
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
