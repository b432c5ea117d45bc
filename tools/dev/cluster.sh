# A coordinator and its workers as processes of this machine. Sourced by ./dev.
# shellcheck shell=bash
#
# A cluster is a folder: coordinator/ and worker-N/ (state), log/, run/ (process ids), lock.

readonly LOCAL_CLUSTER=$STATE/local
readonly START_SECONDS=${TESSERA_START_SECONDS:-60}

# lock_cluster FOLDER: one ./dev at a time works on it; released when the script ends.
lock_cluster() {
  mkdir -p "$1/run" "$1/log"
  exec 9>"$1/lock"
  flock -n 9 || die "another ./dev is working on $1"
}

# start_daemon FOLDER NAME COMMAND...: under a supervisor. With BIND_TO_SCRIPT set, the supervisor
# stops when this script is gone, even if that was killed.
start_daemon() {
  local folder=$1 name=$2 guard=()
  shift 2
  mkdir -p "$folder/$name"
  [ -z "${BIND_TO_SCRIPT:-}" ] || guard=(setpriv --pdeathsig TERM --)
  # A session of its own: Ctrl-C at the terminal reaches only this script, which stops it in order.
  setsid "${guard[@]}" "$ROOT/tools/dev/supervise.sh" "$name" "$folder/run" "$folder/log/$name.log" \
    "$@" </dev/null >/dev/null 2>&1 9>&- &
  disown # its end is no news to this script
}

