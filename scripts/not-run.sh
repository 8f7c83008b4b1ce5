#!/usr/bin/env bash
# not-run.sh LIST: what the tests of a run could not try, and why (crate lapstrake-not-run wrote it), counted.
set -euo pipefail

list=$1
tests=0
[ ! -e "$list" ] || tests=$(cut -f1 "$list" | sort -u | wc -l)
echo "$tests tests were skipped, or a part of them"
[ "$tests" = 0 ] || cut -f2 "$list" | sort | uniq -c | sort -rn
