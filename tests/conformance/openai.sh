#!/bin/sh
# openai.sh PROGRAMS DIRECTORY: talks to a whole system through the libraries and programs of others that speak the interface of OpenAI,
# installed from PyPI into DIRECTORY, and from npm by the lock file of this folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "$1" && pwd)
echo "openai: installing from PyPI"
"$here/environment.sh" "$2" openai==3.57.0 litellm==1.110.2 llm==0.36
out=$(cd "$2" && pwd)
"$out/bin/python" "$here/openai_clients.py" "$programs"
node "$here/openai_clients.js" "$programs"
