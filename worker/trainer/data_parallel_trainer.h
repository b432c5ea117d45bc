// Data-parallel trainer: every rank holds the whole model and a share of each batch.
#ifndef TESSERA_WORKER_TRAINER_DATA_PARALLEL_TRAINER_H_
#define TESSERA_WORKER_TRAINER_DATA_PARALLEL_TRAINER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/data/sample_order.h"
#include "worker/model/generator.h"
#include "worker/model/transformer.h"
#include "worker/trainer/host_batch.h"
#include "worker/trainer/loss_scaler.h"
#include "worker/trainer/loss_total.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/training_config.h"
#include "worker/zero/zero_optimizer.h"
#include "worker/zero/zero_store.h"

namespace tessera {

// As Trainer.
class DataParallelTrainer : public Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainingConfig& config,
                                                         const MeshGroups& groups,
                                                         const JobData& data,
                                                         const WeightReader* weights,
                                                         Device& device);

  absl::Status Run(TrainingObserver& observer) override;
  absl::StatusOr<std::string> Sample(TrainingObserver& observer) override;
  absl::Status Export(const std::string& folder) override;
  absl::Status ExportAs(const std::string& folder, DType dtype) override;
  std::vector<ShardInfo> shards() const override;
  const ModelConfig& model() const override { return config_.model; }
  DType dtype() const override { return config_.dtype; }
  absl::Status ReadElements(absl::string_view name, int64_t begin,
                            absl::Span<float> values) const override;
  std::vector<std::string> parameter_names() const override;
  absl::StatusOr<std::vector<float>> ReadParameter(const std::string& name) const override;
  absl::Status WriteParameter(const std::string& name, const std::vector<float>& values) override;

 private:
  DataParallelTrainer(const TrainingConfig& config, const JobData& data, Device& device);
  absl::Status Allocate(const MeshGroups& groups);
  // Calls body(id, parameter, first element, values) for pieces of all parameters, forward order.
  template <typename Body>
  absl::Status ForPieces(const Body& body);
  absl::Status FillInitialWeights(const WeightReader* weights);

  // One step, 1-based; everything of the result but validation_loss.
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
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<TransformerActivations> activations_;
  std::unique_ptr<Generator> sampler_;     // of rank 0, if the spec asks for a sample
  std::unique_ptr<LossReducer> reducer_;   // over the zero group
  HostBatch batch_;                        // this rank's sequences of a step
  HostBatch evaluation_batch_;             // one micro-batch
  std::vector<float> losses_;              // of one micro-batch
  std::optional<LossScaler> loss_scaler_;  // fp16 only
  int64_t updates_ = 0;                    // steps that were not skipped
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_DATA_PARALLEL_TRAINER_H_
