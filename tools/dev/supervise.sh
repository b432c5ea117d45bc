#!/bin/bash
# Keeps one daemon running, for a local cluster: daemons are crash-only, so what ends with an error
# is started again, as systemd or Kubernetes would do.
#
# usage: supervise.sh NAME RUN_DIR LOG COMMAND [ARGUMENT...]
#
# RUN_DIR/NAME.pid is this process, RUN_DIR/NAME.daemon.pid the daemon, RUN_DIR/NAME.restarts how
# often it was started again. Exit code 0 of the daemon ends both. SIGTERM is passed on; what has
# not ended TESSERA_STOP_SECONDS (10) later is killed.
set -u
name=$1 run_dir=$2 log=$3
shift 3

child="" stopping="" restarts=0 delay=1
readonly MAX_DELAY=30 STEADY_SECONDS=60

stop() {
  stopping=1
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap stop TERM INT HUP

note() { printf '%s supervisor: %s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$name" "$*" >>"$log"; }

# Waits for the child, through signals; leaves its exit code in `code`.
await_child() {
  local tries=$((${TESSERA_STOP_SECONDS:-10} * 10))
  while [ -z "$stopping" ]; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || return
  done
  while kill -0 "$child" 2>/dev/null; do
    if [ "$tries" -eq 0 ]; then
      note "did not stop in time and was killed"
      kill -KILL "$child" 2>/dev/null
    fi
    tries=$((tries - 1))
    sleep 0.1
  done
  wait "$child"
  code=$?
}

# Whole or not at all: others read it at any time.
write_pid() {
  echo "$2" >"$run_dir/$1.pid.new" && mv -f "$run_dir/$1.pid.new" "$run_dir/$1.pid"
}

write_pid "$name" $$
echo 0 >"$run_dir/$name.restarts"
while [ -z "$stopping" ]; do
  started=$SECONDS
  # The daemon goes when its supervisor does, however that ends.
  setpriv --pdeathsig TERM -- "$@" >>"$log" 2>&1 </dev/null &
  child=$!
  write_pid "$name.daemon" "$child"
  [ -z "$stopping" ] || kill -TERM "$child" 2>/dev/null
  code=0
  await_child
  child=""
  if [ "$code" -eq 0 ] || [ -n "$stopping" ]; then
    break
  fi
  [ $((SECONDS - started)) -lt $STEADY_SECONDS ] || delay=1
  note "ended with exit code $code; starts again in $delay s"
  restarts=$((restarts + 1))
  echo "$restarts" >"$run_dir/$name.restarts"
  sleep "$delay" &
  wait $!
  delay=$((delay * 2 < MAX_DELAY ? delay * 2 : MAX_DELAY))
done
rm -f "$run_dir/$name.pid" "$run_dir/$name.daemon.pid"
exit "$code"
