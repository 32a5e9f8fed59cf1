#!/usr/bin/env bash
# cost.sh [BASE] [flags of ./bench/cost]: measures what the checkout's features cost, in interleaved pairs: those that are not
# used against the commit BASE, and metrics and events against none. BASE is the last commit before they were built.
set -euo pipefail
cd "$(dirname "$0")/.."

base=57fe833
if [[ $# -gt 0 && $1 != -* ]]; then
	base=$1
	shift
fi
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base" 2>/dev/null || true; rm -rf "$dir"' EXIT

git worktree add --quiet --detach "$dir/base" "$base"
(cd "$dir/base" && go build -o "$dir/bench-base" ./bench)
go build -o "$dir/bench-new" ./bench
go run ./bench/cost -base "$dir/bench-base" -new "$dir/bench-new" "$@"
