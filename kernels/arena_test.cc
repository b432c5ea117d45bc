#include "kernels/arena.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tessera {
namespace {

TEST(Arena, OutOfMemoryNamesOwnerCategoryRequestAndWhatIsHeld) {
  Arena arena("workers/w0 cpu:0", 1024);
  ASSERT_TRUE(arena.Allocate(512, MemoryCategory::kParameters, "unit 0").ok());
  absl::Status status = arena.Allocate(640, MemoryCategory::kActivations, "layer 3 mlp").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part :
       {"workers/w0 cpu:0", "layer 3 mlp", "activations", "640", "1024", "512"}) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status << " " << part;
  }
}

TEST(Arena, PeaksPerCategoryAndReset) {
  Arena arena("a", 1 << 20);
  int64_t first = *arena.Allocate(1000, MemoryCategory::kGradients, "g");
  arena.Free(first);
  int64_t second = *arena.Allocate(100, MemoryCategory::kGradients, "g");
  const int gradients = static_cast<int>(MemoryCategory::kGradients);
  EXPECT_EQ(arena.usage().category[gradients].current_bytes, 128);
  EXPECT_EQ(arena.usage().category[gradients].peak_bytes, 1024);
  arena.ResetPeaks();
  EXPECT_EQ(arena.usage().category[gradients].peak_bytes, 128);
  arena.Free(second);
  EXPECT_EQ(arena.usage().current_bytes, 0);
}

TEST(Arena, RandomUseNeverOverlapsAndCoalescesToOneBlock) {
  Arena arena("a", 1 << 20);
  std::mt19937 random(7);
  struct Held {
    int64_t begin, end;
  };
  std::vector<Held> held;
  for (int i = 0; i < 20000; ++i) {
    if (held.size() > 40 || (!held.empty() && random() % 2)) {
      size_t k = random() % held.size();
      arena.Free(held[k].begin);
      held[k] = held.back();
      held.pop_back();
    } else {
      const int64_t size = 1 + random() % 30000;
      absl::StatusOr<int64_t> offset = arena.Allocate(size, MemoryCategory::kWorkspace, "w");
      if (!offset.ok()) continue;
      EXPECT_EQ(*offset % Arena::kAlignmentBytes, 0);
      for (const Held& h : held) ASSERT_TRUE(*offset + size <= h.begin || h.end <= *offset);
      held.push_back({*offset, *offset + size});
    }
  }
  for (const Held& h : held) arena.Free(h.begin);
  EXPECT_EQ(arena.usage().largest_free_bytes, 1 << 20);
}

}  // namespace
}  // namespace tessera
