#!/usr/bin/env bash
# Puts what was built into place: scripts/install.sh COMMAND PREFIX DESTDIR [GENERATOR]. GENERATOR is the same command where
# this machine can run it, if COMMAND is for another.
set -euo pipefail
command=$1 prefix=$2 destdir=$3 generator=${4:-$1}
root=$(cd "$(dirname "$0")/.." && pwd)
to=$destdir$prefix
umask 022

case $prefix in
/* ) ;;
*) echo "install: PREFIX=$prefix: not an absolute path; nothing was installed" >&2 && exit 2 ;;
esac
# It becomes a part of the unit, in which blanks and some other characters are no part of a path.
if [[ $prefix == *[!A-Za-z0-9/._+-]* ]]; then
    echo "install: PREFIX=$prefix: only letters, digits and / . _ + - may be in it; nothing was installed" >&2
    exit 2
fi
install -D -m 755 "$command" "$to/bin/lapstrake"
"$generator" man "$to/share/man/man1"
chmod 644 "$to"/share/man/man1/lapstrake*.1
completion() {
    install -d "$to/share/$2"
    "$generator" completions "$1" >"$to/share/$2/$3"
    chmod 644 "$to/share/$2/$3"
}
completion bash bash-completion/completions lapstrake
completion zsh zsh/site-functions _lapstrake
completion fish fish/vendor_completions.d lapstrake.fish
install -d "$to/lib/systemd/system"
for unit in lapstrake@.service lapstrake-gateway.service lapstrake-monitor.service lapstrake-monitor.timer; do
    sed "s|/usr/bin/|$prefix/bin/|" "$root/packaging/$unit" >"$to/lib/systemd/system/$unit"
    chmod 644 "$to/lib/systemd/system/$unit"
done
