#!/bin/sh
# Rewrites the locks: versions and hashes, no addresses. run.txt is what `make up` needs (with the build
# backend, so that the project itself is installed without build isolation); dev.txt adds the test tools.
set -eu
cd "$(dirname "$0")/.."
compile() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-annotate --no-header "$@"
}
compile pyproject.toml requirements/build.in --extra postgres --extra nvml -o requirements/run.txt
compile pyproject.toml requirements/build.in --extra postgres --extra nvml --group dev \
    -c requirements/run.txt -o requirements/dev.txt
