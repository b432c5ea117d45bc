# Calls of Bazel: settings, build, benchmarks. Sourced by ./dev.
# shellcheck shell=bash

# TESSERA_BIN_DIR names a folder laid out like bazel-bin whose programs are used as they are; for
# tests of these scripts.
readonly BIN=${TESSERA_BIN_DIR:-$ROOT/bazel-bin}
readonly COORDINATOR=$BIN/coordinator/tessera-coordinator
readonly WORKER=$BIN/worker/tessera-worker
readonly TESSERA=$BIN/cli/tessera
# `tessera tokenize` finds tessera-tokenize beside itself or in PATH.
readonly PROGRAM_FOLDERS=$BIN/cli:$BIN/worker
readonly PROGRAM_TARGETS="//coordinator:tessera-coordinator //worker:tessera-worker //worker:tessera-tokenize //cli:tessera"

# Writes .tessera/bazelrc, which .bazelrc imports, so that a plain `bazel` shares the cache. System
# headers are no inputs of actions: the fingerprint makes objects of other package versions others.
# A user.bazelrc decides for itself.
configure_bazel() {
  local rc=$STATE/bazelrc content=""
  mkdir -p "$STATE"
  if [ ! -e "$ROOT/user.bazelrc" ]; then
    content="build --disk_cache=${XDG_CACHE_HOME:-$HOME/.cache}/tessera/bazel
build --action_env=TESSERA_PACKAGES=$PACKAGE_FINGERPRINT
build --host_action_env=TESSERA_PACKAGES=$PACKAGE_FINGERPRINT"
  fi
  [ "$(cat "$rc" 2>/dev/null)" = "$content" ] || printf '%s\n' "$content" >"$rc"
}

build_programs() {
  [ -z "${TESSERA_BIN_DIR:-}" ] || return 0
  configure_bazel
  heading "Building"
  # shellcheck disable=SC2086  # a list of targets
  bazel build --noshow_loading_progress --show_result=0 $PROGRAM_TARGETS >&2 || die "the build failed"
}

command_build() {
  install_packages build
  configure_bazel
  [ $# -gt 0 ] || set -- //...
  bazel build "$@"
}

# "NAME TARGET" of each benchmark: //tests/bench:NAME_bench or NAME_benchmark.
benchmarks() {
  sed -n 's/^ *name = "\(.*\)\(_bench\|_benchmark\)",$/\1 \1\2/p' "$ROOT/tests/bench/BUILD.bazel" \
    2>/dev/null | sort -u
}

command_bench() {
  local names
  names=$(benchmarks | cut -d' ' -f1)
  if [ $# -eq 0 ]; then
    if [ -z "$names" ]; then
      say "There are no benchmarks in tests/bench yet."
    else
      say "Benchmarks (./dev bench NAME [--json=FILE] [flags]; --help: its flags):"
      printf '%s\n' "$names"
    fi
    return 0
  fi
  local name=$1 target
  shift
  grep -qx -- "$name" <<<"$names" || die_usage "there is no benchmark '$name'; there are: ${names//$'\n'/ }"
  install_packages build
  configure_bazel
  target=$(benchmarks | sed -n "s/^$name //p" | head -n 1)
  bazel build --noshow_loading_progress --show_result=0 "//tests/bench:$target" >&2 ||
    die "the build failed"
  # In the caller's folder, so that a relative --json=FILE means what it says.
  cd "${OLDPWD:-$ROOT}" || exit 1
  exec "$BIN/tests/bench/$target" "$@"
}