# is_process PID TEXT: whether that process runs with TEXT in its command line; guards against an id
# that another program got since.
is_process() {
  [ -n "$1" ] && { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qF -- "$2"
}

# running_pids FOLDER NAME: of its supervisor and its daemon.
running_pids() {
  local pid
  pid=$(cat "$1/run/$2.pid" 2>/dev/null || true)
  ! is_process "$pid" "supervise.sh $2 $1/run" || echo "$pid"
  pid=$(cat "$1/run/$2.daemon.pid" 2>/dev/null || true)
  ! is_process "$pid" "--state-dir=$1/$2" || echo "$pid"
}

# cluster_names FOLDER: what has been started there.
cluster_names() {
  local file
  for file in "$1"/run/*.daemon.pid "$1"/run/*.pid; do
    case $file in
      *'*'*) ;;
      *.daemon.pid) basename "$file" .daemon.pid ;;
      *) basename "$file" .pid ;;
    esac
  done | sort -u
}

# stop_daemons FOLDER NAME...: SIGTERM to all, SIGKILL to what is left after 15 s.
stop_daemons() {
  local folder=$1 name pids pid tries
  shift
  for name in "$@"; do
    pids=$(running_pids "$folder" "$name")
    [ -n "$pids" ] || continue
    # The supervisor, which comes first, passes it on; a daemon alone gets it itself.
    kill -TERM "${pids%%$'\n'*}" 2>/dev/null || true
    say "stopping $name (pid ${pids##*$'\n'})"
  done
  for name in "$@"; do
    tries=150
    while pids=$(running_pids "$folder" "$name") && [ -n "$pids" ]; do
      if [ "$tries" -eq 0 ]; then
        say "$name did not stop in time and is killed"
        for pid in $pids; do kill -KILL "$pid" 2>/dev/null || true; done
      fi
      tries=$((tries - 1))
      sleep 0.1
    done
    rm -f "$folder/run/$name".*
  done
}

# stop_cluster FOLDER: workers first, so that none tries to attach again. Idempotent. Prints what it
# stops; returns 1 if nothing ran.
stop_cluster() {
  local folder=$1 names worker_names=() name found=1
  names=$(cluster_names "$folder")
  for name in $names; do
    [ -z "$(running_pids "$folder" "$name")" ] || found=0
    [ "$name" = coordinator ] || worker_names+=("$name")
  done
  [ ${#worker_names[@]} -eq 0 ] || stop_daemons "$folder" "${worker_names[@]}"
  [ -z "$names" ] || stop_daemons "$folder" coordinator
  return $found
}

# kill_cluster FOLDER: SIGKILL to everything at once, as when the power goes.
kill_cluster() {
  local folder=$1 name pids pid
  for name in $(cluster_names "$folder"); do
    pids=$(running_pids "$folder" "$name")
    for pid in $pids; do kill -KILL "$pid" 2>/dev/null || true; done
  done
  for name in $(cluster_names "$folder"); do
    while [ -n "$(running_pids "$folder" "$name")" ]; do sleep 0.1; done
    rm -f "$folder/run/$name".*
  done
}

# fail_start FOLDER NAME MESSAGE: with the end of the daemon's log.
fail_start() {
  say "error: $3; the end of $1/log/$2.log:"
  tail -n 15 "$1/log/$2.log" >&2 2>/dev/null || true
  exit 1
}

# check_steady FOLDER NAME: ends the script when a daemon that should come up keeps ending.
check_steady() {
  local restarts
  restarts=$(cat "$1/run/$2.restarts" 2>/dev/null || echo 0)
  [ "${restarts:-0}" -lt 3 ] || fail_start "$1" "$2" "$2 ended $restarts times"
  [ -e "$1/run/$2.pid" ] || [ ! -e "$1/run/$2.restarts" ] || fail_start "$1" "$2" "$2 has ended"
}

# answers ADDRESS: whether something listens there.
answers() {
  [ -n "$1" ] && [ "${1##*:}" != 0 ] && (exec 3<>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null
}

idle_workers() {
  timeout 5 "$TESSERA" "--endpoint=$ENDPOINT" get workers -o json 2>/dev/null |
    /usr/bin/python3 -B "$ROOT/tools/dev/read_json.py" idle-workers 2>/dev/null || echo 0
}

# start_cluster FOLDER LISTEN WORKERS DATA_ROOT: returns when all workers are idle; sets ENDPOINT.
# On failure what has been started still runs: callers have a trap that stops it.
start_cluster() {
  local folder=$1 listen=$2 workers=$3 data_root=$4 deadline i idle
  deadline=$((SECONDS + START_SECONDS))
  ! answers "$listen" || die "something listens on $listen already; choose another --listen"
  rm -f "$folder/coordinator/endpoint"
  start_daemon "$folder" coordinator "$COORDINATOR" "--listen=$listen" \
    "--state-dir=$folder/coordinator" --log-format=text
  until
    ENDPOINT=$listen
    # With port 0 it takes a free one and writes its address.
    [ "${listen##*:}" != 0 ] || ENDPOINT=$(cat "$folder/coordinator/endpoint" 2>/dev/null)
    answers "$ENDPOINT"
  do
    check_steady "$folder" coordinator
    [ $SECONDS -lt $deadline ] || fail_start "$folder" coordinator "the coordinator does not come up"
    sleep 0.1
  done
  echo "$ENDPOINT" >"$folder/run/endpoint"
  for ((i = 0; i < workers; i++)); do
    start_daemon "$folder" "worker-$i" "$WORKER" "--coordinator=$ENDPOINT" "--name=w$i" \
      "--state-dir=$folder/worker-$i" "--data-root=$data_root" --device-memory=1GiB --threads=1
  done
  while idle=$(idle_workers) && [ "$idle" -lt "$workers" ]; do
    check_steady "$folder" coordinator
    for ((i = 0; i < workers; i++)); do check_steady "$folder" "worker-$i"; done
    [ $SECONDS -lt $deadline ] ||
      fail_start "$folder" worker-0 "only $idle of $workers workers are idle after $START_SECONDS s"
    sleep 0.2
  done
}

command_up() {
  local workers=4 listen=127.0.0.1:7433
  while [ $# -gt 0 ]; do
    case $1 in
      --workers=*) workers=${1#*=} ;;
      --listen=*) listen=${1#*=} ;;
      --workers | --listen)
        [ $# -gt 1 ] || die_usage "up: $1 needs a value"
        if [ "$1" = --workers ]; then workers=$2; else listen=$2; fi
        shift
        ;;
      *) die_usage "up: unknown argument '$1'" ;;
    esac
    shift
  done
  case $workers in
    '' | *[!0-9]* | 0*) die_usage "up: --workers takes a positive number, not '$workers'" ;;
  esac
  install_packages build demo
  build_programs
  lock_cluster "$LOCAL_CLUSTER"
  if [ -n "$(running_pids "$LOCAL_CLUSTER" coordinator)" ]; then
    ENDPOINT=$(head -n 1 "$LOCAL_CLUSTER/run/endpoint")
    say "A local cluster is already up, started by an earlier ./dev up ('./dev down' stops it)."
  else
    trap 'stop_cluster "$LOCAL_CLUSTER" || true' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    stop_cluster "$LOCAL_CLUSTER" || true # what an earlier, broken-off start has left
    prepare_demo_data
    heading "Starting a coordinator and $workers workers"
    start_cluster "$LOCAL_CLUSTER" "$listen" "$workers" "$DEMO_DATA"
    trap - EXIT INT TERM HUP
  fi
  say "Up at $ENDPOINT; logs are in $LOCAL_CLUSTER/log. To go on:"
  cat <<TEXT
  export TESSERA_ENDPOINT=$ENDPOINT
  export PATH=$(printf %q "$PROGRAM_FOLDERS"):\$PATH
  tessera get workers
  tessera create -f deploy/jobs/demo.yaml --watch
  tessera get jobs
  ./dev down
TEXT
}

command_down() {
  [ $# -eq 0 ] || die_usage "down takes no arguments"
  if [ ! -d "$LOCAL_CLUSTER/run" ]; then
    say "No local cluster is up."
    return 0
  fi
  lock_cluster "$LOCAL_CLUSTER"
  if stop_cluster "$LOCAL_CLUSTER"; then
    say "The local cluster is down. Its state stays in $LOCAL_CLUSTER for the next ./dev up."
  else
    say "No local cluster is up."
  fi
}
