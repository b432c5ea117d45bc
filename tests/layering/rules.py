"""Who may include whom: DESIGN.md section 9 as tables. check_includes.py applies them.

A *unit* is a folder with rules of its own; a file belongs to the deepest unit that holds it.
"""

# The folders at the root of the tree.
TOP_FOLDERS = (
    "proto plan coordinator worker storage kernels cli tests deploy third_party tools docs".split()
)

# Folder names that say nothing about what is in them.
EMPTY_NAMES = ("utils", "util", "common", "misc", "helpers")

# Below the top folders of our own sources: at most this many levels.
MAX_LEVELS = 2
# proto/ follows package names, which other projects chose.
ANY_LEVELS = ("proto", "third_party", "docs", "deploy")

# Of storage, only what does not hold tensors.
KEY_VALUE = "storage/key_value*"
# Of kernels, only element types, huge pages of memory and the macros of Status.
HOST_KERNELS = ("kernels/dtype*", "kernels/huge_pages*", "kernels/status_macros*")
# Messages without services; who may see the services is said by GRPC_UNITS.
MESSAGES = ("proto/*.pb.h", "proto/rpc/*")
# Operations by their contracts; the implementation of a backend is chosen where a process is put
# together.
KERNELS = ("kernels/*.h",)
BACKENDS = ("kernels/cpu/*", "kernels/cuda/*")

# What every folder of worker/ but comm may use besides its neighbours.
_ENGINE = MESSAGES + ("plan/*",) + KERNELS + ("storage/*",)

# unit: patterns of what its files may include besides the unit itself. '*' stands for any text,
# folders included, but in KERNELS, which names files of one folder.
ARROWS = {
    "proto": (),
    "proto/rpc": ("proto/*.pb.h",),
    "proto/daemon": ("proto/*.pb.h", "proto/rpc/*"),
    "plan": (),
    # An operation's checks, then the call of the backend that is linked.
    "kernels": BACKENDS,
    "kernels/cpu": KERNELS,
    "kernels/cuda": KERNELS,
    "storage": HOST_KERNELS,
    "coordinator": ("proto/*", "plan/*", KEY_VALUE),
    # Arithmetic about a model of which only the size is known needs no coordinator.
    "cli": ("proto/*", "plan/model_state.h"),
    # worker/, from the bottom up. The folders of the mesh's axes never include each other.
    # A transport moves the memory of one kind of device.
    "worker/comm": KERNELS + BACKENDS,
    "worker/data": _ENGINE,
    "worker/tensor_parallel": _ENGINE + ("worker/comm/*",),
    "worker/context_parallel": _ENGINE + ("worker/comm/*",),
    "worker/model": _ENGINE
    + ("worker/comm/*", "worker/tensor_parallel/*", "worker/context_parallel/*"),
    # Implements the interface through which model asks for weights.
    # What it shards lies on the device or in a tier.
    "worker/zero": _ENGINE + ("worker/comm/*", "worker/model/*", "worker/offload/*"),
    "worker/offload": _ENGINE + ("worker/comm/*",),
    # Of model, only the plain values that say which parameters there are.
    "worker/checkpoint": _ENGINE
    + ("worker/comm/*", "worker/model/model_config.h", "worker/model/units.h"),
    "worker/pipeline_parallel": _ENGINE + ("worker/comm/*", "worker/model/*"),
    # Weights without a trainer, and tokens from them.
    "worker/generation": _ENGINE
    + ("worker/zero/*", "worker/checkpoint/*", "worker/data/*", "worker/model/*"),
    "worker/trainer": _ENGINE
    + tuple(
        "worker/%s/*" % folder
        for folder in "generation pipeline_parallel zero offload checkpoint data model comm".split()
    ),
    # The attach client and the runner of jobs; the process is put together here.
    "worker/service": _ENGINE + BACKENDS + ("proto/*", "worker/*"),
    "worker": _ENGINE + BACKENDS + ("proto/*", "worker/*"),
    "tests": ("*",),
    "tools": (),
    # Compiles nothing of ours.
    "third_party": (),
    "deploy": (),
    "docs": (),
}

# worker/ holds these folders and no others.
WORKER_FOLDERS = tuple(unit.split("/")[1] for unit in ARROWS if unit.startswith("worker/"))

# What a test beside its source may include besides.
TEST_ARROWS = ("worker/comm/in_process*", "worker/comm/communicator*", "kernels/cpu/*", "kernels/*.h")
# plan and proto stay pure, in their tests too.
PURE_UNITS = ("plan", "proto", "proto/rpc", "proto/daemon", "cli")

# Library: (what its includes look like, units that may use it). Tests may use any.
THIRD_PARTY = {
    "abseil": (r"absl/", ("proto", "plan", "kernels", "storage", "coordinator", "worker", "cli", "tools")),
    "protobuf": (r"google/protobuf/", ("proto", "coordinator", "worker", "cli")),
    # In addition to GRPC_FILES below.
    "gRPC": (r"grpc(pp|\+\+)?/", ("proto/rpc", "proto/daemon", "coordinator", "worker/service", "worker", "cli")),
    "RocksDB": (r"rocksdb/", ("storage",)),
    "ISA-L": (r"isa-l/", ("storage",)),
    "oneDNN": (r"(oneapi/)?dnnl|dnnl", ("kernels",)),
    "Highway": (r"hwy/", ("kernels", "worker/comm")),
    "Gloo": (r"gloo/", ("worker/comm",)),
    "OpenSSL": (r"openssl/", ("proto/rpc", "proto/daemon")),
    "yaml-cpp": (r"yaml-cpp/", ("cli",)),
    "CLI11": (r"CLI/", ("cli",)),
    "nlohmann-json": (r"nlohmann/", ("storage",)),
    "PCRE2": (r"pcre2", ("worker/data",)),
    "utf8proc": (r"utf8proc", ("worker/data",)),
    "prometheus-cpp": (r"prometheus/", ("coordinator", "worker/service", "worker")),
    "GoogleTest": (r"(gtest|gmock)/", ()),
    "CUDA": (r"(cuda|cublas|nvtx|curand|cub/|thrust/|cooperative_groups|nvml)", ("kernels/cuda", "worker/comm")),
    "NCCL": (r"nccl", ("worker/comm",)),
}
# Units whose rule does not extend to the folders below them: worker/model may not do what the
# files directly in worker/ may, nor proto/rpc what proto may not.
OWN_FILES_ONLY = {"gRPC": ("worker",), "prometheus-cpp": ("worker",)}

# Folders of <...> headers that belong to the system.
SYSTEM_FOLDERS = ("sys", "linux", "net", "netinet", "arpa", "asm", "bits", "experimental", "ext")
# Part of <...> headers' folders above, but nobody's interface.
PRIVATE_SYSTEM_FOLDERS = ("bits", "ext", "experimental")

# gRPC headers, <grpcpp/...> and *.grpc.pb.h, are slow to compile and tie what includes them to the
# transport: only files of these units whose names end so may include them.
GRPC_UNITS = THIRD_PARTY["gRPC"][1]
GRPC_FILE_ENDINGS = ("service", "client", "server")
# Named one by one, with the reason.
GRPC_FILES = {
    "proto/rpc/status": "absl::Status becomes a gRPC status in this one file",
    "proto/rpc/credentials": "makes gRPC credentials from certificate files",
    "cli/connection": "makes the channel of every client of the command",
}
