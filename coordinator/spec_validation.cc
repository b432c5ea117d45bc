#include "coordinator/spec_validation.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/offload_validation.h"
#include "coordinator/spec_check.h"
#include "coordinator/spec_layout.h"
#include "plan/layout_check.h"
#include "plan/mesh.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using Check = SpecCheck;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxTokensPerRank = int64_t{1} << 27;

// What only the llama family has.
void CheckLlama(const v1::ModelSpec& model, Check& check) {
  check.Require(model.has_intermediate_size(), "spec.model.intermediate_size", "",
                "required for family llama");
  if (model.has_kv_heads()) {
    check.Range(model.kv_heads(), 1, model.heads(), "spec.model.kv_heads");
    check.Require(model.kv_heads() < 1 || model.heads() % model.kv_heads() == 0,
                  "spec.model.kv_heads", model.kv_heads(),
                  absl::StrCat("must divide spec.model.heads (", model.heads(), ")"));
  }
  if (model.has_head_size()) check.Range(model.head_size(), 2, 65536, "spec.model.head_size");
  const int64_t head_size = model.has_head_size() || model.heads() < 1
                                ? model.head_size()
                                : model.hidden_size() / model.heads();
  check.Require(head_size % 2 == 0, "spec.model.head_size", head_size,
                "must be even: rotary positions pair its channels");
  if (model.has_rope_theta()) check.Positive(model.rope_theta(), "spec.model.rope_theta");
  if (!model.has_rope_scaling()) return;
  const v1::RopeScaling& scaling = model.rope_scaling();
  const double low = scaling.has_low_freq_factor() ? scaling.low_freq_factor() : 1;
  const double high = scaling.has_high_freq_factor() ? scaling.high_freq_factor() : 4;
  check.Require(scaling.factor() >= 1 && std::isfinite(scaling.factor()),
                "spec.model.rope_scaling.factor", scaling.factor(),
                "must be a finite number of at least 1");
  check.Positive(low, "spec.model.rope_scaling.low_freq_factor");
  check.Require(high > low && std::isfinite(high), "spec.model.rope_scaling.high_freq_factor", high,
                absl::StrCat("must be a finite number above low_freq_factor (", low, ")"));
  check.Range(scaling.original_context_length(), 1, 1 << 20,
              "spec.model.rope_scaling.original_context_length");
}

void CheckNotLlama(const v1::ModelSpec& model, Check& check) {
  constexpr absl::string_view kRule = "only for family llama";
  check.Require(!model.has_kv_heads(), "spec.model.kv_heads", model.kv_heads(), kRule);
  check.Require(!model.has_head_size(), "spec.model.head_size", model.head_size(), kRule);
  check.Require(!model.attention_bias(), "spec.model.attention_bias", "true", kRule);
  check.Require(!model.has_rope_theta(), "spec.model.rope_theta", model.rope_theta(), kRule);
  check.Require(!model.has_rope_scaling(), "spec.model.rope_scaling", "", kRule);
}

void CheckModel(const v1::ModelSpec& model, Check& check) {
  check.Enumerated(model.family(), v1::ModelFamily_IsValid(model.family()), "spec.model.family");
  check.Require(model.family() != v1::MODEL_FAMILY_UNSPECIFIED, "spec.model.family", "",
                "required");
  check.Range(model.vocab_size(), 2, 1 << 24, "spec.model.vocab_size");
  check.Range(model.context_length(), 1, 1 << 20, "spec.model.context_length");
  check.Range(model.layers(), 1, 1024, "spec.model.layers");
  check.Range(model.heads(), 1, 65536, "spec.model.heads");
  check.Range(model.hidden_size(), 1, 65536, "spec.model.hidden_size");
  check.Require(
      model.has_head_size() || model.heads() < 1 || model.hidden_size() % model.heads() == 0,
      "spec.model.hidden_size", model.hidden_size(),
      absl::StrCat("must be a multiple of spec.model.heads (", model.heads(), ")"));
  if (model.has_intermediate_size()) {
    check.Range(model.intermediate_size(), 1, 1 << 20, "spec.model.intermediate_size");
  }
  if (model.has_norm_epsilon()) check.Positive(model.norm_epsilon(), "spec.model.norm_epsilon");
  if (model.has_initializer_range()) {
    check.Positive(model.initializer_range(), "spec.model.initializer_range");
  }
  check.HalfOpen(model.dropout(), 0, 1, "spec.model.dropout");
  if (model.family() == v1::MODEL_FAMILY_LLAMA) {
    CheckLlama(model, check);
  } else {
    CheckNotLlama(model, check);
  }
}

