#!/bin/sh
# environment.sh DIRECTORY PACKAGE...: makes a Python environment in DIRECTORY with these packages from PyPI, or prints one line
# with the reason why it cannot. The output of pip goes to DIRECTORY/pip.log; the end of the log is shown if pip fails.
set -eu
fail() {
    echo "environment.sh: $*" >&2
    exit 1
}
command -v python3 >/dev/null || fail "no python3 on PATH: apt-get install python3 python3-venv"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ -x "$out/bin/pip" ] || python3 -m venv "$out" >"$out/pip.log" 2>&1 || fail "python3 cannot make an environment: apt-get install python3-venv"
"$out/bin/pip" install --disable-pip-version-check "$@" >"$out/pip.log" 2>&1 && exit
if grep -qE 'NewConnectionError|ConnectTimeout|NameResolutionError|Max retries|ProxyError' "$out/pip.log"; then
    fail "the package index (PyPI, or the one that PIP_INDEX_URL names) cannot be reached, so there is no $*"
fi
tail -n 20 "$out/pip.log" >&2
fail "pip cannot install $*"
