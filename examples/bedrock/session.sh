#!/bin/sh
# A session with a server of jobs, as one would type it:
#
#	swarmiji bedrock --store mem
#	sh examples/bedrock/session.sh
#
# NC is what sends its input to the server and prints what comes back. Where there is no nc: NC='go run ./examples/bedrock'.
# HURRY=1 has the job be due again at once, in place of the minute after which it is.
set -eu
NC=${NC:-nc -N 127.0.0.1 8888}

ask() {
	printf '$ %b\n\n' "$1"
	printf '%b\n\n' "$1" | $NC | tr -d '\r'
	printf '\n\n'
}

echo '# Somebody makes a job, which repeats a minute after each run.'
ask 'CreateJob\nname: foo\ndata: {"value":1}\nrepeat: finished, +1 minute'

echo '# A worker takes it.'
ask 'GetJob\nname: foo'

echo '# The worker says how far it has come, and anybody may look.'
ask 'UpdateJob\njobID: 1\ndata: {"value":2}'
ask 'QueryJob\njobID: 1'

echo '# It ends the run, and says what the next one begins with.'
ask 'FinishJob\njobID: 1\ndata: {"value":3}'

echo '# For now there is nothing to do; the job waits for its time.'
ask 'GetJob\nname: foo'
ask 'Query\nquery: select * from jobs;'

echo '# A minute later:'
if [ -n "${HURRY:-}" ]; then
	ask 'UpdateJob\njobID: 1\ndata: {"value":3}\nnextRun: 2014-12-29 07:39:51'
else
	sleep 61
fi
ask 'GetJob\nname: foo'