// root: what the path is relative to.
void CheckPath(const std::string& path, absl::string_view field, absl::string_view root,
               Check& check) {
  check.Require(!path.empty(), field, "", "required");
  check.Require(!absl::StrContains(path, '\0') && path.size() <= 4096, field, path.substr(0, 80),
                "must be a file name of at most 4096 bytes without NUL");
  check.Require(!absl::StartsWith(path, "/"), field, path,
                absl::StrCat("must be relative to the workers' ", root, " root"));
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    check.Require(part != "..", field, path, "must not contain \"..\"");
  }
}

void CheckData(const v1::TrainingJobSpec& spec, Check& check) {
  const v1::DataSpec& data = spec.data();
  CheckPath(data.path(), "spec.data.path", "data", check);
  check.Enumerated(data.format(), v1::DataFormat_IsValid(data.format()), "spec.data.format");
  check.Require(data.format() != v1::DATA_FORMAT_UNSPECIFIED, "spec.data.format", "", "required");
  if (!data.validation_path().empty()) {
    CheckPath(data.validation_path(), "spec.data.validation_path", "data", check);
  }
  if (!data.tokenizer().empty()) {
    CheckPath(data.tokenizer(), "spec.data.tokenizer", "data", check);
    check.Require(data.format() == v1::DATA_FORMAT_TEXT || data.format() == v1::DATA_FORMAT_JSONL,
                  "spec.data.tokenizer", data.tokenizer(), "needs spec.data.format text or jsonl");
  }
  if (!data.text_field().empty()) {
    check.Require(data.format() == v1::DATA_FORMAT_JSONL, "spec.data.text_field", data.text_field(),
                  "needs spec.data.format jsonl");
    check.Require(data.text_field().size() <= 256, "spec.data.text_field",
                  data.text_field().substr(0, 80), "must be at most 256 bytes");
  }
  check.Require(!spec.has_evaluation() || !data.validation_path().empty(),
                "spec.data.validation_path", "", "required when spec.evaluation is given");
  check.Require(
      data.sequence_length() >= 1 && data.sequence_length() <= spec.model().context_length(),
      "spec.data.sequence_length", data.sequence_length(),
      absl::StrCat("must be 1 .. spec.model.context_length (", spec.model().context_length(), ")"));
  for (int32_t id : data.ignore_target_ids()) {
    check.Require(id >= 0 && id < spec.model().vocab_size(), "spec.data.ignore_target_ids", id,
                  absl::StrCat("must be 0 .. spec.model.vocab_size - 1 (",
                               spec.model().vocab_size() - 1, ")"));
  }
}

void CheckOptimizer(const v1::OptimizerSpec& optimizer, Check& check) {
  check.HalfOpen(optimizer.has_beta1() ? optimizer.beta1() : 0, 0, 1, "spec.optimizer.beta1");
  check.HalfOpen(optimizer.has_beta2() ? optimizer.beta2() : 0, 0, 1, "spec.optimizer.beta2");
  if (optimizer.has_epsilon()) check.Positive(optimizer.epsilon(), "spec.optimizer.epsilon");
  if (optimizer.has_weight_decay()) {
    check.Require(optimizer.weight_decay() >= 0 && std::isfinite(optimizer.weight_decay()),
                  "spec.optimizer.weight_decay", optimizer.weight_decay(),
                  "must be a finite number of at least 0");
  }
  if (optimizer.has_gradient_clip_norm()) {
    check.Require(optimizer.gradient_clip_norm() > 0, "spec.optimizer.gradient_clip_norm",
                  optimizer.gradient_clip_norm(), "must be positive (.inf switches clipping off)");
  }
  check.Enumerated(optimizer.gradient_clipping(),
                   v1::GradientClipping_IsValid(optimizer.gradient_clipping()),
                   "spec.optimizer.gradient_clipping");
}

