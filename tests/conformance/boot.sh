#!/bin/bash
# boot.sh ROOT TREE: for debian.sh, in new namespaces: moves to the system in ROOT and becomes its systemd. The checkout TREE is visible at
# its own path, read only, since test programs know it by that.
set -eu
root=$1 tree=$2
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root$tree" "$root/old"
mount --bind -o ro "$tree" "$root$tree"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"; done
mknod -m 666 "$root/dev/tty" c 5 0
for link in fd:/proc/self/fd stdin:fd/0 stdout:fd/1 stderr:fd/2 ptmx:pts/ptmx; do ln -s "${link#*:}" "$root/dev/${link%%:*}"; done
: >"$root/dev/console"
ip link set lo up 2>/dev/null || true
cd "$root"
pivot_root . old
umount -l /old
exec env -i container=ken-debian PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --log-level=warning
