#!/usr/bin/python3
"""Runs ./dev up, down and demo against stand-ins for the daemons: what is started is stopped again,
whatever happens. The stand-ins keep to the real programs' flags."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

DEV = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "dev")

COORDINATOR = """#!/usr/bin/python3
import os, signal, socket, sys
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
if os.environ.get("STUB_COORDINATOR") == "fails":
    sys.exit("cannot bind")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
host, port = flags["listen"].rsplit(":", 1)
listener = socket.create_server((host, int(port)))
with open(flags["state-dir"] + "/endpoint.partial", "w") as f:
    f.write("%s:%d\\n" % listener.getsockname()[:2])
os.rename(flags["state-dir"] + "/endpoint.partial", flags["state-dir"] + "/endpoint")
while True:
    listener.accept()
"""

WORKER = """#!/usr/bin/python3
import os, signal, sys, time
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
if os.environ.get("STUB_FAILING_WORKER") == flags["name"]:
    sys.exit("no device")
mark = os.path.join(os.environ["STUB_IDLE"], flags["name"])
def stop(*_):
    os.unlink(mark)
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if os.environ.get("STUB_STUBBORN") else stop)
open(mark, "w").close()
while True:
    time.sleep(1)
"""

TESSERA = """#!/usr/bin/python3
import json, os, sys, time
args = " ".join(sys.argv[2:])
if args == "get workers -o json":
    names = os.listdir(os.environ["STUB_IDLE"])
    print(json.dumps({"workers": [{"name": "workers/" + n, "state": "WORKER_STATE_IDLE"} for n in names]}))
elif args.startswith("create"):
    print("training", flush=True)
    time.sleep(float(os.environ.get("STUB_TRAINING_SECONDS", "0")))
    sys.exit(int(os.environ.get("STUB_WATCH_CODE", "0")))
elif args.startswith("verify"):
    print("[" + args + "]")
    sys.exit(int(os.environ.get("STUB_VERIFY_CODE", "0")))
elif "--timeline" in sys.argv:
    if not os.environ.get("STUB_NO_TIMELINE"):
        with open(sys.argv[-1], "w") as f:
            f.write("drawn")
elif args in ("get job demo -o json", "get job demo-parted -o json"):
    loss = os.environ.get("STUB_PARTED_LOSS", "3.5") if "parted" in args else "3.5"
    print(json.dumps({"status": {
        "state": os.environ.get("STUB_STATE", "JOB_STATE_SUCCEEDED"),
        "conditions": [{"state": "JOB_STATE_SUSPENDED", "message": "after step 60"}],
        "progress": {"validationLoss": float(os.environ.get("STUB_LOSS", "1.9")), "step": "1000",
                     "lossCurve": [{"step": "59", "loss": 4.0}, {"step": "61", "loss": float(loss)}]}}}))
