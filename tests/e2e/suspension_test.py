"""Jobs give their devices back and go on later, as if nothing had happened."""
import filecmp
import glob
import os
import re
import socket
import unittest
import urllib.request

from tests.e2e import cluster as e2e

IS_LONG = bool(os.environ.get("TESSERA_LONG_TESTS"))
# Suspends and resumes of two jobs in turn.
CYCLES = 100 if IS_LONG else 6
# Seconds that a job's undisturbed run may take.
PATIENCE = 900 if IS_LONG else 120


def job(steps, dp=2, extra=""):
    return e2e.SMALL_JOB.format(steps=steps, dp=dp) + extra


class SuspensionTest(unittest.TestCase):
    def setUp(self):
        self.cluster = e2e.Cluster(workers=2, worker_flags=["--host-memory=64MiB"])
        e2e.write_text(self.cluster)

    def tearDown(self):
        self.cluster.stop()

    def suspend(self, name):
        code, _, err = self.cluster.cli("suspend", name)
        self.assertEqual(code, 0, err)

    def resume(self, name):
        code, _, err = self.cluster.cli("resume", name)
        self.assertEqual(code, 0, err)

    def curve(self, name):
        progress = self.cluster.job(name)["status"]["progress"]
        return [(point["step"], point["loss"]) for point in progress["lossCurve"]]

    def export(self, name):
        return e2e.exported(self.cluster, name)

    def export_spec(self, name):
        return "export: {path: %s}\n" % name

    def assert_same_training(self, one, other):
        """Every loss, and every byte of the final weights."""
        self.assertEqual(self.curve(one), self.curve(other))
        self.assertTrue(filecmp.cmp(self.export(one), self.export(other), shallow=False))

    def undisturbed(self, name, text):
        self.cluster.create(name, text + self.export_spec(name))
        self.cluster.wait_state(name, "SUCCEEDED", PATIENCE)

    def wait_progress(self, name, than):
        e2e.wait_until(lambda: self.cluster.step(name) > than, 60, "progress of %s: %s" % (
            name, self.cluster.job(name)["status"].get("conditions", [])[-3:]))

    def wait_discarded(self):
        """Nothing but the small tables of the store itself is left."""
        def is_empty():
            used = [int(w.get("nvmeUsedBytes", 0)) for w in self.cluster.get("workers")["workers"]]
            return not any(used) and e2e.state_bytes(self.cluster) < 65536
        e2e.wait_until(is_empty, 20, "state to be discarded; %d bytes are left" %
                       e2e.state_bytes(self.cluster))

    def test_a_suspended_job_frees_its_devices_and_goes_on_also_after_restarts(self):
        text = job(600)
        self.undisturbed("whole", text)
        self.cluster.create("parted", text + self.export_spec("parted"))
        self.wait_progress("parted", 3)
        self.suspend("parted")
        self.cluster.wait_state("parted", "SUSPENDED")
        status = self.cluster.job("parted")["status"]
        saved = int(status["savedStep"])
        self.assertGreater(saved, 3)
        self.assertLess(saved, 600)
        self.cluster.wait_idle(2)
        self.suspend("parted")  # once more changes nothing

        def is_told():  # by the next heartbeats
            workers = self.cluster.get("workers")["workers"]
            return all(int(w.get("deviceMemoryUsedBytes", 0)) == 0 and
                       int(w.get("nvmeUsedBytes", 0)) > 0 for w in workers)
        e2e.wait_until(is_told, 10, "devices to be free and disks to hold the state")

        def shards():
            ranks = self.cluster.get("placement", "parted")["ranks"]
            return [rank.get("shards", []) for rank in ranks]
        saved_shards = shards()
        self.assertEqual({shard["tier"] for rank in saved_shards for shard in rank}, {"nvme"})
        # Others run meanwhile.
        self.cluster.create("other", job(5))
        self.cluster.wait_state("other", "SUCCEEDED")
        # Everything ends and starts again.
        for daemon in list(self.cluster.workers.values()) + [self.cluster.coordinator]:
            daemon.kill()
        self.cluster.start_coordinator()
        for daemon in self.cluster.workers.values():
            daemon.start()
        self.cluster.wait_idle(2)
        self.assertEqual(self.cluster.state("parted"), "SUSPENDED")
        self.assertEqual(shards(), saved_shards)
        self.resume("parted")
        self.cluster.wait_state("parted", "SUCCEEDED", 120)
        self.assert_same_training("whole", "parted")
        # What was saved is of no use any more.
        self.wait_discarded()

    def test_damage_to_the_state_of_one_job_costs_that_job_alone(self):
        for name in ("hurt", "well"):
            self.cluster.create(name, job(600))
            self.wait_progress(name, 3)
            self.suspend(name)
            self.cluster.wait_state(name, "SUSPENDED")
            self.cluster.wait_idle(2)
        worker = self.cluster.workers["w0"]
        worker.kill()
        folder = os.path.join(self.cluster.dir, "w0", "nvme/state/jobs",
                              self.cluster.job("hurt")["uid"])
        manifest = glob.glob(os.path.join(folder, "MANIFEST-*"))[0]
        with open(manifest, "r+b") as file:
            file.seek(os.path.getsize(manifest) // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x40]))
        worker.start()
        e2e.wait_until(lambda: "state of a job is damaged" in worker.text(), 20,
                       "the worker to find the damage; log: " + worker.text())
        self.cluster.wait_idle(2)
        self.resume("well")
        self.cluster.wait_state("well", "SUCCEEDED", 120)
        self.resume("hurt")

        def is_told():
            condition = self.cluster.job("hurt")["status"]["conditions"][-1]
            return condition["reason"] == "WAITING_FOR_STATE" and re.search(
                "workers/w0 .* holds damaged state: .*MANIFEST", condition["message"])
        e2e.wait_until(is_told, 20, "the damage to be named: %s" %
                       self.cluster.job("hurt")["status"]["conditions"][-1])
        code, _, err = self.cluster.cli("cancel", "hurt")
        self.assertEqual(code, 0, err)
        self.wait_discarded()
        e2e.wait_until(lambda: not os.path.exists(folder), 20, "the damaged state to be discarded")

    def test_a_job_of_higher_priority_takes_the_place_of_a_lower_one(self):
        text = job(800)
        self.undisturbed("whole", text)
        self.cluster.create("low", text + self.export_spec("low"))
        self.wait_progress("low", 3)
        self.cluster.create("waits", job(5))
        self.cluster.create("high", job(50, extra="priority: 5\npreempt: true\n"))
        self.cluster.wait_state("high", "SUCCEEDED")
        self.cluster.wait_state("low", "SUCCEEDED", 120)
        self.cluster.wait_state("waits", "SUCCEEDED")
        reasons = [c.get("reason") for c in self.cluster.job("low")["status"]["conditions"]]
        self.assertIn("PREEMPTED", reasons)
        self.assert_same_training("whole", "low")

    def test_metrics_count_what_tiers_move(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        self.cluster.start_worker("w2", ["--metrics-listen=" + address])
        self.cluster.wait_idle(3)
        text = job(40, dp=3).replace("global_batch_size: 4", "global_batch_size: 3")
        self.cluster.create("moves", text + "offload: {optimizer: {tier: nvme}, "
                            "gradients: {tier: host}, buffers: 3, buffer_bytes: 65536}\n")
        self.cluster.wait_state("moves", "SUCCEEDED")
        with urllib.request.urlopen("http://%s/metrics" % address, timeout=10) as answer:
            page = answer.read().decode()
        values = {}
        for line in page.splitlines():
            match = re.match(r'(tessera_\w+)\{(.*)\} (\S+)$', line)
            if match:
                tier = re.search(r'tier="(\w+)"', match[2])[1]
                values[match[1], tier] = float(match[3])
        self.assertGreater(values["tessera_tier_capacity_bytes", "device"], 0)
        self.assertEqual(values["tessera_tier_resident_bytes", "host"], 0)
        self.assertIn(("tessera_tier_pinned_ratio", "host"), values)
        for tier in ("host", "nvme"):
            self.assertGreater(values["tessera_tier_read_bytes_total", tier], 0)
            self.assertGreater(values["tessera_tier_written_bytes_total", tier], 0)
            self.assertGreaterEqual(values["tessera_tier_late_reads_total", tier], 0)
        self.assertGreater(values["tessera_tier_wait_seconds_total", "nvme"], 0)
        # The same of the last step, for people.
        _, out, _ = self.cluster.cli("describe", "job", "moves")
        for word in ("computation", "communication", "waiting for tiers", "nvme", "LATE READS"):
            self.assertIn(word, out)

    def usage(self):
        """Of both workers: resident bytes and open files."""
        resident = files = 0
        for daemon in self.cluster.workers.values():
            pid = daemon.process.pid
            with open("/proc/%d/statm" % pid) as file:
                resident += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            files += len(os.listdir("/proc/%d/fd" % pid))
        return resident, files

    def test_two_jobs_take_turns_many_times(self):
        # Steps of the second are slower: each is committed to the disk.
        texts = {"first": job(600 * CYCLES + 1000),
                 "second": job(60 * CYCLES + 400).replace("init: 3", "init: 9")
                 + "offload: {optimizer: {tier: nvme}, buffers: 3, buffer_bytes: 65536}\n"}
        for name, text in texts.items():
            self.undisturbed("whole-" + name, text.split("offload")[0])
        for name, text in texts.items():
            self.cluster.create(name, text + self.export_spec(name))
        running, waiting = "first", "second"
        self.wait_progress(running, 0)
        self.suspend(waiting)
        done = {name: 0 for name in texts}
        early = None
        for cycle in range(2 * CYCLES):
            self.wait_progress(running, done[running])
            self.cluster.cli("suspend", running)  # unless it has just ended
            e2e.wait_until(lambda: self.cluster.state(running) in ("SUSPENDED", "SUCCEEDED"), 60,
                           "%s to be suspended" % running)
            if self.cluster.state(running) == "SUCCEEDED":
                break
            done[running] = self.cluster.step(running)
            running, waiting = waiting, running
            self.resume(running)
            self.cluster.wait_state(running, "RUNNING")
            if cycle == 5:
                early = self.usage()
        else:
            cycle = 2 * CYCLES
        resident, files = self.usage()
        self.assertGreaterEqual(cycle, CYCLES, "the jobs are too short")
        print("%d suspends, %d MB resident, %d open files" % (cycle, resident >> 20, files))
        self.assertLessEqual(files, early[1] + 8)
        self.assertLess(resident, early[0] + (48 << 20))
        for name in texts:
            if self.cluster.state(name) == "SUSPENDED":
                self.resume(name)
        for name in texts:
            self.cluster.wait_state(name, "SUCCEEDED", 2 * PATIENCE)
            self.assert_same_training("whole-" + name, name)
        self.wait_discarded()


if __name__ == "__main__":
    e2e.main()
