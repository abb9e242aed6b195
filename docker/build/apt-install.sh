#!/bin/sh
# Installs Debian packages and stops unless each one, with all it needs, is the very file that its suite's lock names.
# Where the packages come from is free: DEBIAN and DEBIAN_SECURITY are the two archives.
set -eu
export DEBIAN_FRONTEND=noninteractive
work=$(mktemp -d)
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
lock=$(dirname "$0")/apt-$suite.lock
mkdir -p "$work/archives/partial"
cat > "$work/sources.list" <<SOURCES
deb [check-valid-until=no] $DEBIAN $suite main
deb [check-valid-until=no] $DEBIAN_SECURITY $suite-security main
SOURCES

apt() {
    apt-get --quiet --quiet --yes --no-install-recommends \
        -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::Cache::archives="$work/archives" -o APT::Sandbox::User=root -o Acquire::Retries=3 \
        -o Acquire::Languages=none -o Dpkg::Use-Pty=0 "$@"
}

apt update
apt --download-only install "$@"
differing=$(cd "$work/archives" && sha256sum ./*.deb | sed 's|\./||' | grep --invert-match --line-regexp --fixed-strings --file="$lock") || true
if [ -n "$differing" ]; then
    echo "pin 'Debian packages': these differ from docker/build/apt-$suite.lock, or are not in it:" >&2
    echo "$differing" >&2
    exit 1
fi
apt install "$@" > /dev/null
rm -rf "$work" /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/apt /var/log/*.log \
    /var/cache/debconf/*-old /var/lib/dpkg/*-old
