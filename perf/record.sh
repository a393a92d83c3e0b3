#!/usr/bin/env bash
# Runs the ceilings and the benchmarks of this package on an idle machine and keeps what they print, with machine, kernel, commit
# and command, in perf/results/DATE-COMMIT/. The first run of each on a fresh process is part of the output; read the later ones.
set -euo pipefail
cd "$(dirname "$0")/.."

count=${1:-3}
commit=$(git rev-parse --short HEAD)
[[ -z $(git status --porcelain -- '*.go' go.mod) ]] || commit+=-dirty
out=perf/results/$(date -u +%F)-$commit
mkdir -p "$out"
{
  echo "date      $(date -u +%FT%TZ)"
  echo "commit    $commit"
  echo "machine   $(nproc) CPUs, $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo), $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)"
  echo "kernel    $(uname -sr)"
  echo "go        $(go version | cut -d' ' -f3)"
  echo "sockets   rmem_max $(cat /proc/sys/net/core/rmem_max), wmem_max $(cat /proc/sys/net/core/wmem_max)"
  echo "disk      $(df --output=fstype,source "${TMPDIR:-/tmp}" | tail -n 1 | xargs)"
  echo "load      $(cut -d' ' -f1-3 /proc/loadavg) before the run"
} | tee "$out/machine.txt"

run() { # NAME ARGS...
  local name=$1
  shift
  echo "+ go test $*" | tee "$out/$name.txt"
  go test "$@" 2>&1 | tee -a "$out/$name.txt"
}
run ceilings ./perf/ceiling -run '^$' -bench . -benchtime 1x -count "$count"
run perf ./perf -run '^$' -bench . -benchtime 1x -count "$count" -timeout 60m
run core ./core -run '^$' -bench . -benchtime 100ms
run wal ./wal -run '^$' -bench . -benchtime 200ms
