# ./dev test. Sourced by ./dev.
# shellcheck shell=bash
#
# Tags of test targets that matter here (not one named `long`: to Bazel that is also the time-out of
# every large test). --long makes tests do more, through TESSERA_LONG_TESTS=1.
#   gpu      needs a GPU: never run by ./dev test
#   e2e      starts daemons: not under a sanitizer
#   no-asan, no-tsan   not under that sanitizer (the target says why)

command_test() {
  local long="" sanitizer="" targets=() argument
  for argument in "$@"; do
    case $argument in
      --long) long=1 ;;
      --asan | --tsan)
        [ -z "$sanitizer" ] || die_usage "--asan and --tsan exclude each other"
        sanitizer=${argument#--}
        ;;
      -*) die_usage "test: unknown flag '$argument'" ;;
      *) targets+=("$argument") ;;
    esac
  done
  [ ${#targets[@]} -gt 0 ] || targets=(//...)
  install_packages build demo test
  configure_bazel

  # Tests and what they run: libraries alone would be compiled twice, as archives and as .so files.
  local filters=-gpu flags=(--keep_going --build_tests_only --nocache_test_results --test_output=errors)
  if [ -n "$long" ]; then
    flags+=(--test_env=TESSERA_LONG_TESTS=1 "--test_timeout=300,900,1800,5400")
  fi
  if [ -n "$sanitizer" ]; then
    filters+=,-e2e,-no-$sanitizer
    # Sanitized code is several times slower, and may be wanted where tests are not.
    flags+=(--config="$sanitizer")
    [ -n "$long" ] || flags+=("--test_timeout=180,600,1200,3600")
    # With more random bits than the tsan run-time of g++ 12 expects, it does not start.
    if [ "$sanitizer" = tsan ] && [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ] &&
      setarch -R true 2>/dev/null; then
      flags+=("--run_under=/usr/bin/setarch -R")
    fi
  fi
  flags+=("--test_tag_filters=$filters")

  local folder=$STATE/test status=0
  mkdir -p "$folder"
  rm -f "$folder/events.json"
  heading "Testing ${targets[*]}${sanitizer:+ with $sanitizer}"
  bazel test "${flags[@]}" "--build_event_json_file=$folder/events.json" -- "${targets[@]}" || status=$?
  # The last line on stdout is the count; it exits non-zero where a test, or bazel, failed.
  /usr/bin/python3 -B "$ROOT/tools/ci/bazel_summary.py" "$folder/events.json" "$status"
}
