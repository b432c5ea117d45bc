# The packages that Tessera needs, and their installation. Sourced by ./dev.
# shellcheck shell=bash
# docs/dependencies.md says why these libraries and not others.

# One package a line: name | who needs it | how to tell on another system | reason.
#   who:  build, demo, test, lint, fuzz (build is needed by all of them but lint's parts)
#   tell: cmd:NAME in PATH; inc:HEADER in an include folder; lib:NAME that g++ can link;
#         py:MODULE that /usr/bin/python3 can import
package_table() {
  cat <<'TABLE'
bazel-bootstrap          | build | cmd:bazel                         | builds everything
g++                      | build | cmd:g++                           | C++20 compiler
python3                  | build | cmd:python3                       | checks, summaries and Python tests
protobuf-compiler        | build | cmd:protoc                        | generates message code
protobuf-compiler-grpc   | build | cmd:grpc_cpp_plugin               | generates service code
libprotobuf-dev          | build | inc:google/protobuf/message.h     | messages
libprotoc-dev            | build | inc:google/protobuf/compiler/plugin.h | headers of the code generator
libgrpc-dev              | build | inc:grpc/grpc.h                   | core of gRPC
libgrpc++-dev            | build | inc:grpcpp/grpcpp.h               | services between the processes
libabsl-dev              | build | inc:absl/status/statusor.h        | status, strings, time, flags
libssl-dev               | build | inc:openssl/ssl.h                 | TLS certificates
zlib1g-dev               | build | inc:zlib.h                        | linked by protobuf and prometheus-cpp
librocksdb-dev           | build | inc:rocksdb/db.h                  | journal of the coordinator, nvme tier
libdnnl-dev              | build | inc:dnnl.hpp                      | matrix products (oneDNN)
libisal-dev              | build | inc:isa-l/crc.h                   | crc32c of the nvme tier's values
libhwy-dev               | build | inc:hwy/highway.h                 | vector code with run-time dispatch
libgloo-dev              | build | inc:gloo/context.h                | buffers of the TCP data path
prometheus-cpp-dev       | build | inc:prometheus/registry.h         | metrics
libcivetweb-dev          | build | inc:civetweb.h                    | serves the metrics
libyaml-cpp-dev          | build | inc:yaml-cpp/yaml.h               | job files
nlohmann-json3-dev       | build | inc:nlohmann/json.hpp             | JSON of other people's files
libpcre2-dev             | build | inc:pcre2.h                       | patterns that cut text into pre-tokens
libutf8proc-dev          | build | inc:utf8proc.h                    | Unicode normalization of tokenizers
libcli11-dev             | build | inc:CLI/CLI.hpp                   | command line of tessera
libgtest-dev             | build | inc:gtest/gtest.h                 | tests (GoogleTest)
libgmock-dev             | build | inc:gmock/gmock.h                 | tests (matchers)
bible-kjv                | demo  | cmd:bible                         | prints the text that the demo trains on
bible-kjv-text           | demo  | cmd:bible                         | that text
iproute2                 | test  | cmd:ip                            | network namespaces: two hosts on one machine
openssl                  | test  | cmd:openssl                       | makes certificates for the TLS tests
python3-torch            | test  | py:torch                          | independent reference of the training step
python3-yaml             | test  | py:yaml                           | reads the deployment manifests
clang-16                 | fuzz  | cmd:clang++-16                    | libFuzzer's instrumentation
libclang-rt-16-dev       | fuzz  | inc:../lib/llvm-16/lib/clang/16/lib/linux/libclang_rt.fuzzer-x86_64.a | libFuzzer and address sanitizer
clang-format             | lint  | cmd:clang-format                  | layout of C++ sources
clang-tidy-16            | lint  | cmd:clang-tidy-16                 | static analysis (14 fails on <ranges>)
libomp-16-dev            | lint  | inc:../lib/llvm-16/lib/clang/16/include/omp.h | omp.h as clang reads it; only for clang-tidy
shellcheck               | lint  | cmd:shellcheck                    | static analysis of shell scripts
TABLE
}

