"""TLS and mutual TLS between all three programs, and who may do what."""
import os
import subprocess
import tempfile
import unittest

from tests.e2e import cluster as e2e


def openssl(*args):
    subprocess.run(["openssl"] + list(args), check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.PIPE)


class Certificates:
    """A CA and one certificate for each name, valid for 127.0.0.1."""

    def __init__(self, *names):
        self.dir = tempfile.mkdtemp(prefix="tessera-tls-", dir="/tmp")
        ca_key, self.ca = self.path("ca.key"), self.path("ca.pem")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test-ca",
                "-keyout", ca_key, "-out", self.ca)
        with open(self.path("ext"), "w") as file:
            file.write("subjectAltName=IP:127.0.0.1\n")
        for name in names:
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=" + name, "-keyout",
                    self.path(name + ".key"), "-out", self.path(name + ".csr"))
            openssl("x509", "-req", "-days", "2", "-in", self.path(name + ".csr"), "-CA", self.ca,
                    "-CAkey", ca_key, "-CAcreateserial", "-extfile", self.path("ext"), "-out",
                    self.path(name + ".pem"))

    def path(self, name):
        return os.path.join(self.dir, name)

    def daemon(self, name, ca=True):
        flags = ["--tls-cert=" + self.path(name + ".pem"), "--tls-key=" + self.path(name + ".key")]
        return flags + (["--tls-ca=" + self.ca] if ca else [])

    def client(self, name):
        return ["--cacert", self.ca, "--cert", self.path(name + ".pem"), "--key",
                self.path(name + ".key")]


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificates = Certificates("coordinator", "tessera-worker", "alice", "tessera-admin")

    def test_mutual_tls_and_roles(self):
        certificates = self.certificates
        cluster = e2e.Cluster(workers=1, coordinator_flags=certificates.daemon("coordinator"),
                              worker_flags=certificates.daemon("tessera-worker"),
                              cli_flags=certificates.client("alice"))
        try:
            e2e.write_text(cluster)
            cluster.create("secure", e2e.SMALL_JOB.format(steps=3, dp=1))
            cluster.wait_state("secure", "SUCCEEDED")
            # A coordinator that comes back gets its workers back.
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.wait_idle(1, timeout=15)
            # A worker's certificate may not act as a user, and a user's may not attach.
            cluster.cli_flags = certificates.client("tessera-worker")
            code, _, err = cluster.cli("get", "jobs")
            self.assertEqual(code, 5, err)
            self.assertIn("tessera-worker", err)
            cluster.worker_flags = certificates.daemon("alice")
            cluster.start_worker("w1")
            e2e.wait_until(lambda: "PERMISSION_DENIED" in cluster.workers["w1"].text(), 10, "refusal")
            cluster.cli_flags = certificates.client("tessera-admin")
            self.assertEqual(cluster.cli("get", "jobs")[0], 0)
            # Without a certificate, or without TLS, nothing gets through.
            cluster.cli_flags = ["--cacert", certificates.ca]
            self.assertEqual(cluster.cli("get", "jobs", "--call-timeout", "2")[0], 4)
            cluster.cli_flags = []
            self.assertEqual(cluster.cli("get", "jobs", "--call-timeout", "2")[0], 4)
        finally:
            cluster.stop()

    def test_server_tls_alone(self):
        certificates = self.certificates
        cluster = e2e.Cluster(workers=1,
                              coordinator_flags=certificates.daemon("coordinator", ca=False),
                              worker_flags=["--tls-ca=" + certificates.ca],
                              cli_flags=["--cacert", certificates.ca])
        try:
            self.assertEqual(cluster.cli("get", "workers")[0], 0)
        finally:
            cluster.stop()

    def test_flags_that_do_not_go_together(self):
        folder = tempfile.mkdtemp(prefix="tessera-tls-", dir="/tmp")
        for flags, part in [(["--tls-cert=/no/such.pem"], "--tls-key"),
                            (["--tls-cert=/no/such.pem", "--tls-key=/no/such.key"], "/no/such.pem"),
                            (["--listen=0.0.0.0:0"], "--allow-insecure"),
                            (["--log-format=xml"], "--log-format")]:
            run = subprocess.run([e2e.COORDINATOR, "--listen=127.0.0.1:0", "--state-dir=" + folder]
                                 + flags, stderr=subprocess.PIPE, text=True, timeout=20)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(part, run.stderr)


if __name__ == "__main__":
    e2e.main()
