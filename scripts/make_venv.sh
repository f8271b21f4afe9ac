#!/bin/sh
# Makes the project's virtual environment, or brings it up to date; quick where there is nothing
# to do. The Makefile calls it from the root of the checkout:
#
#   scripts/make_venv.sh ENVIRONMENT [PYTHON]
#
# The environment is finished when its stamp names this checkout, this pyproject.toml and these C sources. Where the
# stamp is missing (an interrupted install) or names another place (a copied checkout, whose
# editable install points to the original), the environment is made anew.
set -eu

venv=$1
if [ -n "${2:-}" ]; then
    set -- "$2"
else
    set -- python3.13 python3.12 python3.11 python3.14 python3 # first those that the tests ran under
fi
stamp=$venv/.installed
place=$(pwd -P)
content=$(cat pyproject.toml setup.py prefetch/_kernels/native/* 2>/dev/null | cksum)

is_whole() {
    [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$place" ] &&
        "$venv/bin/python" -c 'import pip' >/dev/null 2>&1
}

is_current() {
    is_whole && [ "$(tail -n 1 "$stamp")" = "$content" ]
}

# Runs each candidate, since a pyenv shim exists even for versions that it then cannot start.
# Imports ensurepip, since Debian's python3 has venv, but without python3-venv cannot use it.
find_python() {
    for candidate; do
        if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    {
        echo "Found no Python 3.11 or newer with a working venv module; tried: $*."
        echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name it:"
        echo "  make PYTHON=/path/to/python3.11"
    } >&2
    return 1
}

if is_current; then exit 0; fi

# Of two makes at once the second waits here, and then finds the environment made.
exec 9<pyproject.toml
if command -v flock >/dev/null && ! flock --nonblock 9; then
    echo "Waiting for another make that works on $venv ..."
    flock 9
fi
if is_current; then exit 0; fi

if is_whole; then
    echo "Bringing the environment $venv up to date with pyproject.toml ..."
    rm -f "$stamp"
else
    python=$(find_python "$@")
    echo "Making the environment $venv with $("$python" --version), once; a minute or two ..."
    "$python" -m venv --clear "$venv"
fi

install() {
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --quiet "$@"
}
install --upgrade 'pip>=25.1' # the first to know dependency groups
install --group dev --editable '.[demo]'

printf '%s\n%s\n' "$place" "$content" >"$stamp.new"
mv "$stamp.new" "$stamp"
