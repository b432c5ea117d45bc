"""A cluster of real processes on loopback, for tests: one coordinator, some workers, the CLI.

Every process gets its own state folder; ports are chosen by the system. Nothing outlives the test.
"""
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree as ET

COORDINATOR = "coordinator/tessera-coordinator"
WORKER = "worker/tessera-worker"
# The same with an error that TESSERA_PLANTED_ERROR names; a test that uses it lists it in its data.
PLANTED_WORKER = "worker/tessera_worker_planted"
CLI = "cli/tessera"


def wait_until(condition, timeout, what):
    """Polls until condition() is true and returns its value."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("timed out after %gs: %s" % (timeout, what))
        time.sleep(0.02)


class Daemon:
    """One process; stderr goes to a log file. environment: what it has besides the test's own."""

    def __init__(self, args, log, environment=None):
        self.args = args
        self.log = log
        self.environment = dict(os.environ, **(environment or {}))
        self.start()

    def start(self):
        with open(self.log, "a") as out:
            self.process = subprocess.Popen(self.args, stdout=out, stderr=out, env=self.environment)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout=20):
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.process.wait(timeout)

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()


class Cluster:
    def __init__(self, workers=2, coordinator_flags=(), worker_flags=(), cli_flags=(),
                 device_memory="256MiB", worker_program=WORKER, worker_environment=None):
        self.dir = tempfile.mkdtemp(prefix="tessera-e2e-", dir="/tmp")
        self.data = os.path.join(self.dir, "data")
        os.mkdir(self.data)
        self.coordinator_flags = list(coordinator_flags)
        self.worker_flags = list(worker_flags)
        self.cli_flags = list(cli_flags)
        self.device_memory = device_memory
        self.worker_program = worker_program
        self.worker_environment = worker_environment
        self.endpoint = "127.0.0.1:0"
        self.workers = {}
        self.start_coordinator()
        for i in range(workers):
            self.start_worker("w%d" % i)
        self.wait_idle(workers)

    def start_coordinator(self):
        """The first time on a port of the system's choice, later on the same one."""
        state = os.path.join(self.dir, "coordinator")
        endpoint = os.path.join(state, "endpoint")
        if os.path.exists(endpoint):
            os.remove(endpoint)
        self.coordinator = Daemon([COORDINATOR, "--listen=" + self.endpoint, "--state-dir=" + state]
                                  + self.coordinator_flags,
                                  os.path.join(self.dir, "coordinator.log"))

        def bound():
            if self.coordinator.process.poll() is not None:
                raise AssertionError("coordinator ended: " + self.coordinator.text())
            return os.path.exists(endpoint)
        wait_until(bound, 20, "the coordinator to serve")
        with open(endpoint) as file:
            self.endpoint = file.read().strip()

    def start_worker(self, name, flags=()):
        self.workers[name] = Daemon(
            [self.worker_program, "--coordinator=" + self.endpoint, "--name=" + name,
             "--state-dir=" + os.path.join(self.dir, name), "--data-root=" + self.data,
             "--shared-memory-dir=" + os.path.join(self.dir, "shm"),
             "--device-memory=" + self.device_memory] + self.worker_flags + list(flags),
            os.path.join(self.dir, name + ".log"), self.worker_environment)

    def wait_idle(self, count, timeout=30):
        def idle():
            states = [w.get("state") for w in self.get("workers").get("workers", [])]
            return states.count("WORKER_STATE_IDLE") >= count
        wait_until(idle, timeout, "%d idle workers; logs: %s" % (
            count, "".join(w.text()[-2000:] for w in self.workers.values())))

    def cli(self, *args, input=None, timeout=120):
        """Runs the CLI; returns (exit code, stdout, stderr)."""
        run = subprocess.run([CLI, "--endpoint=" + self.endpoint] + self.cli_flags + list(args),
                             input=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=timeout, errors="surrogateescape")
        return run.returncode, run.stdout, run.stderr

    def get(self, *args):
        code, out, err = self.cli("get", *args, "-o", "json")
        if code != 0:
            raise AssertionError("get %s: %d %s" % (args, code, err))
        return json.loads(out)

    def job(self, name):
        return self.get("job", name)

    def state(self, name):
        return self.job(name)["status"]["state"].replace("JOB_STATE_", "")

    def wait_state(self, name, state, timeout=60):
        def reached():
            now = self.state(name)
            if now in ("SUCCEEDED", "FAILED", "CANCELLED") and now != state:
                raise AssertionError("%s is %s: %s" % (name, now, self.job(name)["status"]))
            return now == state
        wait_until(reached, timeout, "%s to be %s" % (name, state))

    def create(self, name, text, *args):
        code, out, err = self.cli("create", "-f", "-", "--name", name, *args, input=text)
        if code != 0:
            raise AssertionError("create %s: %d %s" % (name, code, err))

    def step(self, name):
        return int(self.job(name)["status"].get("progress", {}).get("step", 0))

    def stop(self):
        for daemon in list(self.workers.values()) + [self.coordinator]:
            if daemon.process.poll() is None:
                daemon.process.kill()
                daemon.process.wait()
        subprocess.run(["rm", "-rf", self.dir], check=False)


