#!/usr/bin/env bash
# Runs a task again until it has ended for good: supervise.sh COMMAND [ARGUMENT…]
#
# Exit codes 0 (done), 2 (wrong input) and 130 (Ctrl-C) end the loop. After every other code the same command starts
# again: after 1 s, then 2, 4 and at most 8 s. SIGTERM or Ctrl-C to this script goes to the task, and ends the loop.
set -u
stopping=0 delay=1 task=
trap 'stopping=1; [ -z "$task" ] || kill -TERM "$task" 2>/dev/null' TERM INT

while true; do
    task= started=$SECONDS
    "$@" &
    task=$!
    # A signal may have come before the number of the task was known.
    if ((stopping)); then kill -TERM "$task" 2>/dev/null; fi
    wait "$task"; code=$?
    # A signal to this script ends `wait` early, with the number of the signal.
    while kill -0 "$task" 2>/dev/null; do wait "$task"; code=$?; done
    if ((code == 0 || code == 2 || code == 130 || stopping)); then exit "$code"; fi
    ((SECONDS - started >= 60)) && delay=1
    echo "supervise: exit code $code, starts again in $delay s: $*" >&2
    sleep "$delay" & wait $!
    if ((stopping)); then exit "$code"; fi
    delay=$((delay < 8 ? 2 * delay : 8))
done
