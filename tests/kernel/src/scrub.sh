#!/sbin/bash
# scrub ARRAY: runs md's own check to its end and prints how many sectors do not match.
md=/sys/block/$(basename "$(readlink -f "$1")")/md
echo check >"$md/sync_action" || exit 1
# The action reads "check" from the moment it is asked for, so idle means done.
while [ "$(cat "$md/sync_action")" != idle ]; do usleep 20000; done
cat "$md/mismatch_cnt"
