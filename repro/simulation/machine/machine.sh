#!/bin/sh
# Makes a disk that was never booted before the machine that QEMU says it is: its keys and its name.
set -eu
modprobe qemu_fw_cfg
given=/sys/firmware/qemu_fw_cfg/by_name/opt/machine
install -m 600 "$given/host_key/raw" /etc/ssh/ssh_host_ed25519_key
install -m 644 "$given/host_key.pub/raw" /etc/ssh/ssh_host_ed25519_key.pub
install -o runner -g runner -m 600 "$given/authorized_key/raw" /home/runner/.ssh/authorized_keys
install -m 644 "$given/name/raw" /etc/hostname
hostname --file /etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" > /etc/hosts
printf '[Match]\nName=eth1\n[Network]\nAddress=%s\n' "$(cat "$given/address/raw")" > /etc/systemd/network/20-cluster.network
