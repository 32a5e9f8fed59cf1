#!/usr/bin/env bash
# Runs every fuzz target of the module for a time each: fuzz.sh 30s. They are found by their names, so that a new one
# needs no entry anywhere. Go fuzzes one target at a time.
set -euo pipefail

fuzztime=${1:?usage: fuzz.sh TIME}
found=0
while IFS=: read -r file line; do
	name=${line#func }
	name=${name%%(*}
	found=1
	printf -- '--- %s in %s\n' "$name" "$(dirname "$file")"
	go test -run '^$' -fuzz "^${name}\$" -fuzztime "$fuzztime" "./$(dirname "$file")"
done < <(grep -rE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . | sed 's|^\./||' | sort)

if ((found == 0)); then
	echo "no fuzz targets found" >&2
	exit 1
fi
