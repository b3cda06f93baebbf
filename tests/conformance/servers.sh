#!/bin/sh
# servers.sh PROGRAMS DIRECTORY: ken-model and a whole system against model servers that others have written, each installed from
# PyPI into DIRECTORY: litellm as a proxy with canned answers, and llama.cpp's server with a tiny model of random weights.
# The second is compiled, which takes minutes; without a C++ compiler, or with KEN_SERVERS=litellm, it is left out and named.
# The vectors of ken-textgen are held against those of transformers, in an environment of their own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
[ -x "$out/venv/bin/pip" ] || python3 -m venv "$out/venv"
servers=${KEN_SERVERS:-litellm llama}
command -v c++ >/dev/null || servers=litellm
"$out/venv/bin/pip" install --quiet --disable-pip-version-check 'litellm[proxy]==1.106.2'
case $servers in *llama*)
    "$out/venv/bin/pip" install --quiet --disable-pip-version-check 'llama-cpp-python[server]==0.3.36' gguf numpy ;;
esac
[ -x "$out/vectors/bin/pip" ] || python3 -m venv "$out/vectors"
"$out/vectors/bin/pip" install --quiet --disable-pip-version-check transformers==4.57.6 flax==0.12.8 jax==0.10.2 safetensors==0.8.0
"$out/vectors/bin/python" "$here/vectors.py" "$programs/ken-textgen"
# shellcheck disable=SC2086 # a list of words
"$out/venv/bin/python" "$here/servers.py" "$programs" $servers
