#!/usr/bin/python3
"""Plants violations in small trees: each rule of check_includes.py must find its own, and only it."""
import os
import tempfile
import unittest

import check_includes

# (name, file, line of it, part of the message; None: allowed)
CASES = [
    # Top folders.
    ("own folder", "plan/mesh.cc", '#include "plan/mesh.h"', None),
    ("plan is pure", "plan/mesh.cc", '#include "kernels/dtype.h"', "plan/ may not include kernels/"),
    ("plan has no messages", "plan/mesh.cc", '#include "proto/tessera/v1/spec.pb.h"', "plan/ may not include"),
    ("kernels below all", "kernels/x.cc", '#include "storage/tier.h"', "kernels/ may not include storage/"),
    ("dispatch", "kernels/matmul.cc", '#include "kernels/cpu/matmul.h"', None),
    ("backend to contract", "kernels/cpu/matmul.cc", '#include "kernels/matmul.h"', None),
    ("cpu to cuda", "kernels/cpu/x.cc", '#include "kernels/cuda/x.h"', "kernels/cpu/ may not include kernels/cuda/"),
    ("cuda to cpu", "kernels/cuda/x.cu", '#include "kernels/cpu/x.h"', "kernels/cuda/ may not include kernels/cpu/"),
    ("storage dtype", "storage/safetensors.cc", '#include "kernels/dtype.h"', None),
    ("storage arena", "storage/tier.cc", '#include "kernels/arena.h"', "storage/ may not include kernels/"),
    ("coordinator messages", "coordinator/jobs.cc", '#include "proto/tessera/v1/spec.pb.h"', None),
    ("coordinator plan", "coordinator/jobs.cc", '#include "plan/mesh.h"', None),
    ("coordinator key-value", "coordinator/journal.h", '#include "storage/key_value_store.h"', None),
    ("coordinator tiers", "coordinator/journal.h", '#include "storage/tier.h"', "coordinator/ may not include storage/"),
    ("coordinator worker", "coordinator/x.cc", '#include "worker/comm/communicator.h"', "coordinator/ may not include worker/comm/"),
    ("coordinator kernels", "coordinator/x.cc", '#include "kernels/dtype.h"', "coordinator/ may not include kernels/"),
    ("cli proto", "cli/get.cc", '#include "proto/rpc/status.h"', None),
    ("cli plan", "cli/get.cc", '#include "plan/mesh.h"', "cli/ may not include plan/"),
    ("proto up", "proto/rpc/x.cc", '#include "plan/mesh.h"', "proto/rpc/ may not include plan/"),
    ("rpc to daemon", "proto/rpc/x.cc", '#include "proto/daemon/log.h"', "proto/rpc/ may not include proto/daemon/"),
    ("daemon to rpc", "proto/daemon/x.cc", '#include "proto/rpc/status.h"', None),
    ("nothing includes tests", "worker/trainer/x_test.cc", '#include "tests/parity/curve.h"', "nothing includes tests/"),
    ("tests include all", "tests/parity/x.cc", '#include "worker/model/gpt2.h"', None),
    ("tests include tests", "tests/parity/x.cc", '#include "tests/e2e/cluster.h"', None),
    ("unknown folder", "engine/x.cc", '#include <string>', "has no rules"),
    # Inside worker/.
    ("comm kernels", "worker/comm/x.cc", '#include "kernels/dtype.h"', None),
    ("comm backend", "worker/comm/cpu_transport.h", '#include "kernels/cpu/cpu_device.h"', None),
    ("comm proto", "worker/comm/x.cc", '#include "proto/tessera/v1/spec.pb.h"', "worker/comm/ may not include proto/"),
    ("comm model", "worker/comm/x.cc", '#include "worker/model/gpt2.h"', "worker/comm/ may not include worker/model/"),
    ("engine backend", "worker/model/x.cc", '#include "kernels/cpu/matmul.h"', "worker/model/ may not include kernels/cpu/"),
    ("main backend", "worker/main.cc", '#include "kernels/cpu/cpu_device.h"', None),
    ("tp comm", "worker/tensor_parallel/x.h", '#include "worker/comm/communicator.h"', None),
    ("tp cp", "worker/tensor_parallel/x.h", '#include "worker/context_parallel/x.h"', "worker/tensor_parallel/ may not"),
    ("cp tp", "worker/context_parallel/x.h", '#include "worker/tensor_parallel/x.h"', "worker/context_parallel/ may not"),
    ("tp model", "worker/tensor_parallel/x.h", '#include "worker/model/x.h"', "worker/tensor_parallel/ may not"),
    ("model tp", "worker/model/x.h", '#include "worker/tensor_parallel/x.h"', None),
    ("model zero", "worker/model/x.h", '#include "worker/zero/x.h"', "worker/model/ may not include worker/zero/"),
    ("zero model", "worker/zero/x.h", '#include "worker/model/weight_source.h"', None),
    ("zero tp", "worker/zero/x.h", '#include "worker/tensor_parallel/x.h"', "worker/zero/ may not"),
    ("zero pp", "worker/zero/x.h", '#include "worker/pipeline_parallel/x.h"', "worker/zero/ may not"),
    ("pp model", "worker/pipeline_parallel/x.h", '#include "worker/model/x.h"', None),
    ("pp zero", "worker/pipeline_parallel/x.h", '#include "worker/zero/x.h"', "worker/pipeline_parallel/ may not"),
    ("pp tp", "worker/pipeline_parallel/x.h", '#include "worker/tensor_parallel/x.h"', "worker/pipeline_parallel/ may not"),
    ("data comm", "worker/data/x.cc", '#include "worker/comm/communicator.h"', "worker/data/ may not"),
    ("offload zero", "worker/offload/x.cc", '#include "worker/zero/x.h"', "worker/offload/ may not"),
    ("checkpoint trainer", "worker/checkpoint/x.cc", '#include "worker/trainer/trainer.h"', "worker/checkpoint/ may not"),
    ("trainer all below", "worker/trainer/x.cc", '#include "worker/offload/x.h"', None),
    ("trainer tp", "worker/trainer/x.cc", '#include "worker/tensor_parallel/x.h"', "worker/trainer/ may not"),
    ("trainer service", "worker/trainer/x.cc", '#include "worker/service/runner.h"', "worker/trainer/ may not"),
    ("service trainer", "worker/service/runner.cc", '#include "worker/trainer/trainer.h"', None),
    ("test in process", "worker/trainer/x_test.cc", '#include "worker/comm/in_process.h"', None),
    ("test cpu", "worker/model/x_test.cc", '#include "kernels/cpu/cpu_device.h"', None),
    ("test upwards", "worker/comm/x_test.cc", '#include "worker/trainer/trainer.h"', "worker/comm/ may not"),
    ("pure test", "plan/x_test.cc", '#include "kernels/cpu/cpu_device.h"', "plan/ may not"),
    # gRPC.
    ("grpc service", "coordinator/jobs_service.cc", "#include <grpcpp/grpcpp.h>", None),
    ("grpc quoted", "coordinator/jobs.cc", '#include "grpcpp/grpcpp.h"', "gRPC headers only in files named"),
    ("grpc c", "coordinator/jobs.cc", "#include <grpc/grpc.h>", "gRPC headers only in files named"),
    ("grpc stub", "coordinator/jobs.cc", '#include "proto/tessera/v1/jobs.grpc.pb.h"', "gRPC headers only in files named"),
    ("grpc in header", "coordinator/attach_service.h", '#include "proto/tessera/v1/attach.grpc.pb.h"', None),
    ("grpc listed", "proto/rpc/status.cc", "#include <grpcpp/support/status.h>", None),
    ("grpc unlisted", "proto/rpc/names.cc", "#include <grpcpp/support/status.h>", "gRPC headers only in files named"),
    ("grpc trainer", "worker/trainer/x_service.cc", "#include <grpcpp/grpcpp.h>", "gRPC is used only in"),
    ("stub trainer", "worker/trainer/x_client.cc", '#include "proto/tessera/v1/jobs.grpc.pb.h"', "may not include gRPC"),
    ("grpc client", "worker/service/attach_client.cc", "#include <grpcpp/grpcpp.h>", None),
    ("grpc cli", "cli/client.cc", '#include "proto/tessera/v1/jobs.grpc.pb.h"', None),
    ("grpc service test", "coordinator/jobs_service_test.cc", "#include <grpcpp/grpcpp.h>", None),
    # Libraries.
    ("absl", "kernels/x.cc", '#include "absl/status/status.h"', None),
    ("protobuf", "coordinator/x.cc", "#include <google/protobuf/util/json_util.h>", None),
    ("protobuf in kernels", "kernels/x.cc", "#include <google/protobuf/message.h>", "protobuf is used only in"),
    ("rocksdb", "storage/key_value.cc", "#include <rocksdb/db.h>", None),
    ("rocksdb in coordinator", "coordinator/journal.cc", '#include "rocksdb/db.h"', "RocksDB is used only in"),
    ("gloo", "worker/comm/tcp.cc", "#include <gloo/transport/tcp/device.h>", None),
    ("gloo in zero", "worker/zero/x.cc", "#include <gloo/context.h>", "Gloo is used only in"),
    ("dnnl", "kernels/cpu/matmul.cc", "#include <oneapi/dnnl/dnnl.hpp>", None),
    ("dnnl in model", "worker/model/x.cc", '#include "dnnl.hpp"', "oneDNN is used only in"),
    ("hwy", "worker/comm/reduce.cc", '#include "hwy/highway.h"', None),
    ("hwy in model", "worker/model/x.cc", "#include <hwy/highway.h>", "Highway is used only in"),
    ("yaml", "cli/job_file.cc", "#include <yaml-cpp/yaml.h>", None),
    ("yaml in coordinator", "coordinator/x.cc", "#include <yaml-cpp/yaml.h>", "yaml-cpp is used only in"),
    ("cli11", "worker/main.cc", "#include <CLI/CLI.hpp>", "CLI11 is used only in"),
    ("prometheus", "worker/service/metrics.cc", "#include <prometheus/registry.h>", None),
    ("prometheus in comm", "worker/comm/x.cc", "#include <prometheus/registry.h>", "prometheus-cpp is used only in"),
    ("openssl", "proto/rpc/credentials.cc", "#include <openssl/x509.h>", None),
    ("openssl in worker", "worker/service/x.cc", "#include <openssl/x509.h>", "OpenSSL is used only in"),
    ("gtest", "plan/mesh_test.cc", '#include "gtest/gtest.h"', None),
    ("gtest outside tests", "plan/mesh.cc", '#include "gtest/gtest.h"', "GoogleTest is used only in tests"),
    ("conformance suite", "worker/comm/communicator_conformance.h", "#include <gtest/gtest.h>", None),
    ("cuda", "kernels/cuda/stream.cc", "#include <cuda_runtime.h>", None),
    ("cuda in model", "worker/model/x.h", "#include <cuda_runtime.h>", "CUDA is used only in"),
    ("nccl", "worker/comm/nccl.cc", "#include <nccl.h>", None),
    ("nccl in kernels", "kernels/cuda/x.cu", "#include <nccl.h>", "NCCL is used only in"),
    ("unlisted library", "kernels/x.cc", "#include <boost/any.hpp>", "that rules.py does not list"),
    ("system", "worker/comm/x.cc", "#include <sys/mman.h>", None),
    ("private", "kernels/x.cc", "#include <bits/stdc++.h>", "private to the system's libraries"),
    # Spelling.
    ("relative", "plan/x.cc", '#include "mesh.h"', "neither a path from the root"),
    ("parent", "plan/x.cc", '#include "../plan/mesh.h"', "neither a path from the root"),
    ("detour", "plan/x.cc", '#include "plan/../kernels/dtype.h"', 'write the path as "kernels/dtype.h"'),
    ("angled", "plan/x.cc", "#include <plan/mesh.h>", "included in quotes"),
    ("computed", "plan/x.cc", "#include HEADER", "computed #include"),
    ("spaced", "plan/x.cc", '  #  include   "kernels/dtype.h"', "plan/ may not include kernels/"),
    ("without space", "plan/x.cc", '#include"kernels/dtype.h"', "plan/ may not include kernels/"),
    ("a source", "plan/x.cc", '#include "plan/mesh.cc"', "compiled, not included"),
    ("comment", "plan/x.cc", '// #include "kernels/dtype.h"', None),
    ("block comment", "plan/x.cc", '/*\n#include "kernels/dtype.h"\n*/', None),
    # CUDA stays inside .cu.
    ("ifdef", "kernels/x.cc", "#ifdef __CUDACC__", "conditions about CUDA"),
    ("if defined", "worker/model/x.h", "#if defined(TESSERA_CUDA)", "conditions about CUDA"),
    ("has_include", "kernels/x.h", "#if __has_include(<cuda_runtime.h>)", "conditions about CUDA"),
    ("elif", "kernels/x.h", "#elif defined(USE_NCCL)", "conditions about CUDA"),
    ("cuda source", "kernels/cuda/x.cu", "#if __CUDA_ARCH__ >= 900", None),
    ("simt layer", "tests/simt/x.h", "#ifdef __CUDACC__", None),
    ("include guard", "kernels/cuda/stream.h", "#ifndef TESSERA_KERNELS_CUDA_STREAM_H_", None),
    ("other condition", "kernels/x.h", "#if defined(__SANITIZE_THREAD__)", None),
]


