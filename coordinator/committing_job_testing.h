// A running job that commits every step, for tests of what becomes of it.
#ifndef TESSERA_COORDINATOR_COMMITTING_JOB_TESTING_H_
#define TESSERA_COORDINATOR_COMMITTING_JOB_TESTING_H_

#include <gtest/gtest.h>

#include <string>

#include "coordinator/controller_testing.h"

namespace tessera {

class CommittingJobTest : public ControllerTest {
 protected:
  // "a" is RUNNING on w0 and w1.
  void Run() {
    ASSERT_TRUE(Create(CommittingRequest("a", 2)).ok());
    w0_ = Attach("w0");
    w1_ = Attach("w1");
    Formed(w0_);
    Formed(w1_);
    ASSERT_EQ(State("a"), v1::JOB_STATE_RUNNING);
    uid_ = Job("a").uid();
  }
  // Its process is gone, and what the job does after that is settled.
  void Lose(const TestWorker& worker) {
    controller_->DetachWorker(worker.id);
    Advance(absl::Milliseconds(500));
  }
  void AskToStop(const TestWorker& worker) {
    v1::WorkerMessage stopping;
    stopping.mutable_stopping();
    controller_->HandleWorkerMessage(worker.id, stopping);
  }

  TestWorker w0_, w1_;
  std::string uid_;
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_COMMITTING_JOB_TESTING_H_
