# Messages of ./dev: on stderr, so that stdout carries only what was asked for. Sourced by ./dev.
# shellcheck shell=bash

say() { printf '%s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

die_usage() {
  say "error: $*; see './dev help'"
  exit 2
}

# A heading: bold on a terminal, unless NO_COLOR says otherwise.
heading() {
  if [ -t 2 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    printf '\033[1m== %s\033[0m\n' "$*" >&2
  else
    printf '== %s\n' "$*" >&2
  fi
}
