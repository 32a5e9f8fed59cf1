#!/usr/bin/env bash
# beside.sh TOOL BASE [flags]: builds ./bench of the commit BASE and of the checkout, and has TOOL measure both in turns:
# compare (what tasks cost beside BASE) or cost (what features cost that BASE has not).
set -euo pipefail
cd "$(dirname "$0")/.."

tool=$1 base=$2
shift 2
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base" 2>/dev/null || true; rm -rf "$dir"' EXIT

git worktree add --quiet --detach "$dir/base" "$base"
(cd "$dir/base" && go build -o "$dir/bench-base" ./bench)
go build -o "$dir/bench-new" ./bench
go run "./bench/$tool" -base "$dir/bench-base" -new "$dir/bench-new" "$@"
