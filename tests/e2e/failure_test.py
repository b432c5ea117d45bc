"""What happens when processes die or are told to stop."""
import os
import signal
import time
import unittest

from tests.e2e import cluster as e2e

# Deaths of one kind in a row; many with --long.
ROUNDS = 30 if os.environ.get("TESSERA_LONG_TESTS") else 2


class FailureTest(unittest.TestCase):
    def setUp(self):
        self.cluster = e2e.Cluster(workers=4)
        e2e.write_text(self.cluster)

    def tearDown(self):
        self.cluster.stop()

    def start_long_job(self, name, dp=4):
        self.cluster.create(name, e2e.SMALL_JOB.format(steps=1000000, dp=dp))
        e2e.wait_until(lambda: self.cluster.step(name) > 2, 30, "steps of " + name)

    def test_killed_worker_fails_the_job_within_two_seconds_with_names(self):
        for round in range(ROUNDS):
            name = "victim-%d" % round
            self.start_long_job(name)
            worker = "w%d" % (round % 4)
            self.cluster.workers[worker].process.kill()
            killed = time.monotonic()
            e2e.wait_until(lambda: self.cluster.state(name) == "FAILED", 2.0,
                           "the job to fail; " + self.cluster.coordinator.text()[-3000:])
            elapsed = time.monotonic() - killed
            status = self.cluster.job(name)["status"]
            message = status["error"]["message"]
            print("failed after %.2fs: %s" % (elapsed, message))
            self.assertEqual(status["conditions"][-1]["reason"], "WORKER_LOST")
            rank = [r["coordinates"].get("globalRank", 0)
                    for r in self.cluster.get("placement", name)["ranks"]
                    if r["worker"] == "workers/" + worker][0]
            for part in ("workers/%s (global_rank %d)" % (worker, rank), "group ",
                         "[", "global_rank"):
                self.assertIn(part, message)
            self.assertRegex(message, "all_reduce|reduce_scatter|all_gather|barrier|broadcast")
            # The others are idle and healthy, and the next job runs on them.
            self.cluster.wait_idle(3, timeout=5)
            self.cluster.create("next-%d" % round, e2e.SMALL_JOB.format(steps=5, dp=3)
                                .replace("global_batch_size: 4", "global_batch_size: 3"))
            self.cluster.wait_state("next-%d" % round, "SUCCEEDED")
            # The worker comes back under its name.
            self.cluster.workers[worker].process.wait()
            self.cluster.workers[worker].start()
            self.cluster.wait_idle(4)

    def test_killed_coordinator_comes_back_and_the_job_goes_on(self):
        for round in range(ROUNDS):
            name = "survivor-%d" % round
            self.start_long_job(name)
            before = self.cluster.step(name)
            self.cluster.coordinator.kill()
            self.cluster.start_coordinator()
            e2e.wait_until(lambda: self.cluster.state(name) == "RUNNING"
                           and self.cluster.step(name) > before, 20, "steps after the restart")
            self.cluster.cli("cancel", name)
            self.cluster.wait_state(name, "CANCELLED", 10)
            self.cluster.wait_idle(4)

    def test_job_finishes_while_the_coordinator_is_away(self):
        self.cluster.create("alone", e2e.SMALL_JOB.format(steps=300, dp=4))
        e2e.wait_until(lambda: self.cluster.step("alone") > 2, 30, "steps")
        uid = self.cluster.job("alone")["uid"]
        self.cluster.coordinator.kill()
        e2e.wait_until(lambda: all("job ended" in w.text() for w in self.cluster.workers.values()),
                       60, "the workers to finish")
        self.cluster.start_coordinator()
        self.cluster.wait_state("alone", "SUCCEEDED", 20)
        job = self.cluster.job("alone")
        self.assertEqual(job["uid"], uid)
        self.assertEqual(int(job["status"]["progress"]["step"]), 300)
        self.cluster.wait_idle(4)

    def test_coordinator_without_its_workers_fails_the_job(self):
        self.start_long_job("orphan")
        self.cluster.coordinator.kill()
        self.cluster.workers["w1"].kill()
        self.cluster.start_coordinator()
        e2e.wait_until(lambda: self.cluster.state("orphan") == "FAILED", 30, "the job to fail")
        self.assertIn("workers/w1", self.cluster.job("orphan")["status"]["error"]["message"])
        self.cluster.wait_idle(3)

    def test_jobs_are_listed_after_a_crash_at_rest(self):
        self.cluster.create("done", e2e.SMALL_JOB.format(steps=3, dp=1))
        self.cluster.wait_state("done", "SUCCEEDED")
        before = self.cluster.job("done")
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        self.assertEqual(self.cluster.job("done"), before)

    def test_sigterm_is_clean(self):
        self.start_long_job("stopped", dp=2)
        busy = [r["worker"].split("/")[1] for r in self.cluster.get("placement", "stopped")["ranks"]]
        self.assertEqual(self.cluster.workers[busy[0]].terminate(), 0)
        e2e.wait_until(lambda: self.cluster.state("stopped") == "FAILED", 5, "the job to fail")
        self.assertIn("was asked to stop", self.cluster.job("stopped")["status"]["error"]["message"])
        idle = [w for w in self.cluster.workers if w not in busy][0]
        self.assertEqual(self.cluster.workers[idle].terminate(), 0)
        self.assertEqual(self.cluster.coordinator.terminate(), 0)
        for name, worker in self.cluster.workers.items():
            if worker.process.poll() is None:
                self.assertEqual(worker.terminate(), 0, name)

    def test_a_stopping_worker_gets_no_more_work(self):
        self.start_long_job("first", dp=4)
        self.cluster.create("second", e2e.SMALL_JOB.format(steps=5, dp=2))
        self.assertEqual(self.cluster.workers["w0"].terminate(), 0)
        self.cluster.wait_state("second", "SUCCEEDED", 20)
        workers = [r["worker"] for r in self.cluster.get("placement", "second")["ranks"]]
        self.assertNotIn("workers/w0", workers)

    def test_two_threads_a_worker_do_not_burn_the_cores(self):
        """Waiting threads sleep: a step with more threads than cores takes no age."""
        for name in list(self.cluster.workers):
            self.cluster.workers[name].terminate()
            self.cluster.workers[name].args.append("--threads=2")
            self.cluster.workers[name].start()
        self.cluster.wait_idle(4)
        self.cluster.create("threads", e2e.SMALL_JOB.format(steps=60, dp=4))
        self.cluster.wait_state("threads", "SUCCEEDED", 30)

    def test_second_worker_of_a_name_is_refused(self):
        self.cluster.start_worker("w0-twin", flags=["--name=w0"])
        e2e.wait_until(lambda: "ALREADY_EXISTS" in self.cluster.workers["w0-twin"].text(), 10,
                       "the refusal")
        self.cluster.create("fine", e2e.SMALL_JOB.format(steps=3, dp=4))
        self.cluster.wait_state("fine", "SUCCEEDED")

    def test_stopped_worker_process_is_noticed_by_its_lease(self):
        """A live connection is not a live worker."""
        self.start_long_job("frozen", dp=2)
        busy = [r["worker"].split("/")[1] for r in self.cluster.get("placement", "frozen")["ranks"]]
        process = self.cluster.workers[busy[1]].process
        process.send_signal(signal.SIGSTOP)
        try:
            e2e.wait_until(lambda: self.cluster.state("frozen") == "FAILED", 20, "the job to fail")
            message = self.cluster.job("frozen")["status"]["error"]["message"]
            self.assertIn("workers/" + busy[1], message)
            self.assertIn("no heartbeat", message)
        finally:
            process.send_signal(signal.SIGCONT)
        self.cluster.wait_idle(4)


if __name__ == "__main__":
    e2e.main()
