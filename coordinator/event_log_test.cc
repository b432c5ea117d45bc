#include "coordinator/event_log.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

JobEvent Event(int64_t revision, const std::string& name) {
  auto job = std::make_shared<v1::TrainingJob>();
  job->set_name(name);
  return {revision, job};
}

TEST(EventLog, ReadsEveryEventAfterARevisionInOrder) {
  EventLog log(10, 0);
  for (int64_t revision : {1, 2, 5}) log.Append(Event(revision, revision == 2 ? "b" : "a"));
  EXPECT_EQ(log.Next(0, "")->revision, 1);
  EXPECT_EQ(log.Next(1, "")->revision, 2);
  EXPECT_EQ(log.Next(1, "a")->revision, 5);
  EXPECT_EQ(log.Next(5, "")->job, nullptr);
  EXPECT_EQ(log.newest(), 5);
}

TEST(EventLog, WhatHasFallenOutIsOutOfRange) {
  EventLog log(2, 100);
  EXPECT_EQ(log.Next(99, "").status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(log.Next(101, "").status().code(), absl::StatusCode::kOutOfRange);  // the future
  EXPECT_EQ(log.Next(100, "")->job, nullptr);
  for (int64_t revision : {101, 102, 103}) log.Append(Event(revision, "a"));
  EXPECT_EQ(log.Next(100, "").status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(log.Next(101, "")->revision, 102);
}

TEST(EventLog, WakesSubscribersUntilTheyLeave) {
  EventLog log(2, 0);
  int woken = 0;
  const int64_t id = log.Subscribe([&] { ++woken; });
  log.Append(Event(1, "a"));
  log.Unsubscribe(id);
  log.Append(Event(2, "a"));
  EXPECT_EQ(woken, 1);
}

}  // namespace
}  // namespace tessera
