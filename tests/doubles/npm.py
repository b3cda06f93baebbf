#!/usr/bin/python3
"""A stand-in for npm: installs a package whose program is mcp.py, which lies beside the folder of this file, and records how it
was called in the file `steps`. The package `broken` does not exist, and the
registry of `private` cannot be reached. The program writes its arguments to `runs` beside itself,
which is also the first argument of mcp.py.
"""
import json
import os
import sys


def can_look_up():
    try:
        return bool(open("/etc/resolv.conf").read())
    except OSError:
        return False


def write(path, value):
    with open(path, "w") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))


step = {"args": sys.argv[1:], "network": can_look_up()}
with open("steps", "a") as file:
    file.write(json.dumps(step) + "\n")
if "broken" in sys.argv:
    sys.exit("npm error 404 Not Found - there is no \x1b[1mbroken\x1b[0m")
if "private" in sys.argv:
    sys.exit("npm error   syscall: 'connect',\nnpm error The operation was rejected by your operating system.")
os.makedirs("node_modules/.bin")
os.makedirs("node_modules/@scope/server-double")
write("package.json", {"dependencies": {"@scope/server-double": "1"}})
write("node_modules/@scope/server-double/package.json", {"bin": {"server-double": "dist/index.js"}})
native = {"node_modules/a/node_modules/native": {"hasInstallScript": True}}
write("package-lock.json", {"packages": {"": {}, "node_modules/@scope/server-double": {}, **native}})
double = open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../mcp.py")).read()
program = "node_modules/.bin/server-double"
write(program, f"""#!/usr/bin/python3
import os, sys
here = os.path.dirname(__file__)
open(os.path.join(here, "runs"), "a").write(repr(sys.argv[1:]) + "\\n")
sys.argv = ["mcp.py", here]
{double}""")
os.chmod(program, 0o755)
