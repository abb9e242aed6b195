#!/bin/sh
# Fetches libnccl2 of an exact version from NVIDIA's repository, whose key must have the pinned fingerprint.
# nccl-from-apt.sh VERSION FOLDER, with REPOSITORY, KEY and FINGERPRINT set; /run/secrets/ca is a CA bundle if need be.
set -eu
work=$(mktemp -d)
ca=/etc/ssl/certs/ca-certificates.crt
[ -s /run/secrets/ca ] && ca=/run/secrets/ca
/usr/lib/apt/apt-helper -o Acquire::https::CAInfo="$ca" download-file "$REPOSITORY/$KEY" "$work/key"
found=$(gpg --homedir "$work" --batch --quiet --with-colons --show-keys "$work/key" | awk -F: '$1 == "fpr" { print $10; exit }')
if [ "$found" != "$FINGERPRINT" ]; then
    echo "pin 'NCCL 2.7.3': the key of $REPOSITORY has fingerprint $found; docker/pins.toml has $FINGERPRINT" >&2
    exit 1
fi
gpg --homedir "$work" --batch --quiet --dearmor < "$work/key" > "$work/key.gpg"
echo "deb [signed-by=$work/key.gpg] $REPOSITORY /" > "$work/sources.list"
mkdir -p "$work/lists/partial" "$work/archives/partial"

apt() {
    apt-get --quiet --quiet -o Acquire::https::CAInfo="$ca" -o Dir::Etc::SourceList="$work/sources.list" \
        -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists" -o Dir::Cache::archives="$work/archives" \
        -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 "$@"
}

if ! apt -o APT::Update::Error-Mode=any update; then
    echo "pin 'NCCL 2.7.3': $REPOSITORY is not signed by $FINGERPRINT, or cannot be reached" >&2
    exit 1
fi
cd "$work"
if ! apt download "libnccl2=$1"; then
    echo "pin 'NCCL 2.7.3': $REPOSITORY does not hand out libnccl2=$1 as its index lists it" >&2
    exit 1
fi
dpkg-deb --extract libnccl2_*.deb "$work/root"
mkdir -p "$2"
cp --dereference "$work"/root/usr/lib/x86_64-linux-gnu/libnccl.so.2 "$2/libnccl.so.2"
rm -rf "$work"
