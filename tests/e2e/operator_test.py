"""What an operator meets: flags, folders and ports that do not serve, doctor, waiting."""
import os
import subprocess
import unittest

from tests.e2e import cluster as e2e


class OperatorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = e2e.Cluster(workers=1)
        e2e.write_text(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def daemon(self, program, *flags, **more):
        """(exit code, stderr) of one that cannot start."""
        run = subprocess.run([program] + list(flags), stderr=subprocess.PIPE, text=True, timeout=60, **more)
        return run.returncode, run.stderr

    def worker(self, *flags):
        return self.daemon(e2e.WORKER, "--coordinator=" + self.cluster.endpoint, "--name=other",
                           "--data-root=" + self.cluster.data,
                           "--shared-memory-dir=" + os.path.join(self.cluster.dir, "shm"), *flags)

    def test_doctor(self):
        code, out, err = self.cluster.cli("doctor")
        self.assertEqual(code, 0, out + err)
        self.assertIn("serves, answered in", out)
        self.assertIn("memfd works", out)
        run = subprocess.run([e2e.CLI, "--endpoint=127.0.0.1:1", "doctor"], stdout=subprocess.PIPE, text=True,
                             timeout=60)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stdout, r"FAIL  coordinator +127.0.0.1:1 ")

    def test_a_folder_has_one_worker(self):
        state = os.path.join(self.cluster.dir, "w0")
        code, err = self.worker("--state-dir=" + state)
        self.assertEqual(code, 3, err)
        self.assertEqual(err, "tessera-worker: --state-dir: %s: is another process's (pid %d)\n" % (
            state, self.cluster.workers["w0"].process.pid))

    def test_flags_of_a_worker(self):
        state = "--state-dir=" + os.path.join(self.cluster.dir, "other")
        for flag, message in [("--device-memory=1KiB", "--device-memory=1KiB: must be at least 1MiB"),
                              ("--device-memory=x", '--device-memory: "x": must be a positive number'),
                              ("--threads=0", "--threads=0: must be 1 .. 1024"),
                              ("--keep-weights=-1", "--keep-weights=-1: must be at least 0"),
                              ("--log-level=loud", "loud")]:
            code, err = self.worker(state, flag)
            self.assertEqual(code, 2, err)
            self.assertIn(message, err)
            self.assertEqual(err.count("\n"), 1, err)

    def test_a_busy_port(self):
        code, err = self.daemon(e2e.COORDINATOR, "--listen=" + self.cluster.endpoint,
                                "--state-dir=" + os.path.join(self.cluster.dir, "second"))
        self.assertEqual(code, 2, err)
        self.assertIn("--listen=%s: cannot be bound" % self.cluster.endpoint, err)
        self.assertNotIn("grpc", err)

    def test_timeouts_of_the_command(self):
        for bad in ("nan", "0", "-1", "inf"):
            code, _, err = self.cluster.cli("get", "jobs", "--call-timeout=" + bad)
            self.assertEqual(code, 2, err)
            self.assertIn("--call-timeout: " + bad, err)
        self.cluster.create("waits", e2e.SMALL_JOB.format(steps=10, dp=4))
        code, _, err = self.cluster.cli("wait", "waits", "--for=state=SUCCEEDED", "--timeout=200ms")
        self.assertEqual(code, 4, err)
        self.assertIn("trainingJobs/waits: timed out", err)
        self.assertIn("hint: `tessera describe job NAME` tells how far it is", err)

    def test_suspend_and_resume_of_a_waiting_job(self):
        """They are idempotent, and refused for a job that has ended."""
        self.cluster.create("later", e2e.SMALL_JOB.format(steps=10, dp=4))
        for verb, said, state in (("suspend", "is SUSPENDED", "SUSPENDED"),
                                  ("suspend", "is SUSPENDED", "SUSPENDED"),
                                  ("resume", "is PENDING", "PENDING"),
                                  ("resume", "is PENDING", "PENDING")):
            code, out, err = self.cluster.cli(verb, "later")
            self.assertEqual(code, 0, err)
            self.assertEqual(out, "trainingJobs/later %s\n" % said)
            self.assertEqual(self.cluster.state("later"), state)
        code, out, err = self.cluster.cli("suspend", "later", "-o", "name")
        self.assertEqual((code, out), (0, "trainingJobs/later\n"), err)
        code, out, err = self.cluster.cli("wait", "later", "--for=state=SUSPENDED")
        self.assertEqual((code, out), (0, "trainingJobs/later is SUSPENDED\n"), err)
        self.assertEqual(self.cluster.cli("cancel", "later")[0], 0)
        for verb in ("suspend", "resume"):
            code, out, err = self.cluster.cli(verb, "later")
            self.assertEqual((code, out), (3, ""), err)
            self.assertIn("FAILED_PRECONDITION (JOB_ENDED): trainingJobs/later: is CANCELLED", err)
            self.assertEqual(self.cluster.cli(verb, "none")[0], 3)

    def test_explains_what_is_offloaded(self):
        code, out, err = self.cluster.cli("explain", "offload.optimizer.tier")
        self.assertEqual(code, 0, err)
        self.assertIn("  nvme\n", out)
        self.assertEqual(self.cluster.cli("explain", "preempt")[0], 0)

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            code, out, err = self.cluster.cli("completion", shell)
            self.assertEqual(code, 0, err)
            for verb in ("generate", "suspend", "resume"):
                self.assertIn(verb, out)
            if shell == "bash":
                complete = out + """
COMP_WORDS=(tessera gen); COMP_CWORD=1; _tessera; echo "${COMPREPLY[@]}"
COMP_WORDS=(tessera get ''); COMP_CWORD=2; _tessera; echo "${COMPREPLY[@]}" """
                run = subprocess.run(["bash", "-c", complete], stdout=subprocess.PIPE, text=True, timeout=60,
                                     check=True)
                self.assertEqual(run.stdout.split("\n")[:2], ["generate", "jobs job workers placement"])
        self.assertEqual(self.cluster.cli("completion", "csh")[0], 2)

    def test_tls_flags_are_the_commands(self):
        code, _, err = self.cluster.cli("get", "jobs", "--cert", "x")
        self.assertEqual(code, 2, err)
        self.assertIn("a TLS client needs --cacert, and --cert only together with --key", err)


if __name__ == "__main__":
    e2e.main()
