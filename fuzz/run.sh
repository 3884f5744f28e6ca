#!/usr/bin/env bash
# Builds a fuzz target and runs it for a bounded time: fuzz/run.sh TARGET [SECONDS]
# FUZZ_BUILD_ONLY=1 builds all targets and runs none.
set -euo pipefail
cd "$(dirname "$0")"

targets() { sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | tail -n +2; }

target=${1:-}
seconds=${2:-60}
if [ -z "${FUZZ_BUILD_ONLY:-}" ] && ! targets | grep -qx -- "$target"; then
    echo "usage: fuzz/run.sh TARGET [SECONDS], where TARGET is one of:" >&2
    targets | sed 's/^/    /' >&2
    exit 2
fi

host=$(rustc -vV | sed -n 's/^host: //p')
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
)
# With a target named, the flags leave build scripts and macros alone.
build=(cargo build --quiet --target "$host" --target-dir target)
[ -n "${FUZZ_BUILD_ONLY:-}" ] || build+=(--bin "$target")
RUSTFLAGS="${flags[*]}" "${build[@]}"
[ -z "${FUZZ_BUILD_ONLY:-}" ] || exit 0

mkdir -p "corpus/$target" "artifacts/$target"
# A hang counts as a finding after ten seconds, and so does a gibibyte of memory.
exec "target/$host/debug/$target" "corpus/$target" \
    -artifact_prefix="artifacts/$target/" -max_total_time="$seconds" \
    -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 "${@:3}"