void CheckLearningRate(const v1::TrainingJobSpec& spec, Check& check) {
  const v1::LearningRateSpec& rate = spec.learning_rate();
  check.Positive(rate.peak(), "spec.learning_rate.peak");
  if (rate.has_final()) {
    check.Require(rate.final() >= 0 && rate.final() <= rate.peak(), "spec.learning_rate.final",
                  rate.final(), "must be at least 0 and at most spec.learning_rate.peak");
  }
  check.Require(rate.warmup_steps() >= 0 && rate.warmup_steps() <= spec.steps(),
                "spec.learning_rate.warmup_steps", rate.warmup_steps(), "must be 0 .. spec.steps");
  check.Enumerated(rate.decay(), v1::LearningRateDecay_IsValid(rate.decay()),
                   "spec.learning_rate.decay");
}

void CheckPrecision(const v1::TrainingJobSpec& spec, Check& check) {
  check.Enumerated(spec.precision(), v1::Precision_IsValid(spec.precision()), "spec.precision");
  check.Enumerated(spec.gradient_precision(), v1::Precision_IsValid(spec.gradient_precision()),
                   "spec.gradient_precision");
  const bool is_allowed = spec.gradient_precision() == spec.precision() ||
                          spec.gradient_precision() == v1::PRECISION_FP32 ||
                          spec.gradient_precision() == v1::PRECISION_UNSPECIFIED;
  check.Require(is_allowed, "spec.gradient_precision",
                v1::Precision_Name(spec.gradient_precision()),
                "must be fp32 or the same as spec.precision");
  if (!spec.has_loss_scale()) return;
  const v1::LossScaleSpec& scale = spec.loss_scale();
  check.Require(spec.precision() == v1::PRECISION_FP16, "spec.loss_scale", "",
                "only with spec.precision fp16");
  const double initial = scale.has_initial() ? scale.initial() : 65536;
  check.Require(initial > 0 && initial <= 0x1p+40, "spec.loss_scale.initial", initial,
                "must be more than 0 and at most 2^40");
  if (scale.has_growth_interval()) {
    check.Range(scale.growth_interval(), 1, kMaxInt32, "spec.loss_scale.growth_interval");
  }
  if (scale.has_hysteresis()) {
    check.Range(scale.hysteresis(), 1, kMaxInt32, "spec.loss_scale.hysteresis");
  }
  const double minimum = scale.has_minimum() ? scale.minimum() : 1;
  check.Require(
      minimum > 0 && minimum <= initial, "spec.loss_scale.minimum", minimum,
      absl::StrCat("must be more than 0 and at most spec.loss_scale.initial (", initial, ")"));
}

void CheckRecompute(const v1::TrainingJobSpec& spec, Check& check) {
  check.Enumerated(spec.recompute(), v1::Recompute_IsValid(spec.recompute()), "spec.recompute");
  if (!spec.has_recompute_layers()) return;
  const v1::LayerRange& layers = spec.recompute_layers();
  const int64_t count = spec.model().layers();
  check.Range(layers.first(), 0, count - 1, "spec.recompute_layers.first");
  check.Range(layers.count(), 1, count - layers.first(), "spec.recompute_layers.count");
}