class CheckIncludesTest(unittest.TestCase):
    def tree(self, files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path, text in files.items():
            full = os.path.join(folder.name, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="ascii") as file:
                file.write(text + "\n")
        return folder.name

    def test_planted_includes(self):
        self.assertEqual(len({case[0] for case in CASES}), len(CASES))
        for name, path, line, expected in CASES:
            with self.subTest(name):
                root = self.tree({path: "// first line\n" + line})
                found = check_includes.check_file(root, path)
                if expected is None:
                    self.assertEqual(found, [])
                else:
                    self.assertEqual(len(found), 1, found)
                    self.assertIn(expected, found[0][1])
                    self.assertEqual(found[0][0], 1 if "has no rules" in expected else 2)

    def test_planted_folders(self):
        for path, expected in (
            ("src/x.txt", "top folders are"),
            ("worker/engine/x.txt", "worker/ holds"),
            ("plan/utils/x.txt", "says nothing"),
            ("kernels/cpu/avx/more/x.txt", "more than 2 levels"),
            ("kernels/cpu/x.txt", None),
            ("proto/google/rpc/deep/x.txt", None),
            ("bazel-out/x.txt", None),
            (".tessera/x.txt", None),
        ):
            with self.subTest(path):
                found = check_includes.check_folders(self.tree({path: ""}))
                self.assertEqual(len(found), 0 if expected is None else 1, found)
                if expected:
                    self.assertIn(expected, found[0][1])

    def test_whole_tree(self):
        root = self.tree(
            {
                "plan/mesh.h": "#include <vector>",
                "plan/mesh.cc": '#include "plan/mesh.h"\n#include "cli/get.h"',
                "bazel-out/plan/x.cc": '#include "cli/get.h"',
                ".tessera/x.cc": '#include "cli/get.h"',
            }
        )
        lines, count = check_includes.check_tree(root)
        self.assertEqual(count, 2)
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("plan/mesh.cc:2: plan/ may not include cli/"), lines)


if __name__ == "__main__":
    unittest.main()