def exported(cluster, name):
    """The weights that a job has exported, on the worker that had its rank 0."""
    paths = [os.path.join(cluster.dir, worker, "exports", name, "model.safetensors")
             for worker in cluster.workers]
    return [path for path in paths if os.path.exists(path)][0]


def state_bytes(cluster):
    """Of the tables in the workers' nvme tiers."""
    return sum(os.path.getsize(os.path.join(folder, name)) for worker in cluster.workers
               for folder, _, names in os.walk(os.path.join(cluster.dir, worker, "nvme"))
               for name in names if name.endswith(".sst"))


SMALL_JOB = """
model: {{family: gpt2, vocab_size: 256, context_length: 32, layers: 2, heads: 2, hidden_size: 32}}
data: {{path: text.txt, format: text, sequence_length: 32, validation_path: text.txt}}
learning_rate: {{peak: 1e-3}}
batch: {{global_batch_size: 4}}
steps: {steps}
mesh: {{dp: {dp}}}
evaluation: {{every_steps: 1000000, sequences: 4}}
seeds: {{init: 3, data: 4}}
"""


def write_text(cluster, name="text.txt", size=20000):
    """Deterministic text with some structure."""
    words = ("and the lord said unto moses in the land of egypt behold a people shall come "
             "forth from the wilderness").split()
    out, x = [], 12345
    while size > 0:
        x = (1103515245 * x + 12345) % (1 << 31)
        word = words[(x >> 16) % len(words)]
        out.append(word)
        size -= len(word) + 1
    with open(os.path.join(cluster.data, name), "w") as file:
        file.write(" ".join(out))


def main():
    """unittest.main, with a JUnit report of every case where Bazel wants it."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(__import__("__main__"))
    outcomes = []

    class Result(unittest.TextTestResult):
        def addSuccess(self, test):
            super().addSuccess(test)
            outcomes.append((test.id(), None, ""))

        def addFailure(self, test, error):
            super().addFailure(test, error)
            outcomes.append((test.id(), "failure", self.failures[-1][1]))

        def addError(self, test, error):
            super().addError(test, error)
            outcomes.append((str(test), "error", self.errors[-1][1]))

        def addSkip(self, test, reason):
            super().addSkip(test, reason)
            outcomes.append((test.id(), "skipped", reason))

    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(suite)
    report = os.environ.get("XML_OUTPUT_FILE")
    if report:
        root = ET.Element("testsuites")
        group = ET.SubElement(root, "testsuite", name="e2e", tests=str(len(outcomes)))
        for name, outcome, text in outcomes:
            case = ET.SubElement(group, "testcase", name=name, classname="e2e")
            if outcome:
                ET.SubElement(case, outcome, message=text[:200]).text = text
        ET.ElementTree(root).write(report)
    raise SystemExit(0 if result.wasSuccessful() else 1)
