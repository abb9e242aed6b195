#!/bin/sh
# Sets up a host from this folder alone, without a network and without root:
#   sh setup.sh FOLDER     checks every file, then unpacks into FOLDER, where `make bench` runs
#   sh setup.sh --check    only checks
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in
'' | -h | --help)
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
--check | /*) folder=$1 ;;
*) folder=$PWD/$1 ;;
esac
cd "$here"

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

sum_of() { # FILE: its SHA-256, and more behind a blank; OpenSSL's is several times as fast as most of coreutils'
    openssl dgst -sha256 -r <"$1" 2>/dev/null || sha256sum <"$1"
}
last=$(date +%s)
progress() { # TEXT: say it if nothing was said for ten seconds
    now=$(date +%s)
    [ $((now - last)) -lt 10 ] || {
        last=$now
        echo "$*" >&2
    }
}
begin() { # TEXT: say it, and every ten seconds until `end` how much is there
    echo "$1"
    (
        while sleep 10 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
            echo "$1: $(du -sm "$folder" 2>/dev/null | cut -f1) MB so far" >&2
        done
    ) &
    ticker=$!
}
end() {
    [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
    ticker=''
}
ticker=''
trap end EXIT

[ -f SHA256SUMS ] || fail "SHA256SUMS is missing: without it nothing here can be checked"

# A part may stay behind as a whole if it is optional; of every other one, all pieces are needed.
optional=$(sed -n "s/^optional='\(.*\)'$/\1/p" kit.conf 2>/dev/null || true)
problems=0 listed=''
while read -r digest name || [ -n "$digest" ]; do
    listed=1
    progress "checking, now $name"
    if [ -f "$name" ]; then
        found=$(sum_of "$name")
        if [ "${found%% *}" != "$digest" ]; then
            echo "setup: $name is damaged; bring it over again" >&2
            problems=1
        fi
        continue
    fi
    part=${name%%.*}
    case " $optional " in
    *" $part "*) ls "$part".* >/dev/null 2>&1 || continue ;;
    esac
    echo "setup: $name is missing" >&2
    problems=1
done <SHA256SUMS
[ -n "$listed" ] || fail "SHA256SUMS lists nothing: bring it over again"
[ "$problems" = 0 ] || fail "nothing was set up"
echo "all files are as they were packed"
[ "$folder" != --check ] || exit 0

architectures='' controller_python='' trainer_python='' baseline_python=''
# shellcheck source=/dev/null
. ./kit.conf
if command -v nvidia-smi >/dev/null; then
    for each in $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u | tr -d . || true); do
        case " $architectures " in
        *" $each "*) ;;
        *) fail "this host has a GPU of architecture $each, and the kit has GPU code for $architectures only: \`make kit ARCH=$each\`" ;;
        esac
    done
fi
[ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] || fail "$folder is not empty; name a new folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

begin "unpacking into $folder"
cat base.tar.gz.* | tar -xzf - -C "$folder"
for version in "$controller_python" "$trainer_python"; do
    python=$folder/.kit/python/$version/bin/python$version
    "$python" -c 'import bz2, ctypes, hashlib, lzma, sqlite3, ssl, venv, zlib' ||
        fail "Python $version of the kit does not run here, see above; kit.json names the glibc that it was made with"
done
unpack() {
    if command -v xz >/dev/null; then
        xz -dc | tar -xf - -C "$folder"
    else
        "$python" -c 'import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1])' "$folder"
    fi
}
for part in environments libraries baselines tests; do
    [ -f $part.tar.xz.000 ] || continue
    cat "$part".tar.xz.* | unpack
done
end
cp SHA256SUMS kit.json "$folder/.kit/"

for pair in "venv $controller_python" "venv-trainer $trainer_python" "venv-baseline $baseline_python"; do
    name=${pair% *}
    version=${pair#* }
    [ -d "$folder/.$name" ] || continue
    printf 'home = %s\ninclude-system-site-packages = false\nversion = %s\n' \
        "$folder/.kit/python/$version/bin" "$version" >"$folder/.$name/pyvenv.cfg"
    # By a relative link, Python would not find its own files where the environment is reached through another link.
    ln -sf "$folder/.kit/python/$version/bin/python$version" "$folder/.$name/bin/python"
done
# The ranks of a run start together, and none should wait until another has compiled what it imports.
compiled() { # ENVIRONMENT: its Python files
    begin "compiling the Python files of $1"
    "$folder/$1/bin/python" -m compileall -q -j 0 "$folder/$1/lib" >/dev/null || true
    end
}
compiled .venv-trainer
if [ -d "$folder/.venv-baseline" ]; then
    compiled .venv-baseline
    "$folder/.venv-baseline/bin/python" -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null ||
        fail "PyTorch cannot be imported here: $folder/.venv-baseline/bin/python -c 'import torch' says why"
fi
(
    cd "$folder"
    GLOG_log_dir=$folder/.kit "$folder/.venv-trainer/bin/python" -c 'import oneflow; print("OneFlow", oneflow.__version__)' 2>/dev/null ||
        fail "OneFlow cannot be imported here: $folder/.venv-trainer/bin/python -c 'import oneflow' says why"
)
if [ -f images.tar.000 ]; then
    echo "the images are here too: cat $here/images.tar.* | docker load"
fi
echo "ready: cd $folder && make bench MODEL=gpt"
