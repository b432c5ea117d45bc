#!/usr/bin/python3
"""Manifests and units parse, hang together, and use only flags that the daemons have."""
import configparser
import glob
import os
import re
import shlex
import unittest

import yaml

# Bazel's copy of the data file links to the real tree; sources are read there.
ROOT = os.path.dirname(os.path.realpath("WORKSPACE"))
DEPLOY = os.path.join(ROOT, "deploy")
# Where each daemon's flags are declared, besides those that all daemons share.
SHARED = ("proto/daemon", "proto/rpc")
SOURCES = {"tessera-coordinator": ("coordinator",), "tessera-worker": ("worker",)}
FLAG = re.compile(r"ABSL_FLAG\(\s*[^,]*(?:<[^>]*>)?[^,]*,\s*(\w+)\s*,")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def declared_flags(daemon):
    """Names as they are written on a command line; None while the daemon has no source."""
    names = set()
    for folder in SOURCES[daemon] + SHARED:
        for path in glob.glob(os.path.join(ROOT, folder, "**", "*.cc"), recursive=True):
            names |= {name.replace("_", "-") for name in FLAG.findall(read(path))}
    has_main = any(
        glob.glob(os.path.join(ROOT, folder, "**", "*main.cc"), recursive=True) for folder in SOURCES[daemon]
    )
    return names if has_main else None


def documents():
    """[(path, document)] of all YAML files."""
    for path in sorted(glob.glob(os.path.join(DEPLOY, "**", "*.yaml"), recursive=True)):
        for document in yaml.safe_load_all(read(path)):
            yield os.path.relpath(path, DEPLOY), document


def manifests():
    return [(path, d) for path, d in documents() if path.startswith("kubernetes/")]


def units():
    """[(path, parsed unit)]; lines that end in a backslash go on."""
    for path in sorted(glob.glob(os.path.join(DEPLOY, "systemd", "*.service"))):
        parser = configparser.RawConfigParser(strict=False, allow_no_value=False, comment_prefixes=("#", ";"))
        parser.optionxform = str
        parser.read_string(re.sub(r"\\\n\s*", " ", read(path)))
        yield os.path.relpath(path, DEPLOY), parser


def command_lines():
    """[(path, program, arguments)]"""
    for path, document in manifests():
        for container in pod(document).get("containers", []):
            line = container["command"] + container.get("args", [])
            yield path, os.path.basename(line[0]), line[1:]
    for path, unit in units():
        line = shlex.split(unit["Service"]["ExecStart"])
        yield path, os.path.basename(line[0]), line[1:]


def pod(document):
    return document.get("spec", {}).get("template", {}).get("spec", {}) if document["kind"] != "Kustomization" else {}


class DeployTest(unittest.TestCase):
    def test_every_flag_exists(self):
        lines = list(command_lines())
        self.assertEqual(len(lines), 4)
        for path, program, arguments in lines:
            flags = declared_flags(program)
            for argument in arguments:
                with self.subTest(path, argument=argument):
                    self.assertRegex(argument, r"^--[a-z][-a-z]*=\S+$")
                    if flags is not None:
                        self.assertIn(argument[2:].split("=")[0], flags)
        missing = [daemon for daemon in SOURCES if declared_flags(daemon) is None]
        if missing:
            self.skipTest("no main.cc yet: " + ", ".join(missing))

    def test_every_program_is_installed(self):
        listed = re.search(r'^readonly PROGRAM_TARGETS="(.*)"$', read(os.path.join(ROOT, "tools/dev/bazel.sh")), re.M)
        targets = set(listed.group(1).split())
        self.assertEqual({t.split(":")[1] for t in targets}, {"tessera", "tessera-tokenize", *SOURCES})
        dockerfile = read(os.path.join(DEPLOY, "container", "Dockerfile"))
        self.assertEqual(set(re.findall(r"//\w+:[-\w]+", dockerfile)), targets)
        files = {"bazel-bin/" + target[2:].replace(":", "/") for target in targets}
        self.assertEqual(set(re.findall(r"bazel-bin/\S+", dockerfile)), files)
        self.assertEqual(set(re.findall(r"bazel-bin/\S+", read(os.path.join(DEPLOY, "README.md")))), files)

    def test_flag_pattern(self):
        text = 'ABSL_FLAG(std::string, listen, "x", "y");\nABSL_FLAG(std::vector<std::string>, state_dir,\n {}, "");'
        self.assertEqual(FLAG.findall(text), ["listen", "state_dir"])

    def test_manifests_are_complete(self):
        kinds = {(d["kind"], d["metadata"]["name"]) for _, d in manifests() if d["kind"] != "Kustomization"}
        for name in ("tessera-coordinator", "tessera-worker"):
            for kind in ("StatefulSet", "Service", "NetworkPolicy"):
                self.assertIn((kind, name), kinds)

    def test_kustomization_lists_files(self):
        folder = os.path.join(DEPLOY, "kubernetes")
        listed = set(yaml.safe_load(read(os.path.join(folder, "kustomization.yaml")))["resources"])
        present = {os.path.basename(p) for p in glob.glob(folder + "/*.yaml")}
        self.assertEqual(listed, {p for p in present if p != "kustomization.yaml" and ".example." not in p})

    def test_references(self):
        for path, document in manifests():
            if document["kind"] == "Kustomization":
                continue
            if document["kind"] != "Namespace":
                self.assertEqual(document["metadata"].get("namespace"), "tessera", path)
            if document["kind"] != "StatefulSet":
                continue
            spec = document["spec"]
            self.assertEqual(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"], path)
            services = {d["metadata"]["name"] for _, d in manifests() if d["kind"] == "Service"}
            self.assertIn(spec["serviceName"], services)
            volumes = {v["name"] for v in pod(document)["volumes"]}
            volumes |= {c["metadata"]["name"] for c in spec["volumeClaimTemplates"]}
            for container in pod(document)["containers"]:
                mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
                self.assertEqual(set(mounts), volumes, path)
                flags = dict(a[2:].split("=", 1) for a in container["args"])
                self.assertEqual(flags["state-dir"], mounts["state"], path)
                for flag in ("tls-cert", "tls-key", "tls-ca"):
                    self.assertEqual(os.path.dirname(flags[flag]), mounts["tls"], path)
                self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"], path)

    def test_units_restart_on_failure(self):
        found = dict(units())
        self.assertEqual(len(found), 2)
        for path, unit in found.items():
            service = unit["Service"]
            self.assertEqual(service["Restart"], "on-failure", path)
            self.assertEqual(service["NoNewPrivileges"], "yes", path)
            self.assertIn("/var/lib/" + service["StateDirectory"], service["ExecStart"], path)


if __name__ == "__main__":
    unittest.main()
