// Trains one rank of a mesh: its chunks of the pipeline, its share of each layer, its part of each
// sequence and its share of each batch. One rank alone is the mesh of one.
#ifndef TESSERA_WORKER_TRAINER_MESH_TRAINER_H_
#define TESSERA_WORKER_TRAINER_MESH_TRAINER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/data/sample_order.h"
#include "worker/offload/rank_offload.h"
#include "worker/pipeline_parallel/pipeline_runner.h"
#include "worker/pipeline_parallel/transformer_stage.h"
#include "worker/trainer/gradient_sync.h"
#include "worker/trainer/host_batch.h"
#include "worker/trainer/loss_scaler.h"
#include "worker/trainer/loss_total.h"
#include "worker/trainer/mesh_sampler.h"
#include "worker/trainer/rank_state.h"
#include "worker/trainer/shared_weights.h"
#include "worker/trainer/step_traffic_meter.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/training_config.h"
#include "worker/zero/zero_optimizer.h"
#include "worker/zero/zero_store.h"

namespace tessera {

// As Trainer.
class MeshTrainer : public Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainingConfig& config,
                                                         const MeshGroups& groups,
                                                         const JobData& data,
                                                         const WeightReader* weights,
                                                         Device& device, const StateOptions& state);

  absl::Status Run(TrainingObserver& observer) override;
  std::optional<int64_t> suspended_step() const override { return suspended_step_; }
  absl::StatusOr<std::string> Sample(TrainingObserver& observer) override;
  absl::Status ShareWeights(const std::function<absl::Status()>& body) override;
  absl::Status Export(const std::string& folder) override;
  absl::Status ExportAs(const std::string& folder, DType dtype) override;
  std::vector<ShardInfo> shards() const override;
  int64_t momentary_bytes() const override { return momentary_bytes_; }
  int64_t peak_nvme_bytes() const override;
  const ModelConfig& model() const override { return config_.model; }
  DType dtype() const override { return config_.dtype; }
  absl::Status ReadElements(absl::string_view name, int64_t begin,
                            absl::Span<float> values) const override;
  std::vector<std::string> parameter_names() const override;
  absl::StatusOr<std::vector<float>> ReadParameter(const std::string& name) const override;
  absl::StatusOr<std::vector<float>> ReadExpAvg(const std::string& name) const override;
  absl::Status WriteParameter(const std::string& name, const std::vector<float>& values) override;
  absl::StatusOr<std::map<std::string, std::vector<float>>> ReadOwnParameters() const override;

 private:
  MeshTrainer(const TrainingConfig& config, const MeshGroups& groups, const JobData& data,
              Device& device);
  absl::Status Allocate(const StateOptions& state);
  absl::Status AllocateState(const StateOptions& state);
  absl::Status AllocateReducers();
  absl::Status AllocateStage();
  // Calls body(id, parameter, run, values) for pieces of what this rank holds, in forward order.
  absl::StatusOr<std::vector<float>> ReadState(StateArray array, const std::string& name) const;
  template <typename Body>
  absl::Status ForPieces(int unit, const Body& body);
  absl::Status FillInitialWeights(const WeightReader* weights);
  // Of the nvme tier, what the job left behind.
  absl::Status Resume(int64_t step);
  v1::SavedRank Record() const;

  // One step, 1-based; everything of the result but validation_loss.
  absl::StatusOr<StepResult> Step(int64_t step, TrainingObserver& observer);
  // Between two steps: global_rank 0 may want the weights, or the end of the run.
  absl::Status ServeWishes(int64_t step, TrainingObserver& observer);
  // Over all ranks.
  absl::StatusOr<int64_t> CountFailed(const absl::Status& own);
  // Sets suspended_step_, unless a rank fails.
  absl::Status Suspend(TrainingObserver& observer);
  // After the step that is traced: its actions from all stages to the first.
  absl::Status ShareTimeline(int64_t step, TrainingObserver& observer);
  // Mean loss over the validation windows, the same on every rank.
  absl::StatusOr<double> Evaluate(TrainingObserver& observer);
  // This rank's samples of a step (counted from 1) into batch_.
  void LoadStep(int64_t step);
  // Micro-batches of batch, whose losses are added to total.
  MicroBatchIo IoOf(HostBatch& batch, LossTotal& total) const;

  const TrainingConfig config_;
  const MeshGroups groups_;
  const JobData& data_;
  Device& device_;
  const SampleOrder order_;
  const std::vector<int32_t> positions_;  // of this rank's tokens in a sequence
  StepTrafficMeter traffic_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<RankOffload> offload_;
  std::unique_ptr<ZeroStore> store_;
  std::unique_ptr<ZeroOptimizer> optimizer_;
  std::unique_ptr<RankState> state_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<SharedWeights> shared_;
  std::unique_ptr<TransformerStage> stage_;
  std::unique_ptr<PipelineRunner> training_;
  std::unique_ptr<PipelineRunner> evaluation_;
  std::vector<plan::StageActions> actions_;  // of training, by pp_rank
  std::vector<MeasuredAction> measured_;     // of the step that is traced
  std::unique_ptr<MeshSampler> sampler_;   // if the spec asks for a sample and this rank takes part
  std::unique_ptr<LossReducer> counts_;    // over dp: cp, pp and tp see the same sequences
  std::unique_ptr<LossReducer> losses_;    // over zero and pp: the stage with the head has them
  std::unique_ptr<LossReducer> wishes_;    // over all ranks
  HostBatch batch_;                        // this rank's sequences of a step
  HostBatch evaluation_batch_;             // of one pass
  std::vector<DeviceBuffer> planted_;      // test builds only
  std::optional<LossScaler> loss_scaler_;  // fp16 only
  int64_t step_ = 0;                       // in progress
  int64_t completed_ = 0;                  // steps
  std::optional<int64_t> suspended_step_;
  bool forgets_saved_ = false;  // after the next step: where the run went on from
  int64_t updates_ = 0;         // steps that were not skipped
  int64_t momentary_bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_MESH_TRAINER_H_
