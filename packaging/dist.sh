#!/bin/sh
# dist.sh VERSION OUT: makes a tarball of the programs in $BUILT with pages, units and shared files. `make install` works in it, without
# cargo. Equal files give an equal tarball.
set -eu
umask 022
mkdir -p "$2"
out=$(cd "$2" && pwd)
[ -n "$1" ] || { echo "make: no version: dist is made in the source tree" >&2; exit 1; }
name=ken-$1-$(uname -m)-linux
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT INT TERM
mkdir -p "$tree/$name/bin"
for program in $PROGRAMS; do install -m 755 "$BUILT/$program" "$tree/$name/bin"; done
cp -R Makefile README.md CHANGELOG.md LICENSE etc man share "$tree/$name"
# A file that only its owner may read is no use to others.
chmod -R u+w,go-w,a+rX "$tree/$name"
(cd "$tree/$name" && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >"$tree/SHA256SUMS" && mv "$tree/SHA256SUMS" .)
tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --format=gnu -cf - "$name" | gzip -9n >"$out/$name.tar.gz.new"
mv "$out/$name.tar.gz.new" "$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$out/$name.tar.gz"