# Also part of what objects depend on, as packages that those above pull in.
readonly FINGERPRINT_EXTRA="g++-12 libc6-dev libstdc++-12-dev linux-libc-dev"

# package_names WHO...: the packages that any of WHO needs.
package_names() {
  package_table | awk -F' *[|] *' -v who=" $* " 'index(who, " " $2 " ") { print $1 }'
}

package_field() { package_table | awk -F' *[|] *' -v name="$1" -v field="$2" '$1 == name { print $field }'; }

is_debian_12() {
  local os_release=${TESSERA_OS_RELEASE:-/etc/os-release}
  [ -r "$os_release" ] && (
    # shellcheck source=/dev/null
    . "$os_release"
    [ "${ID:-}" = debian ] && [ "${VERSION_ID:-}" = 12 ]
  )
}

# tell_present TELL: whether what stands in the table's third column is on this system.
tell_present() {
  local what=${1#*:} folder
  case $1 in
    cmd:*) command -v "$what" >/dev/null ;;
    inc:*)
      for folder in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"; do
        [ ! -e "$folder/$what" ] || return 0
      done
      return 1
      ;;
    py:*) /usr/bin/python3 -c "import importlib.util as u, sys; sys.exit(u.find_spec('$what') is None)" 2>/dev/null ;;
    *) return 1 ;;
  esac
}

# install_packages WHO...: makes sure that the packages of WHO are there. Sets PACKAGE_FINGERPRINT,
# which changes when a package of the build does.
install_packages() {
  local names missing=() name installed fingerprint_names
  names=$(package_names "$@")
  if ! is_debian_12; then
    PACKAGE_FINGERPRINT=other
    for name in $names; do
      tell_present "$(package_field "$name" 3)" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "This system is not Debian 12, so nothing is installed here. Missing, by Debian's names:"
    for name in "${missing[@]}"; do
      say "  $(printf '%-24s' "$name") $(package_field "$name" 4)"
    done
    say "Install them (or what your system calls them) and run the same command again."
    exit 2
  fi

  fingerprint_names=$(package_names build)
  # shellcheck disable=SC2086  # lists of names
  installed=$(installed_packages $names $fingerprint_names $FINGERPRINT_EXTRA)
  for name in $names; do
    grep -q "^$name " <<<"$installed" || missing+=("$name")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    apt_install "${missing[@]}"
    # shellcheck disable=SC2086
    installed=$(installed_packages $names $fingerprint_names $FINGERPRINT_EXTRA)
    for name in "${missing[@]}"; do
      grep -q "^$name " <<<"$installed" || die "package $name is still missing after apt-get install"
    done
  fi
  PACKAGE_FINGERPRINT=$(awk -v build=" ${fingerprint_names//$'\n'/ } $FINGERPRINT_EXTRA " \
    'index(build, " " $1 " ")' <<<"$installed" | sha256sum | cut -c1-16)
}

# installed_packages NAME...: "name version" of those that are installed, each once.
installed_packages() {
  { dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' "$@" 2>/dev/null || true; } |
    sed -n 's/^installed //p' | sort -u
}

apt_install() {
  local as_root=() name
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "Missing, and neither root nor sudo to install with. As root:"
      say "  apt-get install --no-install-recommends $*"
      exit 2
    fi
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n)
  fi
  heading "Installing $# packages with apt-get"
  for name in "$@"; do
    say "  $(printf '%-24s' "$name") $(package_field "$name" 4)"
  done
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  "${as_root[@]}" "${apt[@]}" update </dev/null >&2 || die "apt-get update failed"
  "${as_root[@]}" "${apt[@]}" -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "$@" \
    </dev/null >&2 || die "apt-get could not install: $*"
}
