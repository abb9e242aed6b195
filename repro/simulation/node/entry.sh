#!/bin/sh
# What a simulated node does before its systemd starts.
# --privileged would have made /sys writable; the test kernel does not allow that option.
for mount in $(awk '$2 ~ "^/sys" {print $2}' /proc/mounts); do mount -o remount,bind,rw "$mount" 2>/dev/null || true; done
mount --make-rshared /
# Docker mounts these three; on a real node they are plain files, which a role may replace and a restart leaves alone.
# Below a new container's mounts they are empty, even if its disk was kept.
for file in /etc/hosts /etc/hostname /etc/resolv.conf; do
    content=$(cat "/simulation/kept$file" 2>/dev/null || cat "$file")
    umount "$file" && { [ -s "$file" ] || printf '%s\n' "$content" > "$file"; }
done
echo "nameserver $SIM_HOST" > /etc/resolv.conf
echo "deb [check-valid-until=no] $SIM_DEBIAN bookworm main" > /etc/apt/sources.list
keys=/home/runner/.ssh/authorized_keys
[ -e "$keys" ] || install -o runner -g runner -m 600 /simulation/authorized_keys "$keys"
[ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N '' -C '' -f /etc/ssh/ssh_host_ed25519_key
unset SIM_HOST SIM_DEBIAN
export container=docker
exec "$@"
