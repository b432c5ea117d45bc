# ./dev demo: plan, verify and train a small model through the services, from nothing. Sourced by
# ./dev.
# shellcheck shell=bash

readonly DEMO=$STATE/demo
readonly DEMO_DATA=$DEMO/data
readonly DEMO_JOB=$ROOT/deploy/jobs/demo.yaml
readonly DEMO_LOSS_LIMIT=2.0
readonly DEMO_SUSPEND_STEP=60

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

# check WHAT COMMAND...: notes what does not hold; the demo goes on and ends with 1.
check() {
  local what=$1 status=0
  shift
  "$@" || status=$?
  [ "$status" -eq 0 ] || DEMO_FAULTS+=("$what ended with exit code $status")
}

# demo_result: says how the training ended, and how far down it brought the loss.
demo_result() {
  "$TESSERA" "--endpoint=$ENDPOINT" get job demo -o json |
    /usr/bin/python3 -B "$ROOT/tools/dev/read_json.py" job-result "$DEMO_LOSS_LIMIT"
}

# await_step JOB STEP: until the job has completed so many steps.
await_step() {
  local tries=1200 step
  while step=$("$TESSERA" "--endpoint=$ENDPOINT" get job "$1" -o json |
    /usr/bin/python3 -B "$ROOT/tools/dev/read_json.py" step) && [ "$step" -lt "$2" ]; do
    [ "$tries" -gt 0 ] || return 1
    tries=$((tries - 1))
    sleep 0.1
  done
}

# same_losses WHOLE PARTED: of two jobs.
same_losses() {
  "$TESSERA" "--endpoint=$ENDPOINT" get job "$1" -o json >"$DEMO/$1.json" &&
    "$TESSERA" "--endpoint=$ENDPOINT" get job "$2" -o json |
    /usr/bin/python3 -B "$ROOT/tools/dev/read_json.py" same-losses "$DEMO/$1.json"
}

# suspend_and_resume: the same job once more, through a stop of everything in between.
suspend_and_resume() {
  run_client create -f "$DEMO_JOB" --name demo-parted &&
    await_step demo-parted "$DEMO_SUSPEND_STEP" &&
    run_client suspend demo-parted &&
    run_client wait demo-parted --for=state=SUSPENDED &&
    run_client get placement demo-parted || return 1
  say "Killing the coordinator and all workers (SIGKILL), and starting them again"
  kill_cluster "$DEMO"
  start_cluster "$DEMO" 127.0.0.1:0 4 "$DEMO_DATA"
  run_client get jobs &&
    run_client resume demo-parted &&
    await_step demo-parted $((2 * DEMO_SUSPEND_STEP)) &&
    run_client cancel demo-parted &&
    same_losses demo demo-parted
}

# draw_timeline FILE: the planned schedule, as SVG or for Perfetto.
draw_timeline() {
  run_client plan -f "$DEMO_JOB" --timeline "$1" >/dev/null && [ -s "$1" ]
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
  rm -rf "$DEMO"/coordinator "$DEMO"/worker-* "$DEMO"/log "$DEMO"/timeline.*
  mkdir -p "$DEMO/log"

  heading "Starting a coordinator and four workers (logs: $DEMO/log)"
  BIND_TO_SCRIPT=1
  start_cluster "$DEMO" 127.0.0.1:0 4 "$DEMO_DATA"
  run_client get workers

  DEMO_FAULTS=()
  heading "Plan: tessera plan -f deploy/jobs/demo.yaml"
  check "tessera plan" run_client plan -f "$DEMO_JOB"
  check "tessera plan --timeline $DEMO/timeline.svg" draw_timeline "$DEMO/timeline.svg"
  check "tessera plan --timeline $DEMO/timeline.json" draw_timeline "$DEMO/timeline.json"

  heading "Against one rank: tessera verify -f deploy/jobs/demo.yaml --steps 3"
  check "tessera verify" run_client verify -f "$DEMO_JOB" --name demo-verification --steps 3

  heading "Training: tessera create -f deploy/jobs/demo.yaml --watch"
  check "tessera create --watch" run_client create -f "$DEMO_JOB" --name demo --watch

  heading "Result: tessera describe job demo"
  check "tessera describe job demo" run_client describe job demo
  heading "Once more, suspended, killed and resumed: tessera suspend demo-parted"
  check "the suspended job" suspend_and_resume

  heading "Verdict"
  check "the job's result" demo_result
  local fault
  for fault in "${DEMO_FAULTS[@]}"; do say "NOT AS IT SHOULD BE: $fault"; done
  say "The planned schedule is drawn in $DEMO/timeline.svg (any browser)"
  say "and in $DEMO/timeline.json (ui.perfetto.dev, chrome://tracing)."
  cat <<TEXT

To look further, start a cluster that stays, and try:
  ./dev up
  export TESSERA_ENDPOINT=127.0.0.1:7433 PATH=\$PWD/bazel-bin/cli:\$PWD/bazel-bin/worker:\$PATH
  tessera plan -f deploy/jobs/demo.yaml
  tessera verify -f deploy/jobs/demo.yaml --steps 3
  tessera create -f deploy/jobs/demo.yaml --name again --watch
  tessera get jobs; tessera describe job again; tessera get placement again -o wide
  tessera generate again --prompt 'And God said ' --temperature 0.7
  ./dev down
TEXT
  [ ${#DEMO_FAULTS[@]} -eq 0 ] || exit 1
}
