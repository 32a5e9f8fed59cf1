#!/usr/bin/env bash
# go vet's tool without the facts about packages of other modules: go vet -vettool=scripts/vettool.sh ./...
#
# Facts say for example which functions format as fmt.Printf does. For each dependency they cost a
# pass over its source, and for SQLite's engine and the NATS server that takes longer than to vet all
# of this module. Wrappers in this module and in the standard library are still found.
set -euo pipefail

vet=$(go env GOTOOLDIR)/vet
config=${!#} # the last argument
if [[ $config == *.cfg ]]; then
	text=$(<"$config")
	if [[ $text == *'"VetxOnly": true'* && $text =~ \"ImportPath\":\ \"([^\"/]*)([^\"]*) ]]; then
		host=${BASH_REMATCH[1]} path=$host${BASH_REMATCH[2]}
		if [[ $host == *.* && $path != github.com/swarmiji/* && $text =~ \"VetxOutput\":\ \"([^\"]*) ]]; then
			: >"${BASH_REMATCH[1]}" # no facts
			exit 0
		fi
	fi
fi
exec "$vet" "$@"
