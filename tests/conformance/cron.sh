#!/bin/sh
# Compares the slots of ken-scheduler with those of cronsim and croniter, which are installed in a separate Python environment.
# usage: cron.sh KEN_SCHEDULER [NUMBER]
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$(dirname "$0")/environment.sh" "$folder" cronsim==2.8 croniter==7.0.0 tzdata
"$folder/bin/python" "$(dirname "$0")/cron.py" "$@"
