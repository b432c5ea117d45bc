// Who is let in: arenas are for members of a group that this process is itself joining.
#include "worker/comm/rendezvous.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <latch>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/comm/process_world.h"
#include "worker/comm/socket_dir.h"

namespace tessera {
namespace {

Patience Soon() { return {std::chrono::steady_clock::now() + std::chrono::seconds(10)}; }

// What a transport answers to `hello` on its Unix socket.
Frame Ask(const std::string& dir, const Endpoint& endpoint, const std::string& hello) {
  auto fd = ConnectUnix(absl::StrCat(dir, "/", endpoint.socket_name), Soon());
  EXPECT_TRUE(fd.ok()) << fd.status();
  EXPECT_TRUE(SendFrame(fd->get(), hello, {}, Soon()).ok());
  auto answer = RecvFrame(fd->get(), Soon());
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? *std::move(answer) : Frame();
}

TEST(Rendezvous, StrangersGetNoArena) {
  const TempDir dir;
  auto device = *CpuDevice::Create("cpu:0", 1 << 20);
  auto transport = *CpuTransport::Create(*device, {.socket_dir = dir.path});
  auto other_device = *CpuDevice::Create("cpu:1", 1 << 20);
  auto other = *CpuTransport::Create(*other_device, {.socket_dir = dir.path});
  const Endpoint own = *Endpoint::Parse(transport->address());
  const Endpoint peer = *Endpoint::Parse(other->address());
  const auto hello = [&](const std::string& group, int64_t epoch, int member,
                         const std::string& from, const std::string& to) {
    return absl::StrJoin({std::string("tessera-comm/1"), std::string("job"), absl::StrCat(epoch),
                          group, absl::StrCat(member), from, to},
                         "\n");
  };
  // Not joining anything: come back later, whoever you are.
  EXPECT_EQ(Ask(dir.path, own, hello("dp", 1, 1, peer.instance, own.instance)).text, "later");

  GroupSpec spec;
  spec.name = "dp";
  spec.job_uid = "job";
  spec.epoch = 1;
  spec.members = {{0, "workers/w0", transport->address()}, {1, "workers/w1", other->address()}};
  std::thread joining(
      [&] { EXPECT_EQ(transport->Join(spec).status().code(), absl::StatusCode::kAborted); });
  const std::string stranger(32, 'f');
  // Refused once the join is in progress.
  Frame answer;
  do {
    answer = Ask(dir.path, own, hello("dp", 1, 1, stranger, own.instance));
  } while (answer.text == "later");
  EXPECT_TRUE(absl::StartsWith(answer.text, "refused")) << answer.text;
  EXPECT_TRUE(answer.fds.empty());
  struct Case {
    const char* name;
    std::string hello;
    const char* answer;
  };
  const Case cases[] = {
      {"another group", hello("tp", 1, 1, peer.instance, own.instance), "later"},
      {"another epoch", hello("dp", 2, 1, peer.instance, own.instance), "later"},
      {"no such member", hello("dp", 1, 2, peer.instance, own.instance), "refused"},
      {"the listener's own place", hello("dp", 1, 0, own.instance, own.instance), "refused"},
      {"meant for another process", hello("dp", 1, 1, peer.instance, stranger), "refused"},
      {"not a hello", "GET / HTTP/1.1", "refused"},
  };
  for (const Case& c : cases) {
    answer = Ask(dir.path, own, c.hello);
    EXPECT_TRUE(absl::StartsWith(answer.text, c.answer)) << c.name << ": " << answer.text;
    EXPECT_TRUE(answer.fds.empty()) << c.name;
  }
  // The member itself is let in.
  answer = Ask(dir.path, own, hello("dp", 1, 1, peer.instance, own.instance));
  EXPECT_EQ(answer.text, "welcome");
  EXPECT_EQ(answer.fds.size(), 2);  // arena and board
  transport->AbortJoins("job", 1, absl::AbortedError("over"));
  joining.join();
}

TEST(Rendezvous, OtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const TempDir dir;
  ASSERT_EQ(chmod(dir.path, 0755), 0);
  const std::string path = absl::StrCat(dir.path, "/socket");
  auto listener = ListenUnix(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  const pid_t child = Fork([&] {
    ASSERT_EQ(setuid(65534), 0);
    EXPECT_TRUE(ConnectUnix(path, Soon()).ok());
  });
  ASSERT_TRUE(WaitFor(listener->get(), POLLIN, Soon()).ok());
  UniqueFd visitor(accept(listener->get(), nullptr, nullptr));
  EXPECT_EQ(CheckPeerUid(visitor.get()).code(), absl::StatusCode::kPermissionDenied);
  ExpectSuccess(child);
}

TEST(SocketDir, MustBePrivateAndLosesDeadSockets) {
  const TempDir dir;
  ASSERT_EQ(chmod(dir.path, 0755), 0);
  EXPECT_EQ(PrepareSocketDir(dir.path).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(chmod(dir.path, 0700), 0);
  const std::string dead = absl::StrCat(dir.path, "/dead.sock"),
                    live = absl::StrCat(dir.path, "/live.sock");
  { auto closed = *ListenUnix(dead); }
  auto open = *ListenUnix(live);
  EXPECT_TRUE(PrepareSocketDir(dir.path).ok());
  EXPECT_NE(access(dead.c_str(), F_OK), 0);
  EXPECT_EQ(access(live.c_str(), F_OK), 0);
}

TEST(Endpoint, ParsesWhatItPrintsAndNothingElse) {
  const Endpoint endpoint{"host", std::string(32, 'a'), "a.sock", "127.0.0.1", 4711};
  auto parsed = Endpoint::Parse(endpoint.ToString());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->ToString(), endpoint.ToString());
  for (const char* text : {"", "tessera-comm/2 a b c d 1", "in-process/0"}) {
    EXPECT_FALSE(Endpoint::Parse(text).ok()) << text;
  }
  // A socket name cannot leave the directory.
  Endpoint outside = endpoint;
  outside.socket_name = "../a.sock";
  EXPECT_FALSE(Endpoint::Parse(outside.ToString()).ok());
}

}  // namespace
}  // namespace tessera
