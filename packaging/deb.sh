#!/bin/sh
# deb.sh VERSION OUT: makes a package for Debian of the programs in $BUILT, with dpkg-deb alone. KEN_DEB_COMPRESSION=none is for tests.
set -eu
umask 022
version=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
fail() {
    echo "make: $*" >&2
    exit 1
}
command -v dpkg-deb >/dev/null || fail "no dpkg-deb on PATH: apt-get install dpkg"
command -v objdump >/dev/null || fail "no objdump on PATH, which tells what the programs link to: apt-get install binutils"
[ -n "$version" ] || fail "no version: deb is made in the source tree"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
export SOURCE_DATE_EPOCH="$epoch"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT INT TERM
chmod 755 "$tree"
${MAKE:-make} -s install PREFIX=/usr DESTDIR="$tree" BUILT="$BUILT" PROGRAMS="$PROGRAMS"

# As Debian wants it: compressed pages, and what belongs to the documentation of a package.
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
mv "$tree/usr/share/doc/ken/LICENSE" "$tree/usr/share/doc/ken/copyright"
gzip -9nc CHANGELOG.md >"$tree/usr/share/doc/ken/changelog.gz"
mv "$tree/usr/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
install -D -m 640 packaging/conffile.toml "$tree/etc/ken/ken.toml"
chmod 750 "$tree/etc/ken"

# The oldest C library that has every function that is called. The tools are linked statically and need none.
libc=$(for program in $PROGRAMS; do objdump -T "$BUILT/$program" 2>/dev/null; done | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -Vu | tail -n 1)
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<END
Package: ken
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: the authors of ken <ken@localhost>
Section: utils
Priority: optional
Installed-Size: $(du -k --apparent-size -s "$tree/usr" | cut -f1)
Depends: libc6 (>= ${libc:-2.17}), libgcc-s1, systemd (>= 252) | systemd-standalone-sysusers, systemd (>= 252) | systemd-standalone-tmpfiles
Recommends: git, ca-certificates, man-db
Description: governed AI agent made of small programs
 ken runs an AI agent on your own machine, under rules that you set. It
 answers from what it was taught, calls tools in a sandbox, works on files
 and searches the web. What could do harm waits until a person approves it,
 and everything that it does is recorded.
 .
 The service is neither enabled nor started by this package; ken(7) says how.
END
echo /etc/ken/ken.toml >"$tree/DEBIAN/conffiles"
for script in preinst postinst prerm postrm; do
    install -m 755 "packaging/$script" "$tree/DEBIAN/$script"
    sed -i "s/@version@/$version/" "$tree/DEBIAN/$script"
done
(cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
find "$tree" -newermt "@$epoch" -exec touch -h -d "@$epoch" {} +
dpkg-deb --root-owner-group -Z"${KEN_DEB_COMPRESSION:-xz}" --build "$tree" "$out" >/dev/null
package=ken_${version}_$(dpkg --print-architecture).deb
(cd "$out" && sha256sum "$package" >"$package.sha256")
echo "$out/$package: for a C library from ${libc:-2.17} on"
