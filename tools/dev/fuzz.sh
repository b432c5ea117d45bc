# ./dev fuzz: parsers of untrusted files under libFuzzer and the address sanitizer. Sourced by ./dev.
# shellcheck shell=bash
#
# tests/fuzz/BUILD.bazel is the table of targets, one a line; inputs are in tests/fuzz/NAME_corpus.

readonly FUZZ=$STATE/fuzz
readonly FUZZ_SECONDS=60

fuzz_names() { sed -n 's/^fuzz_target(name = "\([a-z0-9_]*\)".*/\1/p' "$ROOT/tests/fuzz/BUILD.bazel"; }

# fuzz_bazel COMMAND...: with clang, in an output base of its own, so that the other one keeps what it
# has built with g++. Not below the tree, where //... would look into it.
fuzz_bazel() {
  local command=$1 base
  shift
  base=${XDG_CACHE_HOME:-$HOME/.cache}/tessera/fuzz-$(printf %s "$ROOT" | cksum | cut -d' ' -f1)
  bazel "--output_base=$base" "$command" --repo_env=CC=clang-16 --config=fuzz \
    --experimental_convenience_symlinks=ignore --noshow_loading_progress "$@"
}

command_fuzz() {
  local names fuzzer name=${1:-} seconds=${2:-$FUZZ_SECONDS} status=0
  names=$(fuzz_names)
  if [ -z "$name" ]; then
    say "Fuzz targets (./dev fuzz NAME [SECONDS], default $FUZZ_SECONDS):"
    printf '%s\n' "$names"
    return 0
  fi
  [ $# -le 2 ] || die_usage "fuzz takes a name and seconds"
  grep -qx -- "$name" <<<"$names" || die_usage "there is no fuzz target '$name'; there are: ${names//$'\n'/ }"
  case $seconds in
    '' | *[!0-9]* | 0*) die_usage "fuzz: seconds are a positive number, not '$seconds'" ;;
  esac
  install_packages build fuzz
  configure_bazel
  fuzz_bazel build --show_result=0 "//tests/fuzz:${name}_fuzz" >&2 || die "the build failed"
  fuzzer=$(fuzz_bazel info bazel-bin 2>/dev/null)/tests/fuzz/${name}_fuzz
  # New inputs go to the first folder; the tree's corpus is only read.
  mkdir -p "$FUZZ/corpus/$name" "$FUZZ/found"
  "$fuzzer" "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 "-artifact_prefix=$FUZZ/found/$name-" \
    "$FUZZ/corpus/$name" "$ROOT/tests/fuzz/${name}_corpus" || status=$?
  if [ "$status" -ne 0 ]; then
    say "The input is in $FUZZ/found; mend the code and keep the input in tests/fuzz/${name}_corpus."
    exit 1
  fi
  say "Nothing found in $seconds s."
}
