#!/bin/sh
# fuzz.sh PROGRAMS DIRECTORY: schemathesis, installed from PyPI into DIRECTORY, sends generated requests to both servers of a system, as
# their OpenAPI documents describe them, right and wrong ones.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "$1" && pwd)
"$here/environment.sh" "$2" schemathesis==4.32.5
out=$(cd "$2" && pwd)
"$out/bin/python" "$here/fuzz.py" "$programs" "$out"
