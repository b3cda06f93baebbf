#!/usr/bin/env python3
# MCP_TOOL_ENTRYPOINT
"""Runs ken-workflow with the same arguments, input and output:
run_cognitive_workflow.py run StandardReasoningWorkflow < data.json

The program is looked for in KEN_BIN_DIR, then beside this file as it is installed (PREFIX/share/ken/tools, PREFIX/bin) or
built (share/tools, target/release and target/debug), then on PATH.
"""

import os
import shutil
import sys

PROGRAM = "ken-workflow"


def find():
    here = os.path.dirname(os.path.realpath(__file__))
    places = ["../../../bin", "../../target/release", "../../target/debug"]
    folders = [os.path.join(here, place) for place in places]
    if os.environ.get("KEN_BIN_DIR"):
        folders.insert(0, os.environ["KEN_BIN_DIR"])
    for folder in folders:
        path = os.path.join(folder, PROGRAM)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which(PROGRAM)


def main():
    path = find()
    if path is None:
        message = PROGRAM + " is not installed: set KEN_BIN_DIR, or add its folder to PATH"
        print('{"error":{"code":"unavailable","message":"%s","at":""}}' % message, file=sys.stderr)
        return 2
    os.execv(path, [PROGRAM] + sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