else:
    print("[" + args + "]")
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class ClusterTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = os.path.realpath(temporary.name)
        for name, text in (
            ("bin/coordinator/tessera-coordinator", COORDINATOR),
            ("bin/worker/tessera-worker", WORKER),
            ("bin/worker/tessera-tokenize", "#!/bin/sh\n"),
            ("bin/cli/tessera", TESSERA),
        ):
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(path, 0o755)
        os.mkdir(self.folder + "/idle")
        self.env = dict(
            os.environ,
            TESSERA_BIN_DIR=self.folder + "/bin",
            TESSERA_STATE_DIR=self.folder + "/state",
            TESSERA_STOP_SECONDS="2",
            TESSERA_START_SECONDS="20",
            STUB_IDLE=self.folder + "/idle",
        )
        self.listen = "--listen=127.0.0.1:%d" % free_port()
        self.addCleanup(self.kill_leftovers)

    def processes(self):
        """Command lines of everything that runs out of the test's folder."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    line = file.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if self.folder in line:
                found[int(pid)] = line
        return found

    def kill_leftovers(self):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def assert_nothing_left(self, seconds=0.0):
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.processes(), {})

    def dev(self, *arguments, **env):
        return subprocess.run(
            [DEV, *arguments],
            env=dict(self.env, **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def pid(self, name):
        with open(self.folder + "/state/local/run/%s.daemon.pid" % name, encoding="ascii") as file:
            return int(file.read())

    def test_up_twice_and_down_twice(self):
        up = self.dev("up", "--workers", "2", self.listen)
        self.assertEqual(up.returncode, 0, up.stdout)
        self.assertIn("export TESSERA_ENDPOINT=" + self.listen.split("=")[1], up.stdout)
        # The lines that it tells to run, in a shell.
        exports = [line for line in up.stdout.splitlines() if line.startswith("  export ")]
        found = subprocess.run(
            ["/bin/bash", "-c", "\n".join(exports + ["command -v tessera tessera-tokenize"])],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        programs = [self.folder + "/bin/cli/tessera", self.folder + "/bin/worker/tessera-tokenize"]
        self.assertEqual(found.stdout.split(), programs)
        self.assertEqual(len(self.processes()), 6)  # three daemons, three supervisors
        again = self.dev("up", self.listen)
        self.assertEqual(again.returncode, 0, again.stdout)
        self.assertIn("already up", again.stdout)
        self.assertEqual(len(self.processes()), 6)
        down = self.dev("down")
        self.assertEqual(down.returncode, 0, down.stdout)
        for name in ("coordinator", "worker-0", "worker-1"):
            self.assertIn("stopping %s (pid " % name, down.stdout)
        self.assert_nothing_left()
        down = self.dev("down")
        self.assertEqual((down.returncode, down.stdout), (0, "No local cluster is up.\n"))

    def test_a_crashed_daemon_is_started_again(self):
        self.assertEqual(self.dev("up", "--workers=1", self.listen).returncode, 0)
        before = self.pid("worker-0")
        os.kill(before, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self.pid("worker-0") == before and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertNotEqual(self.pid("worker-0"), before)
        self.assertEqual(self.dev("down").returncode, 0)
        self.assert_nothing_left()

    def test_a_daemon_that_ends_well_is_not_started_again(self):
        self.assertEqual(self.dev("up", "--workers=1", self.listen).returncode, 0)
        os.kill(self.pid("worker-0"), signal.SIGTERM)
        deadline = time.monotonic() + 10
        while len(self.processes()) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(len(self.processes()), 2, self.processes())
        self.assertEqual(self.dev("down").returncode, 0)

    def test_up_that_fails_leaves_nothing(self):
        for env in ({"STUB_COORDINATOR": "fails"}, {"STUB_FAILING_WORKER": "w1"}):
            with self.subTest(env):
                up = self.dev("up", self.listen, **env)
                self.assertEqual(up.returncode, 1, up.stdout)
                self.assertIn("ended 3 times; the end of", up.stdout)
                self.assert_nothing_left()

    def test_up_does_not_join_a_strange_server(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            up = self.dev("up", "--listen=127.0.0.1:%d" % listener.getsockname()[1])
        self.assertEqual(up.returncode, 1, up.stdout)
        self.assertIn("listens on 127.0.0.1", up.stdout)
        self.assert_nothing_left()

    def test_down_kills_what_does_not_stop(self):
        self.assertEqual(self.dev("up", "--workers=1", self.listen, STUB_STUBBORN="1").returncode, 0)
        self.assertEqual(self.dev("down").returncode, 0)
        self.assert_nothing_left()

    def test_demo_result(self):
        for env, code, text in (
            ({}, 0, "below the limit"),
            ({}, 0, "all equal to the last bit"),
            ({"STUB_PARTED_LOSS": "3.6"}, 1, "the suspended job ended with exit code 1"),
            ({"STUB_LOSS": "2.0"}, 1, "not below the limit"),
            ({"STUB_LOSS": "NaN"}, 1, "not below the limit"),
            ({"STUB_STATE": "JOB_STATE_FAILED", "STUB_WATCH_CODE": "1"}, 1, "The job is FAILED"),
            ({"STUB_WATCH_CODE": "4"}, 1, "tessera create --watch ended with exit code 4"),
            ({"STUB_VERIFY_CODE": "1"}, 1, "tessera verify ended with exit code 1"),
            ({"STUB_NO_TIMELINE": "1"}, 1, "timeline.svg ended with exit code 1"),
        ):
            with self.subTest(env):
                demo = self.dev("demo", **env)
                self.assertEqual(demo.returncode, code, demo.stdout)
                self.assertIn(text, demo.stdout)
                if "STUB_WATCH_CODE" not in env:
                    self.assertIn("[get placement demo-parted]", demo.stdout)
                self.assertIn("--name demo-verification --steps 3]", demo.stdout)
                self.assertEqual(
                    os.path.exists(self.folder + "/state/demo/timeline.json"), "STUB_NO_TIMELINE" not in env
                )
                self.assert_nothing_left()

    def test_demo_interrupted(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            with self.subTest(number):
                demo = subprocess.Popen(
                    [DEV, "demo"],
                    env=dict(self.env, STUB_TRAINING_SECONDS="60"),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                while demo.stdout.readline() not in ("training\n", ""):
                    pass
                demo.send_signal(number)
                self.assertEqual(demo.wait(timeout=20), code)
                demo.stdout.close()
                self.assert_nothing_left(seconds=5)


if __name__ == "__main__":
    if not os.path.isdir("/proc/self"):
        sys.exit("needs /proc")
    unittest.main()
