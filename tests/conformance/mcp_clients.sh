#!/bin/sh
# mcp_clients.sh PROGRAMS DIRECTORY: tests ken as a server of the Model Context Protocol and as an agent for editors with clients of
# others: those from npm in this folder (after `npm ci`), and the Python client, which is installed from PyPI into DIRECTORY.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
node "$here/mcp_clients.js" "$1"
"$here/environment.sh" "$2" mcp==2.3.0
"$2/bin/python" "$here/mcp_clients.py" "$1"