void CheckLayout(const v1::TrainingJobSpec& spec, Check& check) {
  CheckPrecision(spec, check);
  const plan::MeshSize mesh = MeshOf(spec.mesh());
  const absl::Status mesh_status = plan::CheckMesh(mesh);
  check.Require(mesh_status.ok(), "spec.mesh",
                absl::StrCat("dp=", mesh.dp, " cp=", mesh.cp, " pp=", mesh.pp, " tp=", mesh.tp),
                mesh_status.message());
  check.Range(spec.zero_stage(), 0, 3, "spec.zero_stage");
  check.Enumerated(spec.gradient_reduction(),
                   v1::GradientReduction_IsValid(spec.gradient_reduction()),
                   "spec.gradient_reduction");
  check.Require(spec.gradient_reduction() != v1::GRADIENT_REDUCTION_PER_MICRO_BATCH ||
                    spec.optimizer().gradient_clipping() != v1::GRADIENT_CLIPPING_BEFORE_REDUCE,
                "spec.gradient_reduction", "per_micro_batch",
                "once with spec.optimizer.gradient_clipping before_reduce");
  check.Require(!spec.has_parameter_gather() || spec.zero_stage() == 3, "spec.parameter_gather", "",
                "only with spec.zero_stage 3");
  check.Range(spec.parameter_gather().prefetch_units(), 0, 64,
              "spec.parameter_gather.prefetch_units");
  check.Range(spec.parameter_gather().resident_parameters(), 0, std::numeric_limits<int64_t>::max(),
              "spec.parameter_gather.resident_parameters");
  const int64_t micro_batches = spec.batch().has_micro_batches() ? spec.batch().micro_batches() : 1;
  check.Range(spec.batch().global_batch_size(), 1, 1 << 24, "spec.batch.global_batch_size");
  check.Range(micro_batches, 1, 1 << 24, "spec.batch.micro_batches");
  if (check.status().ok()) {
    const int64_t divisor = int64_t{mesh.dp} * micro_batches;
    check.Require(spec.batch().global_batch_size() % divisor == 0, "spec.batch.global_batch_size",
                  spec.batch().global_batch_size(),
                  absl::StrCat("must be a multiple of spec.mesh.dp * spec.batch.micro_batches (",
                               mesh.dp, " * ", micro_batches, " = ", divisor, ")"));
    // The token ids of a rank's step are held in host memory: 1 GiB at this limit.
    const int64_t tokens =
        spec.batch().global_batch_size() / mesh.dp * int64_t{spec.data().sequence_length()};
    check.Require(
        tokens <= kMaxTokensPerRank, "spec.batch.global_batch_size",
        spec.batch().global_batch_size(),
        absl::StrCat("gives each rank ", tokens, " tokens a step, more than ", kMaxTokensPerRank));
  }
}

