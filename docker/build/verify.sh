#!/bin/sh
# verify.sh PIN SHA256 FILE: stops unless the file is the pinned one.
set -eu
found=$(sha256sum "$3" | cut -d ' ' -f 1)
if [ "$found" != "$2" ]; then
    echo "pin '$1': SHA-256 of $3 is $found; docker/pins.toml has $2" >&2
    exit 1
fi
