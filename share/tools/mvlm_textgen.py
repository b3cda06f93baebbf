#!/usr/bin/env python3
# MCP_TOOL_ENTRYPOINT
"""Local text generation: hands its arguments and its streams to ken-textgen."""

import os
import shutil
import sys

NAME = "ken-textgen"


def program():
    """The binary: where KEN_BIN_DIR says, where it is installed, built beside this file, or on PATH."""
    here = os.path.dirname(os.path.realpath(__file__))
    folders = [
        os.environ.get("KEN_BIN_DIR", ""),
        os.path.join(here, "..", "..", "..", "bin"),
        os.path.join(here, "..", "..", "target", "release"),
    ]
    found = (shutil.which(NAME, path=folder) for folder in folders if folder)
    return next(filter(None, found), None) or shutil.which(NAME)


def main():
    path = program()
    if path is None:
        print('{"error":{"code":"not_found","message":"ken-textgen is not installed","at":"PATH"}}', file=sys.stderr)
        return 2
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
