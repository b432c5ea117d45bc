#include "plan/layout_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "plan/sequence_split.h"
#include "plan/stage_partition.h"

namespace tessera::plan {
namespace {

// Remembers the first rule that does not hold.
class Rules {
 public:
  Rules& Require(bool holds, absl::string_view field, const absl::AlphaNum& value,
                 const std::string& rule) {
    if (!holds && !fault_) {
      fault_ = LayoutFault{std::string(field), std::string(value.Piece()), rule};
    }
    return *this;
  }
  const std::optional<LayoutFault>& fault() const { return fault_; }

 private:
  std::optional<LayoutFault> fault_;
};

// The rule of an error "field: value: rule" of another file of plan/, whose names are not those of
// the spec; empty if there is none.
std::string RuleOf(const absl::Status& status) {
  if (status.ok()) return "";
  const std::vector<std::string> parts = absl::StrSplit(status.message(), absl::MaxSplits(": ", 2));
  return absl::StrReplaceAll(parts.back(), {{"cp_size", "spec.mesh.cp"}});
}

bool DivideEitherWay(int64_t a, int64_t b) { return a % b == 0 || b % a == 0; }

void CheckTensorParallel(const LayoutRequest& request, Rules& rules) {
  const int tp = request.mesh.tp;
  const std::string mesh_tp = absl::StrCat("spec.mesh.tp (", tp, ")");
  rules
      .Require(request.heads % tp == 0, "spec.model.heads", request.heads,
               "must be a multiple of " + mesh_tp)
      .Require(DivideEitherWay(request.kv_heads, tp), "spec.model.kv_heads", request.kv_heads,
               "must be a multiple or a divisor of " + mesh_tp)
      .Require(request.intermediate_size % tp == 0, "spec.model.intermediate_size",
               request.intermediate_size, "must be a multiple of " + mesh_tp);
  if (!request.sequence_parallel) return;
  const int64_t tokens = request.micro_batch_size * request.sequence_length / request.mesh.cp;
  rules.Require(tokens % tp == 0, "spec.sequence_parallel", "true",
                absl::StrCat("the tokens of a micro-batch on a rank (", request.micro_batch_size,
                             " sequences of ", request.sequence_length / request.mesh.cp,
                             ") must be a multiple of ", mesh_tp));
}

void CheckContextParallel(const LayoutRequest& request, Rules& rules) {
  const int cp = request.mesh.cp, tp = request.mesh.tp;
  const absl::Status split = CheckSequenceSplit(cp, static_cast<int>(request.sequence_length));
  rules.Require(split.ok(), "spec.data.sequence_length", request.sequence_length, RuleOf(split));
  if (cp == 1 || !request.is_ulysses || rules.fault()) return;
  const int64_t kv_heads = std::max<int64_t>(1, request.kv_heads / tp);
  rules
      .Require(request.heads / tp % cp == 0, "spec.model.heads", request.heads,
               absl::StrCat("must be a multiple of spec.mesh.tp * spec.mesh.cp (", tp, " * ", cp,
                            ") with context_parallel ulysses"))
      .Require(DivideEitherWay(kv_heads, cp), "spec.model.kv_heads", request.kv_heads,
               absl::StrCat("gives each tp rank ", kv_heads,
                            ", which must be a multiple or a divisor of spec.mesh.cp (", cp,
                            ") with context_parallel ulysses"));
}

void CheckPipeline(const LayoutRequest& request, Rules& rules) {
  const ScheduleOptions& schedule = request.schedule;
  const bool is_interleaved = schedule.schedule == PipelineSchedule::kInterleaved1f1b;
  rules
      .Require(is_interleaved ? schedule.chunks >= 2 : schedule.chunks == 1, "spec.pipeline_chunks",
               schedule.chunks,
               is_interleaved ? "must be at least 2 with pipeline_schedule interleaved_1f1b"
                              : "must be 1 unless pipeline_schedule is interleaved_1f1b")
      .Require(!is_interleaved || schedule.stages >= 2, "spec.pipeline_schedule",
               PipelineScheduleName(schedule.schedule), "needs spec.mesh.pp of at least 2");
  if (rules.fault()) return;
  rules.Require(CheckSchedule(schedule).ok(), "spec.batch.micro_batches", schedule.micro_batches,
                absl::StrCat("spec.mesh.pp * spec.batch.micro_batches * spec.pipeline_chunks is "
                             "above ",
                             kMaxComputations));
  const int64_t chunks = int64_t{schedule.stages} * schedule.chunks;
  rules.Require(request.layers >= chunks, "spec.model.layers", request.layers,
                absl::StrCat("must be at least spec.mesh.pp * spec.pipeline_chunks (",
                             schedule.stages, " * ", schedule.chunks, ")"));
  if (rules.fault()) return;
  // Which layers balance does not decide whether they can be split.
  const absl::Status partition =
      PartitionStages(static_cast<int>(request.layers), schedule.stages, schedule.chunks,
                      request.chunk_layers, LayerCosts())
          .status();
  rules.Require(partition.ok(), "spec.chunk_layers", absl::StrJoin(request.chunk_layers, ", "),
                RuleOf(partition));
}

}  // namespace

std::optional<LayoutFault> CheckLayout(const LayoutRequest& request) {
  Rules rules;
  CheckContextParallel(request, rules);
  CheckTensorParallel(request, rules);
  CheckPipeline(request, rules);
  return rules.fault();
}

}  // namespace tessera::plan
