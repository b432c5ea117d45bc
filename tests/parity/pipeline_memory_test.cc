// Activations that a pipeline's stages really hold, by the arena, against the formulas.
//
// Exactly: a stage's activations are its scratch, which micro-batches share, and one set of buffers
// for each micro-batch in flight, all taken before the first step. So a run with more micro-batches
// of the same size tells the bytes of one set, and what remains is scratch.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "plan/pipeline_formulas.h"
#include "tests/parity/mesh_cases.h"
#include "tests/parity/parity_harness.h"

namespace tessera {
namespace {

constexpr int kStages = 4, kMicroBatches = 8;

// Peak bytes of activations by stage; micro-batches of one sequence.
std::vector<int64_t> PeakActivations(v1::PipelineSchedule schedule, int micro_batches) {
  MeshCase row;
  row.pp = kStages;
  row.schedule = schedule;
  row.micro_batches = micro_batches;
  v1::TrainingJobSpec spec = MeshSpec(row);
  spec.mutable_batch()->set_global_batch_size(micro_batches);
  spec.set_steps(1);
  spec.mutable_evaluation()->set_every_steps(1);
  ParityOptions options;
  options.collect_parameters = false;
  const auto run = TrainInProcess(spec, MeshData(row), options);
  EXPECT_TRUE(run.ok()) << run.status();
  std::vector<int64_t> peaks(kStages);
  if (!run.ok()) return peaks;
  for (int stage = 0; stage < kStages; ++stage) {  // only pp: pp_rank is global_rank
    peaks[stage] =
        run->usages[stage].category[static_cast<int>(MemoryCategory::kActivations)].peak_bytes;
  }
  return peaks;
}

void PrintPeaks(const std::string& what, const std::vector<int64_t>& peaks) {
  std::cout << what << ": peak activation bytes by stage";
  for (const int64_t peak : peaks) std::cout << " " << peak;
  std::cout << std::endl;
}

TEST(PipelineMemory, OneForwardOneBackwardHoldsFewerMicroBatchesThanGpipe) {
  const plan::ScheduleOptions one{plan::PipelineSchedule::k1f1b, kStages, kMicroBatches, 1};
  const std::vector<int64_t> gpipe = PeakActivations(v1::PIPELINE_SCHEDULE_GPIPE, kMicroBatches);
  const std::vector<int64_t> half = PeakActivations(v1::PIPELINE_SCHEDULE_GPIPE, kMicroBatches / 2);
  const std::vector<int64_t> naive = PeakActivations(v1::PIPELINE_SCHEDULE_NAIVE, kMicroBatches);
  const std::vector<int64_t> one_f_one_b =
      PeakActivations(v1::PIPELINE_SCHEDULE_1F1B, kMicroBatches);
  PrintPeaks("gpipe", gpipe);
  PrintPeaks("1f1b", one_f_one_b);
  for (int stage = 0; stage < kStages; ++stage) {
    SCOPED_TRACE(stage);
    const int64_t more = gpipe[stage] - half[stage];  // of m/2 micro-batches
    EXPECT_GT(more, 0);
    EXPECT_EQ(more % (kMicroBatches / 2), 0);
    const int64_t each = more / (kMicroBatches / 2);
    const int64_t scratch = gpipe[stage] - kMicroBatches * each;
    EXPECT_GE(scratch, 0);
    EXPECT_EQ(naive[stage], gpipe[stage]);  // m too
    const int in_flight = plan::PeakInFlightFormula(one, stage);
    EXPECT_EQ(in_flight, kStages - stage);  // min(m, p - i)
    EXPECT_EQ(one_f_one_b[stage], scratch + in_flight * each);
  }
}

// Its weight gradients trail, so that every stage keeps min(m, p).
TEST(PipelineMemory, ZeroBubbleHoldsAsMuchOnEveryStageAsTheFirst) {
  std::vector<std::vector<int64_t>> peaks;
  for (const int micro_batches : {1, 2, kMicroBatches}) {
    peaks.push_back(PeakActivations(v1::PIPELINE_SCHEDULE_ZERO_BUBBLE_H1, micro_batches));
  }
  PrintPeaks("zero_bubble_h1", peaks.back());
  for (int stage = 0; stage < kStages; ++stage) {
    SCOPED_TRACE(stage);
    const plan::ScheduleOptions options{plan::PipelineSchedule::kZeroBubbleH1, kStages,
                                        kMicroBatches, 1};
    const int in_flight = plan::PeakInFlightForWeightsFormula(options, stage);
    EXPECT_EQ(in_flight, kStages);
    const int64_t each = peaks[1][stage] - peaks[0][stage];
    EXPECT_GT(each, 0);
    EXPECT_EQ(peaks[2][stage], peaks[0][stage] + (in_flight - 1) * each);
  }
}

}  // namespace
}  // namespace tessera
