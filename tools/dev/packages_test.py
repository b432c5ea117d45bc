#!/usr/bin/python3
"""Tests packages.sh with stand-ins for dpkg-query and apt-get: what it would install, and what it
says on another system."""
import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

# `env` is how packages.sh calls apt-get.
SCRIPT = """
set -euo pipefail
. "$HERE/messages.sh"
. "$HERE/packages.sh"
dpkg-query() {
  echo query >>"$FOLDER/calls"
  local name
  for name in "${@:4}"; do
    if ! grep -qx "$name" "$FOLDER/missing"; then echo "installed $name ${VERSION:-1.0}"; fi
  done
  return 1
}
env() { echo "$*" >>"$FOLDER/calls"; [ "${*: -1}" = update ] || : >"$FOLDER/missing"; }
id() { echo 0; }
install_packages "$@"
echo "fingerprint $PACKAGE_FINGERPRINT"
"""

DEBIAN = 'ID=debian\nVERSION_ID="12"\n'


class PackagesTest(unittest.TestCase):
    def install(self, *who, missing=(), os_release=DEBIAN, script=SCRIPT, **env):
        """(exit code, stdout, stderr, calls)."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("missing", "\n".join(missing) + "\n"), ("os", os_release), ("calls", "")):
                with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                    file.write(text)
            done = subprocess.run(
                ["/bin/bash", "-c", script, "bash", *who],
                env=dict(os.environ, HERE=HERE, FOLDER=folder, TESSERA_OS_RELEASE=folder + "/os", **env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            with open(os.path.join(folder, "calls"), encoding="ascii") as file:
                return done.returncode, done.stdout, done.stderr, file.read().splitlines()

    def test_nothing_missing_asks_dpkg_once(self):
        code, _, stderr, calls = self.install("build", "demo", "test")
        self.assertEqual((code, stderr, calls), (0, "", ["query"]))

    def test_installs_only_what_is_missing(self):
        code, _, stderr, calls = self.install("build", "demo", missing=["libdnnl-dev", "bible-kjv"])
        self.assertEqual(code, 0, stderr)
        self.assertTrue(calls[1].endswith(" update"), calls)
        self.assertTrue(calls[2].endswith("--no-install-recommends libdnnl-dev bible-kjv"), calls)
        self.assertIn("DEBIAN_FRONTEND=noninteractive", calls[2])
        self.assertIn("libdnnl-dev", stderr)

    def test_a_command_installs_only_its_own(self):
        code, _, _, calls = self.install("build", "demo", missing=["python3-torch", "shellcheck"])
        self.assertEqual((code, calls), (0, ["query"]))

    def test_says_what_could_not_be_installed(self):
        script = SCRIPT.replace(': >"$FOLDER/missing"', "false")
        code, _, stderr, _ = self.install("build", missing=["g++"], script=script)
        self.assertEqual(code, 1)
        self.assertIn("apt-get could not install: g++", stderr)

    def test_without_root_and_sudo(self):
        script = SCRIPT.replace("id() { echo 0; }", "id() { echo 1000; }\ncommand() { return 1; }")
        code, _, stderr, calls = self.install("build", missing=["g++"], script=script)
        self.assertEqual((code, calls), (2, ["query"]))
        self.assertIn("apt-get install --no-install-recommends g++", stderr)

    def test_fingerprint_follows_versions_of_the_build_only(self):
        first = self.install("build", VERSION="1.0")[1]
        self.assertEqual(first, self.install("build", "demo", "test", VERSION="1.0")[1])
        self.assertNotEqual(first, self.install("build", VERSION="1.1")[1])

    def test_another_system_names_what_is_missing_and_stops(self):
        script = SCRIPT.replace('install_packages "$@"', 'tell_present() { [ "$1" != inc:dnnl.hpp ]; }\ninstall_packages "$@"')
        for os_release in ("ID=fedora\nVERSION_ID=40\n", "ID=debian\nVERSION_ID=13\n", "ID=ubuntu\n"):
            with self.subTest(os_release):
                code, stdout, stderr, calls = self.install("build", os_release=os_release, script=script)
                self.assertEqual((code, stdout, calls), (2, "", []))
                named = [line.split()[0] for line in stderr.splitlines() if line.startswith("  ")]
                self.assertEqual(named, ["libdnnl-dev"])

    def test_another_system_with_everything_goes_on(self):
        script = SCRIPT.replace('install_packages "$@"', 'tell_present() { :; }\ninstall_packages "$@"')
        code, stdout, stderr, _ = self.install("build", "test", os_release="ID=fedora\n", script=script)
        self.assertEqual((code, stdout, stderr), (0, "fingerprint other\n", ""))

    def test_how_to_tell_holds_for_what_is_installed_here(self):
        """Each package that Debian has installed is found by the means for other systems too."""
        if subprocess.run(["/bin/sh", "-c", "command -v dpkg-query"], stdout=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no dpkg here")
        script = """
. "$HERE/messages.sh"
. "$HERE/packages.sh"
for name in $(package_names build demo test lint fuzz); do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || continue
  tell_present "$(package_field "$name" 3)" || echo "$name"
done
"""
        code, stdout, stderr, _ = self.install(script=script)
        self.assertEqual((code, stdout, stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
