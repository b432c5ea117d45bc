#include "storage/swap_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/aligned_buffer.h"

namespace tessera {
namespace {

using testing::HasSubstr;

std::string NewFolder() {
  std::string path = testing::TempDir() + "/swapXXXXXX";
  return mkdtemp(path.data());
}

std::unique_ptr<SwapFile> OpenSwap(const std::string& path, std::vector<int64_t> slots,
                                   int depth = 3) {
  auto swap = SwapFile::Open({path, std::move(slots), depth});
  EXPECT_TRUE(swap.ok()) << swap.status();
  return swap.ok() ? *std::move(swap) : nullptr;
}

// Waits for an operation that Start(done) starts.
absl::Status Wait(const std::function<absl::Status(SwapDone)>& start) {
  std::promise<absl::Status> result;
  absl::Status started = start([&](absl::Status status) { result.set_value(std::move(status)); });
  return started.ok() ? result.get_future().get() : started;
}
absl::Status Write(SwapFile& swap, int slot, absl::Span<const uint8_t> bytes) {
  return Wait([&](SwapDone done) { return swap.StartWrite(slot, bytes, std::move(done)); });
}
absl::Status Read(SwapFile& swap, int slot, absl::Span<uint8_t> to) {
  return Wait([&](SwapDone done) { return swap.StartRead(slot, to, std::move(done)); });
}

void Fill(absl::Span<uint8_t> bytes, int seed) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 37 + seed) >> 2);
}

TEST(SwapFile, GivesBackWhatWasWrittenLast) {
  const std::string path = NewFolder();
  const std::vector<int64_t> sizes = {0, 1, 4095, 4096, 4097, 100000};
  auto swap = OpenSwap(path, sizes);
  EXPECT_EQ(swap->num_slots(), 6);
  EXPECT_TRUE(std::filesystem::is_empty(path)) << "it has no name";
  for (const int misaligned : {0, 1, 512}) {
    for (int round = 0; round < 2; ++round) {
      for (int slot = 0; slot < swap->num_slots(); ++slot) {
        SCOPED_TRACE(absl::StrCat("slot ", slot, " memory at ", misaligned));
        // The second time less than the slot has.
        const size_t size = round == 0 ? sizes[slot] : sizes[slot] / 2;
        const AlignedBuffer from(size + misaligned + 1), to(size + misaligned + 1);
        const absl::Span<uint8_t> bytes(from.data() + misaligned, size);
        const absl::Span<uint8_t> read(to.data() + misaligned, size);
        Fill(bytes, slot + round);
        const absl::Status written = Write(*swap, slot, bytes);
        ASSERT_TRUE(written.ok()) << written;
        const absl::Status status = Read(*swap, slot, read);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), read.begin()));
      }
    }
  }
}

TEST(SwapFile, ManyOperationsAtATime) {
  constexpr int kSlots = 40;
  auto swap = OpenSwap(NewFolder(), std::vector<int64_t>(kSlots, 50000), 4);
  std::vector<AlignedBuffer> from, to;
  for (int i = 0; i < kSlots; ++i) {
    from.emplace_back(50000);
    to.emplace_back(50000);
    Fill({from[i].data(), 50000}, i);
  }
  for (int round = 0; round < 5; ++round) {
    PendingCount pending;
    std::atomic<int> failures = 0;
    const SwapDone done = [&](const absl::Status& status) {
      if (!status.ok()) ++failures;
      pending.Done();
    };
    for (int i = 0; i < kSlots; ++i) {
      pending.Add();
      ASSERT_TRUE(swap->StartWrite(i, {from[i].data(), 50000}, done).ok());
    }
    pending.Wait();
    for (int i = 0; i < kSlots; ++i) {
      pending.Add();
      ASSERT_TRUE(swap->StartRead(i, {to[i].data(), 50000}, done).ok());
    }
    pending.Wait();
    EXPECT_EQ(failures, 0);
    for (int i = 0; i < kSlots; ++i) {
      EXPECT_TRUE(std::equal(from[i].data(), from[i].data() + 50000, to[i].data())) << i;
    }
  }
}

