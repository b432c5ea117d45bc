#include "worker/data/sample_order.h"

#include <algorithm>

namespace tessera {
namespace {

// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014): a bijective mixer.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr int kRounds = 6;

// A permutation of [0, 2^(2*half_bits)) by a balanced Feistel network (Luby and Rackoff, 1988).
uint64_t Feistel(uint64_t value, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (Mix(right ^ Mix(key + round)) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

bool Carries(int32_t target, absl::Span<const int32_t> ignore_target_ids) {
  return std::find(ignore_target_ids.begin(), ignore_target_ids.end(), target) ==
         ignore_target_ids.end();
}

}  // namespace

SampleOrder::SampleOrder(int64_t num_tokens, int32_t sequence_length, uint64_t seed)
    : num_windows_((num_tokens - 1) / sequence_length),
      sequence_length_(sequence_length),
      seed_(seed) {
  half_bits_ = 1;
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(num_windows_)) ++half_bits_;
}

SampleCursor SampleOrder::CursorOf(int64_t sample) const {
  return {.epoch = sample / num_windows_, .index = sample % num_windows_};
}

int64_t SampleOrder::SampleOf(const SampleCursor& cursor) const {
  return cursor.epoch * num_windows_ + cursor.index;
}

int64_t SampleOrder::WindowBegin(const SampleCursor& cursor) const {
  auto window = static_cast<uint64_t>(cursor.index);
  const uint64_t key = Mix(seed_ ^ Mix(static_cast<uint64_t>(cursor.epoch)));
  // Cycle walking: the network's domain is less than four times the windows, so this ends soon, and
  // following a cycle of a permutation until it is back inside is a permutation of the inside.
  do {
    window = Feistel(window, half_bits_, key);
  } while (window >= static_cast<uint64_t>(num_windows_));
  return static_cast<int64_t>(window) * sequence_length_;
}

void FillSequence(const TokenSource& source, int64_t window_begin,
                  absl::Span<const int32_t> ignore_target_ids, absl::Span<int32_t> inputs,
                  absl::Span<int32_t> targets) {
  source.Read(window_begin, inputs);
  source.Read(window_begin + 1, targets);
  if (ignore_target_ids.empty()) return;
  for (int32_t& target : targets) {
    if (!Carries(target, ignore_target_ids)) target = -1;
  }
}

int64_t CountValidTargets(const TokenSource& source, int64_t window_begin, int32_t sequence_length,
                          absl::Span<const int32_t> ignore_target_ids) {
  if (ignore_target_ids.empty()) return sequence_length;
  std::vector<int32_t> targets(sequence_length);
  source.Read(window_begin + 1, absl::MakeSpan(targets));
  return std::count_if(targets.begin(), targets.end(),
                       [&](int32_t target) { return Carries(target, ignore_target_ids); });
}

}  // namespace tessera
