# ./dev format and ./dev lint. Sourced by ./dev.
# shellcheck shell=bash

# tree_files PATTERN...: files of the tree, new ones too, that are there and are ours.
tree_files() {
  local file
  git -C "$ROOT" ls-files -z --cached --others --exclude-standard -- "$@" ':!third_party/bazel' |
    sort -zu | while IFS= read -r -d '' file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi
  done
}

readonly CPP_FILES=('*.h' '*.cc' '*.cu' '*.cuh')

command_format() {
  [ $# -eq 0 ] || die_usage "format takes no arguments"
  install_packages lint
  tree_files "${CPP_FILES[@]}" | xargs -0 -r clang-format -i
}

lint_format() { tree_files "${CPP_FILES[@]}" | xargs -0 -r clang-format --dry-run -Werror; }

lint_include_rules() { /usr/bin/python3 -B tests/layering/check_includes.py; }

lint_proto_comments() {
  tree_files 'proto/tessera/*.proto' | xargs -0 -r /usr/bin/python3 -B tools/lint/proto_comments.py
}

lint_python() {
  tree_files '*.py' | xargs -0 -r /usr/bin/python3 -B -c '
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        compile(file.read(), path, "exec")'
}

lint_shell() { tree_files dev .ci/run '*.sh' | xargs -0 -r shellcheck; }

# Needs generated headers, but no objects.
lint_clang_tidy() {
  local generated
  generated=$(bazel query --noshow_progress 'kind("_gen rule", //...)' 2>/dev/null) || true
  # shellcheck disable=SC2086  # a list of targets
  [ -z "$generated" ] || bazel build --noshow_loading_progress --show_result=0 $generated 2>&1 || return 1
  /usr/bin/python3 -B tools/compile_commands.py >/dev/null || return 1
  /usr/bin/python3 -B tools/lint/clang_tidy.py "$STATE/clang-tidy"
}

command_lint() {
  [ $# -eq 0 ] || die_usage "lint takes no arguments"
  install_packages build lint
  configure_bazel
  local check failed=()
  for check in format include_rules proto_comments python shell clang_tidy; do
    heading "${check//_/ }"
    "lint_$check" || failed+=("${check//_/ }")
  done
  [ ${#failed[@]} -eq 0 ] || die "lint: failed: $(printf '%s; ' "${failed[@]}" | sed 's/; $//')"
  say "lint: clean"
}