TEST(SwapFile, NamesWhatIsWrong) {
  const std::string path = NewFolder();
  auto swap = OpenSwap(path, {100, 100});
  std::vector<uint8_t> bytes(200);
  ASSERT_TRUE(Write(*swap, 0, absl::MakeSpan(bytes).first(60)).ok());
  const struct {
    absl::Status status;
    absl::StatusCode code;
    const char* text;
  } kCases[] = {
      {Write(*swap, 2, {}), absl::StatusCode::kInvalidArgument, "slot 2: there are 2"},
      {Write(*swap, -1, {}), absl::StatusCode::kInvalidArgument, "slot -1"},
      {Write(*swap, 0, absl::MakeSpan(bytes).first(101)), absl::StatusCode::kInvalidArgument,
       "101 bytes, but it has 100"},
      {Read(*swap, 1, absl::MakeSpan(bytes)), absl::StatusCode::kNotFound, "slot 1"},
      {Read(*swap, 0, absl::MakeSpan(bytes)), absl::StatusCode::kInvalidArgument,
       "has 60 bytes, not 200"},
      {SwapFile::Open({path, {-1}}).status(), absl::StatusCode::kInvalidArgument, "slot of -1"},
      {SwapFile::Open({path, {int64_t{1} << 50}}).status(), absl::StatusCode::kResourceExhausted,
       "reserve"},
      {SwapFile::Open({"/proc/none", {1}}).status(), absl::StatusCode::kUnavailable, "/proc/none"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(c.status.code(), c.code) << c.status;
    EXPECT_THAT(std::string(c.status.message()), HasSubstr(c.text));
  }
}

// A file of this process that lies in the folder though it has no name there.
int FindUnnamed(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    if (absl::StrContains(target, std::filesystem::path(path).filename().string()) &&
        absl::StrContains(target, "(deleted)")) {
      return open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    }
  }
  return -1;
}

TEST(SwapFile, FlippedByteIsDataLoss) {
  const std::string path = NewFolder();
  auto swap = OpenSwap(path, {5000, 5000});
  const AlignedBuffer memory(5000);
  const absl::Span<uint8_t> bytes(memory.data(), 5000);
  Fill(bytes, 1);
  ASSERT_TRUE(Write(*swap, 0, bytes).ok());
  ASSERT_TRUE(Write(*swap, 1, bytes).ok());
  const int file = FindUnnamed(path);
  ASSERT_GE(file, 0);
  for (const int64_t offset : {0, 4095, 4096, 4999}) {
    uint8_t byte = 0;
    ASSERT_EQ(pread(file, &byte, 1, 8192 + offset), 1);
    byte ^= 1;
    ASSERT_EQ(pwrite(file, &byte, 1, 8192 + offset), 1);
    ASSERT_EQ(fsync(file), 0);
    const absl::Status status = Read(*swap, 1, bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << offset;
    EXPECT_THAT(std::string(status.message()), HasSubstr("slot 1"));
    EXPECT_TRUE(Read(*swap, 0, bytes).ok());
    byte ^= 1;
    ASSERT_EQ(pwrite(file, &byte, 1, 8192 + offset), 1);
    ASSERT_EQ(fsync(file), 0);
    EXPECT_TRUE(Read(*swap, 1, bytes).ok()) << offset;
  }
  close(file);
}

TEST(SwapFile, WriteThatDoesNotFitLeavesTheSlotUnwritten) {
  auto swap = OpenSwap(NewFolder(), {8192});
  const AlignedBuffer memory(8192);
  const absl::Span<uint8_t> bytes(memory.data(), 8192);
  Fill(bytes, 1);
  ASSERT_TRUE(Write(*swap, 0, bytes).ok());
  signal(SIGXFSZ, SIG_IGN);
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small = {4096, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Write(*swap, 0, bytes);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("slot 0: write"));
  EXPECT_EQ(Read(*swap, 0, bytes).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Write(*swap, 0, bytes).ok());
  EXPECT_TRUE(Read(*swap, 0, bytes).ok());
}

}  // namespace
}  // namespace tessera
