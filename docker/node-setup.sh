#!/bin/sh
# Sets a node up from this folder alone, with no network:
#   sh setup.sh image          checks everything, then loads the images into the Docker engine
#   sh setup.sh venv FOLDER    checks everything, then makes a trainer environment with this machine's Python 3.9
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case "${2:-}" in
'' | /*) folder=${2:-} ;;
*) folder=$PWD/$2 ;;
esac
cd "$here"

whole() { # prints a file, joined if it is in parts
    if [ -e "$1" ]; then cat "$1"; else cat "$1".part-*; fi
}

echo "checking the files of $here"
if ! sha256sum --check --quiet SHA256SUMS; then
    echo "setup: files are missing or damaged, see above; bring them over again" >&2
    exit 1
fi

case "${1:-}" in
image)
    whole images.tar | docker load
    ;;
venv)
    : "${folder:?setup: name the folder of the new environment}"
    wheels=$(mktemp -d)
    trap 'rm -rf "$wheels"' EXIT
    for file in wheels/*; do
        name=$(basename "$file" | sed 's/\.part-[0-9]*$//')
        [ -e "$wheels/$name" ] || whole "wheels/$name" > "$wheels/$name"
    done
    python3.9 -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links="$wheels" \
        --no-deps --require-hashes --requirement=trainer.lock
    cd "$wheels"
    "$folder/bin/python" -c 'import oneflow; print("OneFlow", oneflow.__version__)'
    ;;
*)
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
