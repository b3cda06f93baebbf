#!/bin/sh
# half.sh first|second PROGRAM [ARGUMENT...]: runs a test program if it belongs to this half of `make test`. The halves run side by side,
# because a program that waits for its last tests leaves the processor idle; both take about as long. The output of a program comes as
# one block, so that the halves do not mix.
half=$1
shift
case ${1##*/} in
journeys-* | gateway-* | front-* | connectors-* | cognitive-* | workers-* | agent-* | docs-* | engine_postgres-*) own=first ;;
*) own=second ;;
esac
[ "$half" = "$own" ] || exit 0
output=$(mktemp)
trap 'rm -f "$output"' EXIT
echo "--- ${1##*/}" > "$output"
"$@" >> "$output" 2>&1
status=$?
flock "$0" cat "$output"
exit $status
