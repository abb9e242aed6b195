#!/bin/sh
# Makes a minimal Debian or Ubuntu, which debootstrap has left in the folder that this runs in by chroot, one that boots as a
# machine: a freshly installed server with sshd. Its KERNEL comes from the same ARCHIVE and SUITE, with components; NAME is what
# machines call the archive.
set -eu
export DEBIAN_FRONTEND=noninteractive
# The few drivers of QEMU's hardware: a small initial RAM disk is unpacked soon, without KVM as well.
mkdir -p /etc/initramfs-tools/conf.d
echo 'MODULES=list' > /etc/initramfs-tools/conf.d/machine
printf 'virtio_pci\nvirtio_blk\next4\n' >> /etc/initramfs-tools/modules
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
echo "deb [check-valid-until=no] $ARCHIVE $SUITE" > /etc/apt/sources.list
apt-get -qq update
apt-get -qq -y --no-install-recommends -o APT::Keep-Downloaded-Packages=true install $KERNEL > /dev/null
rm /usr/sbin/policy-rc.d
# Timers that would take the processor in the middle of a test, and consoles that nobody logs in at.
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer getty.target systemd-pstore.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount
systemctl enable ssh systemd-networkd machine soft-roce
systemctl disable systemd-networkd-wait-online
printf 'PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin no\n' \
    > /etc/ssh/sshd_config.d/keys-only.conf
useradd --create-home --shell /bin/bash runner
install -d -o runner -g runner -m 700 /home/runner/.ssh
echo 'runner ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/runner
echo "deb [check-valid-until=no] http://10.0.2.100/$NAME $SUITE" > /etc/apt/sources.list
echo 'LABEL=docker /var/lib/docker ext4 x-systemd.device-timeout=infinity 0 0' > /etc/fstab
mkdir -p /var/lib/docker
: > /etc/resolv.conf
: > /etc/machine-id
rm -f /etc/hostname /etc/ssh/ssh_host_* /var/lib/dbus/machine-id /var/lib/systemd/random-seed
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
# What belongs to these files (caches of libraries, catalogues, users) is up to date: the first start need not look.
touch -r /usr /etc/.updated /var/.updated
