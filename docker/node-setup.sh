#!/bin/sh
# Sets up a node from this folder alone, with no network:
#   sh setup.sh image          checks everything, then loads the images into the Docker engine
#   sh setup.sh venv FOLDER    checks everything, then makes a trainer environment with this machine's Python 3.9
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case "${2:-}" in
'' | /*) folder=${2:-} ;;
*) folder=$PWD/$2 ;;
esac
cd "$here"

echo "checking the files of $here"
sum_of() { # FILE: its SHA-256, and more behind a blank; OpenSSL's is several times as fast as most of coreutils'
    openssl dgst -sha256 -r <"$1" 2>/dev/null || sha256sum <"$1"
}
[ -f SHA256SUMS ] || { echo "setup: SHA256SUMS is missing; bring it over again" >&2; exit 1; }
damaged='' listed=''
while read -r digest name || [ -n "$digest" ]; do
    listed=1 found=''
    [ ! -f "$name" ] || found=$(sum_of "$name") || true
    { [ -n "$name" ] && [ "${found%% *}" = "$digest" ]; } || damaged="$damaged $name"
done <SHA256SUMS
[ -n "$listed" ] || damaged=" SHA256SUMS"
if [ -n "$damaged" ]; then
    echo "setup: missing or damaged:$damaged; bring these over again" >&2
    exit 1
fi

case "${1:-}" in
image)
    docker load --input images.tar
    ;;
venv)
    : "${folder:?setup: name the folder of the new environment}"
    python3.9 -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links=wheels \
        --no-deps --require-hashes --requirement=trainer.lock
    scratch=$(mktemp -d) # OneFlow writes its logs where it is started
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    "$folder/bin/python" -c 'import oneflow; print("OneFlow", oneflow.__version__)'
    ;;
*)
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
