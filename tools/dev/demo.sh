# ./dev demo: train a small model through the services, from nothing. Sourced by ./dev.
# shellcheck shell=bash

readonly DEMO=$STATE/demo
readonly DEMO_DATA=$DEMO/data
readonly DEMO_LOSS_LIMIT=2.0

# The King James Bible as text, the last tenth for validation; reused when it is there.
prepare_demo_data() {
  /usr/bin/python3 -B "$ROOT/tools/dev/prepare_text.py" "$DEMO_DATA" kjv \
    bible -f 'gen1:1-rev22:21' || die "the demo's text could not be made"
}

stop_demo() {
  local status=$?
  trap - EXIT INT TERM HUP
  if [ -n "${DEMO_CLIENT:-}" ]; then
    kill -TERM "$DEMO_CLIENT" 2>/dev/null || true
  fi
  heading "Stopping"
  stop_cluster "$DEMO" || true
  exit "$status"
}

# run_client ARGUMENT...: in the background, so that a signal ends the demo at once.
run_client() {
  local status=0
  setpriv --pdeathsig TERM -- "$TESSERA" "--endpoint=$ENDPOINT" "$@" 9>&- &
  DEMO_CLIENT=$!
  wait "$DEMO_CLIENT" || status=$?
  DEMO_CLIENT=
  return $status
}

command_demo() {
  [ $# -eq 0 ] || die_usage "demo takes no arguments"
  install_packages build demo
  build_programs
  lock_cluster "$DEMO"
  trap stop_demo EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  stop_cluster "$DEMO" || true # what an earlier demo has left, if it was killed
  prepare_demo_data
  rm -rf "$DEMO"/coordinator "$DEMO"/worker-* "$DEMO"/log
  mkdir -p "$DEMO/log"

  heading "Starting a coordinator and four workers (logs: $DEMO/log)"
  BIND_TO_SCRIPT=1
  start_cluster "$DEMO" 127.0.0.1:0 4 "$DEMO_DATA"
  run_client get workers

  heading "Training: tessera create -f deploy/jobs/demo.yaml --watch"
  local watched=0 job
  run_client create -f "$ROOT/deploy/jobs/demo.yaml" --watch || watched=$?
  job=$("$TESSERA" "--endpoint=$ENDPOINT" get jobs -o name | head -n 1)
  job=${job#trainingJobs/}
  [ -n "$job" ] || die "no job was created (exit code $watched of tessera create)"

  heading "Result: tessera describe job $job"
  run_client describe job "$job" || true
  heading "What is where: tessera get placement $job"
  run_client get placement "$job" || true

  local verdict=0
  heading "Verdict"
  "$TESSERA" "--endpoint=$ENDPOINT" get job "$job" -o json |
    /usr/bin/python3 -B "$ROOT/tools/dev/read_json.py" job-result "$DEMO_LOSS_LIMIT" || verdict=$?
  [ "$watched" -eq 0 ] || say "tessera create --watch ended with exit code $watched"
  cat <<TEXT

To look further, start a cluster that stays, and try:
  ./dev up
  export TESSERA_ENDPOINT=127.0.0.1:7433 PATH=\$PWD/bazel-bin/cli:\$PWD/bazel-bin/worker:\$PATH
  tessera create -f deploy/jobs/demo.yaml --name again --watch
  tessera get jobs; tessera describe job again; tessera get placement again -o wide
  tessera generate again --prompt 'And God said ' --temperature 0.7
  ./dev down
TEXT
  [ "$verdict" -eq 0 ] && [ "$watched" -eq 0 ] || exit 1
}