void CheckRun(const v1::TrainingJobSpec& spec, Check& check) {
  check.Range(spec.steps(), 1, int64_t{1} << 40, "spec.steps");
  if (spec.has_evaluation()) {
    check.Require(spec.evaluation().every_steps() >= 1, "spec.evaluation.every_steps",
                  spec.evaluation().every_steps(), "must be at least 1");
    if (spec.evaluation().has_sequences()) {
      check.Require(spec.evaluation().sequences() >= 1, "spec.evaluation.sequences",
                    spec.evaluation().sequences(), "must be at least 1");
    }
  }
  if (spec.has_sample()) {
    check.Require(!spec.sample().prompt().empty(), "spec.sample.prompt", "", "required");
    check.Require(spec.data().format() == v1::DATA_FORMAT_TEXT && spec.data().tokenizer().empty(),
                  "spec.sample", "", "needs spec.data.format text without spec.data.tokenizer");
    check.Range(spec.sample().max_new_tokens(), 1, 65536, "spec.sample.max_new_tokens");
    if (spec.sample().has_temperature()) {
      check.Require(spec.sample().temperature() >= 0 && std::isfinite(spec.sample().temperature()),
                    "spec.sample.temperature", spec.sample().temperature(),
                    "must be a finite number of at least 0");
    }
    check.Range(spec.sample().top_k(), 0, kMaxInt32, "spec.sample.top_k");
    if (spec.sample().has_top_p()) {
      check.Require(spec.sample().top_p() > 0 && spec.sample().top_p() <= 1, "spec.sample.top_p",
                    spec.sample().top_p(), "must be above 0 and at most 1");
    }
    for (const char c : spec.sample().prompt()) {
      const int id = static_cast<unsigned char>(c);
      check.Require(id < spec.model().vocab_size(), "spec.sample.prompt", id,
                    absl::StrCat("must be bytes below spec.model.vocab_size (",
                                 spec.model().vocab_size(), ")"));
    }
  }
  constexpr absl::string_view kNotVerified = "must be absent with spec.verification";
  const bool verifies = spec.has_verification();
  check.Require(!verifies || !spec.has_evaluation(), "spec.evaluation", "", kNotVerified);
  check.Require(!verifies || !spec.has_sample(), "spec.sample", "", kNotVerified);
  check.Require(!verifies || !spec.has_export_(), "spec.export", "", kNotVerified);
  check.Require(!verifies || !spec.has_trace(), "spec.trace", "", kNotVerified);
  CheckRecompute(spec, check);
  CheckOffload(spec, check);
  check.Range(spec.priority(), -1000, 1000, "spec.priority");
  if (!spec.initial_weights().empty()) {
    CheckPath(spec.initial_weights(), "spec.initial_weights", "data", check);
  }
  if (spec.has_trace()) {
    check.Range(spec.trace().step(), 1, spec.steps(), "spec.trace.step");
    CheckPath(spec.trace().path(), "spec.trace.path", "export", check);
  }
  if (spec.has_export_()) {
    CheckPath(spec.export_().path(), "spec.export.path", "export", check);
    check.Enumerated(spec.export_().precision(), v1::Precision_IsValid(spec.export_().precision()),
                     "spec.export.precision");
  }
  check.Enumerated(spec.pipeline_schedule(), v1::PipelineSchedule_IsValid(spec.pipeline_schedule()),
                   "spec.pipeline_schedule");
  check.Enumerated(spec.context_parallel(),
                   v1::ContextParallelKind_IsValid(spec.context_parallel()),
                   "spec.context_parallel");
  if (spec.has_pipeline_chunks()) {
    check.Range(spec.pipeline_chunks(), 1, 1024, "spec.pipeline_chunks");
  }
}

// What the model and the mesh must have in common. REQUIRES: all other rules hold.
void CheckSplit(const v1::TrainingJobSpec& spec, Check& check) {
  const std::optional<plan::LayoutFault> fault = plan::CheckLayout(LayoutOf(spec));
  if (fault) check.Require(false, fault->field, fault->value, fault->rule);
}

void CheckSupported(const v1::TrainingJobSpec& spec, Check& check) {
  check.Support(spec.model().dropout() == 0, "spec.model.dropout", spec.model().dropout(),
                "0 only");
  const bool clips_before =
      spec.optimizer().gradient_clipping() == v1::GRADIENT_CLIPPING_BEFORE_REDUCE;
  check.Support(!clips_before || MeshOf(spec.mesh()).cp == 1, "spec.optimizer.gradient_clipping",
                "before_reduce", "after_reduce only where spec.mesh.cp is above 1");
  CheckOffloadSupported(spec, check);
}

}  // namespace

absl::Status ValidateSpec(const v1::TrainingJobSpec& spec) {
  Check check;
  check.Require(spec.has_model(), "spec.model", "", "required");
  check.Require(spec.has_data(), "spec.data", "", "required");
  check.Require(spec.has_learning_rate(), "spec.learning_rate", "", "required");
  check.Require(spec.has_batch(), "spec.batch", "", "required");
  CheckModel(spec.model(), check);
  CheckData(spec, check);
  CheckOptimizer(spec.optimizer(), check);
  CheckLayout(spec, check);
  CheckRun(spec, check);
  CheckLearningRate(spec, check);
  if (check.status().ok()) CheckSplit(spec, check);
  if (check.status().ok()) CheckSupported(spec, check);
  return check.status();
}

}  // namespace tessera
