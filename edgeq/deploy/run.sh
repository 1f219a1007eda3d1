#!/bin/sh
# edgeq on this device, from the bundle that this file came in.
#
#   ./run.sh [OPTIONS]        set up once, then doctor, run OPTIONS, report
#   ./run.sh setup|doctor|run|report [OPTIONS]      one of them; OPTIONS are those of edgeq (./run.sh run --help)
#
# EDGEQ_PYTHON=/path/to/python ./run.sh setup      use that environment as it is: nothing is installed. It must hold what
#                                                  requirements.txt names; edgeq itself is this bundle's all the same.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
cd "$here"
mkdir -p .state

fail() { # what, why, hint
    printf 'error: %s\n  why: %s\n  try: %s\n' "$1" "$2" "$3" >&2
    exit 1
}

# Everything that the bundle brought, byte by byte, before any of it is used.
[ -f SHA256SUMS ] || fail "$here is not an unpacked bundle" "there is no SHA256SUMS" "python3 edgeq-*.pyz"
damaged=$(sha256sum --check --quiet SHA256SUMS 2>/dev/null) ||
    fail "the bundle in $here is not whole" "$(printf '%s' "$damaged" | head -n 1)" "unpack it again: python3 edgeq-*.pyz"

identity=$(sha256sum SHA256SUMS | cut -d ' ' -f 1)
chosen=${EDGEQ_PYTHON:-}
if [ -z "$chosen" ] && [ -f .state/python ]; then chosen=$(cat .state/python); fi
base=${chosen:-python3}
python=${chosen:-$here/.venv/bin/python}

# What edgeq keeps (samples, probes, accuracy) stays in this folder; the bundle has put the synthetic samples there.
EDGEQ_CACHE=${EDGEQ_CACHE:-$here/cache}
export EDGEQ_CACHE
EDGEQ_BUNDLE=$here # hints then say how to install something here
export EDGEQ_BUNDLE

check_python() {
    command -v "$base" >/dev/null 2>&1 || fail "no $base here" "edgeq needs Python 3.11 or newer" "sudo apt install python3"
    "$base" - <<'PYTHON' || exit 1
import json, platform, struct, sys

def fail(what, why, hint):
    sys.exit("error: %s\n  why: %s\n  try: %s" % (what, why, hint))

bundle = json.load(open("bundle.json"))
if sys.version_info < (3, 11):
    fail("Python %s is too old" % platform.python_version(), "edgeq needs Python 3.11 or newer",
         "use a newer system (Debian bookworm has 3.11), or: EDGEQ_PYTHON=/path/to/python3.11 ./run.sh setup")
if platform.machine() != bundle["machine"]:
    fail("this bundle is for %s" % bundle["target"], "this machine is %s" % platform.machine(),
         "make one for it, on the exporting machine: edgeq bundle --target ...")
if struct.calcsize("P") != 8:
    fail("this system has 32 bits", "its kernel has 64, but the frameworks publish nothing for its Python",
         "install a 64-bit system (on a Raspberry Pi: the 64-bit Raspberry Pi OS)")
PYTHON
}

# What the set-up would fail without, all of it in one command.
check_packages() { # what is known to be needed beside python3-venv
    lacking=
    "$base" -c 'import ensurepip, venv' 2>/dev/null || lacking=" python3-venv"
    for needed in "$@"; do
        case $needed in
            g++) command -v "${CXX:-g++}" >/dev/null 2>&1 || lacking="$lacking g++" ;;
            python3-dev)
                "$base" -c 'import os, sys, sysconfig
sys.exit(not os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")))' || lacking="$lacking python3-dev"
                ;;
        esac
    done
    [ -z "$lacking" ] || fail "the set-up needs$lacking" \
        "it makes a virtual environment, and builds LoadGen where there is no wheel of it for this Python" \
        "sudo apt install$lacking"
}

pip() {
    "$python" -m pip --disable-pip-version-check --retries 10 --timeout 60 "$@" ||
        fail "the set-up did not get through" "pip's own words stand above" \
            "type the same again: it goes on where it stopped, with what was downloaded"
}

install() {
    tag=$("$base" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    case $(uname -m)$(ls wheels) in
        aarch64*mlcommons_loadgen-*"-$tag-"*.whl* | x86_64*) check_packages ;;
        *) check_packages g++ python3-dev ;; # no wheel of LoadGen is published for aarch64
    esac
    # Not in /tmp, which is small, or memory, on some systems; what pip unpacks is large.
    TMPDIR=$here/.state/tmp
    export TMPDIR
    rm -rf "$TMPDIR"
    mkdir -p "$TMPDIR"
    # Also where the system went on to another Python, and left the environment without its packages.
    "$python" -m pip --version >/dev/null 2>&1 || "$base" -m venv --clear .venv
    loadgen=$(grep '^mlcommons-loadgen==' requirements.txt)
    if ! "$python" -m pip install --quiet --dry-run --no-deps --only-binary :all: --find-links wheels "$loadgen" 2>/dev/null
    then
        check_packages g++ python3-dev
        echo "building LoadGen for this Python (a few minutes; its wheel is kept in wheels/)"
        pip wheel --quiet --no-deps --find-links wheels --wheel-dir "$TMPDIR/built" wheels/mlcommons_loadgen-*.tar.gz
        mv "$TMPDIR"/built/mlcommons_loadgen-*.whl wheels/
    fi
    echo "installing what requirements.txt lists into .venv"
    pip install --quiet --only-binary :all: --find-links wheels --constraint constraints.txt --requirement requirements.txt
    # Another edgeq of the same version would count as installed already.
    pip install --quiet --no-deps --force-reinstall wheels/edgeq-*.whl
    rm -rf "$TMPDIR"
    unset TMPDIR
}

setup() {
    stamp="$identity $python $("$python" -V 2>/dev/null || true)"
    if [ "$(cat .state/stamp 2>/dev/null)" = "$stamp" ]; then return; fi
    check_python
    if [ -n "$chosen" ]; then
        rm -rf .state/site
        "$python" -m zipfile -e wheels/edgeq-*.whl .state/site
        printf '%s' "$chosen" >.state/python
    else
        install
    fi
    printf '%s' "$identity $python $("$python" -V)" >.state/stamp
}

edgeq() { "$python" -m edgeq "$@"; }

case "${1:-}" in
    setup | doctor | run | report) verb=$1 && shift ;;
    '' | -*) verb=all ;;
    *) fail "no command '$1'" "it is one of setup, doctor, run, report, or none of them for all" "./run.sh" ;;
esac
setup
# Only where the environment is someone else's: there, this is how edgeq is the bundle's own.
if [ -n "$chosen" ]; then
    PYTHONPATH=$here/.state/site${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
fi
case $verb in
    setup) echo "set up: $here" ;;
    all)
        edgeq doctor || true # what is wrong, it says; each cell that can't run leaves a record that says so, too
        status=0
        edgeq run "$@" || status=$?
        if [ $status -le 1 ]; then edgeq report || status=$?; fi
        exit $status
        ;;
    *) exec "$python" -m edgeq "$verb" "$@" ;;
esac
