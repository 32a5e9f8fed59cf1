#!/bin/sh
# Runs the tools of go test and go vet for make: go test -toolexec=scripts/tool.sh ./...
#
# The compiler and the linker take a fifth less processor time if they collect no garbage. The limit
# is for the largest packages.
#
# vet makes no facts about packages of other modules. Facts say for example which functions format
# as fmt.Printf does. For each dependency they cost a pass over its source, and for SQLite's engine
# and the NATS server that takes longer than to vet all of this module. Wrappers in this module and
# in the standard library are still found.
set -eu

export GOGC=off GOMEMLIMIT=1500MiB
for last; do :; done
case $1,$last in
*/vet,*.cfg)
	if grep -q '"VetxOnly": true' "$last" && grep -q '"ImportPath": "[^"/]*\.' "$last" &&
		! grep -q '"ImportPath": "github.com/swarmiji/' "$last"; then
		: >"$(sed -n 's/.*"VetxOutput": "\([^"]*\)".*/\1/p' "$last")" # no facts
		exit 0
	fi
	;;
esac
exec "$@"
