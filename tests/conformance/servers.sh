#!/bin/sh
# servers.sh PROGRAMS DIRECTORY: tests ken-model and a whole system with third-party servers, which are installed from PyPI into
# DIRECTORY: litellm as a proxy with fixed answers, llama.cpp's server with a tiny model of random weights, and MLflow as a
# collector of traces. llama.cpp is compiled, which takes minutes; without a C++ compiler it is skipped with a message. Also
# compares the vectors of ken-textgen with those of transformers. KEN_SERVERS selects some tests: "litellm llama mlflow vectors".
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
servers=${KEN_SERVERS:-litellm llama mlflow vectors}
for name in $servers; do
    echo "$name: installing from PyPI"
    case $name in
    litellm)
        "$here/environment.sh" "$out/litellm" 'litellm[proxy]==1.106.2'
        "$out/litellm/bin/python" "$here/servers.py" "$programs" litellm ;;
    llama)
        command -v c++ >/dev/null || { echo "llama: left out, as there is no C++ compiler on PATH (apt-get install g++)"; continue; }
        # Builds only the libraries that the Python module loads, with little optimisation to save time. pip must not cache this build.
        echo 'set(LLAMA_BUILD_COMMON OFF)' >"$out/llama.cmake"
        CMAKE_ARGS="-DCMAKE_PROJECT_llama_cpp_INCLUDE=$out/llama.cmake -DLLAVA_BUILD=OFF -DGGML_CPU_REPACK=OFF -DGGML_LLAMAFILE=OFF \
            -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1" \
            "$here/environment.sh" "$out/llama" --no-cache-dir 'llama-cpp-python[server]==0.3.36' gguf==0.19.0 numpy
        "$out/llama/bin/python" "$here/servers.py" "$programs" llama ;;
    mlflow)
        "$here/environment.sh" "$out/mlflow" mlflow==3.17.2
        "$out/mlflow/bin/python" "$here/traces.py" "$programs" ;;
    vectors)
        "$here/environment.sh" "$out/vectors" transformers==4.57.6 flax==0.12.8 jax==0.10.2 safetensors==0.8.0
        "$out/vectors/bin/python" "$here/vectors.py" "$programs/ken-textgen" ;;
    *)
        echo "servers.sh: $name is not a server: litellm, llama, mlflow or vectors" >&2
        exit 1 ;;
    esac
done
