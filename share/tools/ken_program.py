"""What the launchers beside this file have in common: each becomes a program of ken, with the same arguments, streams and
exit status."""

import os
import shutil
import sys


def find(name):
    """The program: in KEN_BIN_DIR, as installed (PREFIX/share/ken/tools, PREFIX/bin), as built, or on PATH."""
    here = os.path.dirname(os.path.realpath(__file__))
    places = ["../../../bin", "../../target/release", "../../target/first", "../../target/debug"]
    folders = [os.environ.get("KEN_BIN_DIR", "")] + [os.path.join(here, place) for place in places]
    found = (shutil.which(name, path=folder) for folder in folders if folder)
    return next(filter(None, found), None) or shutil.which(name)


def become(name):
    path = find(name)
    if path is None:
        message = name + " is not installed: set KEN_BIN_DIR, or add its folder to PATH"
        print('{"error":{"code":"unavailable","message":"%s","at":""}}' % message, file=sys.stderr)
        sys.exit(2)
    os.execv(path, [name] + sys.argv[1:])
