// Trainer of GPT-2, data-parallel: every rank holds the whole model and a share of each batch.
#ifndef TESSERA_WORKER_TRAINER_GPT2_TRAINER_H_
#define TESSERA_WORKER_TRAINER_GPT2_TRAINER_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/data/sample_order.h"
#include "worker/model/gpt2.h"
#include "worker/trainer/host_batch.h"
#include "worker/trainer/loss_total.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/training_config.h"
#include "worker/zero/zero_optimizer.h"
#include "worker/zero/zero_store.h"

namespace tessera {

// As Trainer.
class Gpt2Trainer : public Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainingConfig& config,
                                                         const MeshGroups& groups,
                                                         const JobData& data, Device& device);

  absl::Status Run(TrainingObserver& observer) override;
  absl::StatusOr<std::string> Sample(TrainingObserver& observer) override;
  std::vector<ShardInfo> shards() const override;
  std::vector<std::string> parameter_names() const override;
  absl::StatusOr<std::vector<float>> ReadParameter(const std::string& name) const override;
  absl::Status WriteParameter(const std::string& name, const std::vector<float>& values) override;

 private:
  Gpt2Trainer(const TrainingConfig& config, const JobData& data, Device& device);
  absl::Status Allocate(const MeshGroups& groups);

  // One optimizer step, 1-based; everything of the result but validation_loss.
  absl::StatusOr<StepResult> Step(int64_t step, TrainingObserver& observer);
  // Mean loss over the validation windows, the same on every rank.
  absl::StatusOr<double> Evaluate(TrainingObserver& observer);
  // This rank's samples of a step (counted from 1) into batch_.
  void LoadStep(int64_t step);
  // Sequences [first, first + micro_batch_size) of batch, through loss and, for training, backward;
  // their losses are added to total.
  absl::Status RunMicroBatch(const HostBatch& batch, int64_t first, float gradient_scale,
                             bool backward, LossTotal& total);

  const TrainingConfig config_;
  const JobData& data_;
  Device& device_;
  const SampleOrder order_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ZeroStore> store_;
  std::unique_ptr<ZeroOptimizer> optimizer_;
  std::unique_ptr<Gpt2> model_;
  std::unique_ptr<Gpt2Activations> activations_;
  std::unique_ptr<LossReducer> reducer_;  // over the zero group
  HostBatch batch_;                       // this rank's sequences of a step
  HostBatch evaluation_batch_;            // one micro-batch
  std::vector<float> losses_;             // of one micro-batch
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_GPT2_TRAINER_H_
