#!/bin/sh
# Rewrites the locks: versions and hashes, no addresses. run.txt is what `make up` needs (with the build
# backend, so that the project itself is installed without build isolation); dev.txt adds the test tools;
# engines.txt adds the engines that come from PyPI and that only their own tests need; bare.txt holds what is
# installed without its dependencies, because those are for GPUs (ADR 0175).
set -eu
cd "$(dirname "$0")/.."
compile() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-annotate --no-header "$@"
}
compile pyproject.toml requirements/build.in --extra postgres --extra nvml --extra grpc -o requirements/run.txt
compile pyproject.toml requirements/build.in --extra postgres --extra nvml --extra grpc --group dev \
    -c requirements/run.txt -o requirements/dev.txt
compile pyproject.toml requirements/build.in --extra postgres --extra nvml --extra grpc --extra ray --group dev \
    -c requirements/dev.txt -o requirements/engines.txt
compile --no-deps requirements/bare.in -o requirements/bare.txt
