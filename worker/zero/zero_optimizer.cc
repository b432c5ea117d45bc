#include "worker/zero/zero_optimizer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "kernels/fp32_copy.h"
#include "kernels/squared_norm.h"
#include "kernels/status_macros.h"

namespace tessera {

namespace {

// Elements from one array of a unit's state to the next. Where they would lie whole MiB apart, the
// update's streams take turns in the same places of the cache and the update takes twice as long
// (./dev bench kernels, 2^26 elements); 16 KiB more keep them apart.
int64_t StateStride(int64_t size) {
  constexpr int64_t kMebibyteElements = (1 << 20) / 4, kApartElements = (16 << 10) / 4;
  return size % kMebibyteElements == 0 ? size + kApartElements : size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZeroOptimizer>> ZeroOptimizer::Create(
    const ZeroOptimizerOptions& options, ZeroStore& store, const ZeroGroups& groups, Device& device,
    Stream& stream) {
  std::unique_ptr<ZeroOptimizer> optimizer(new ZeroOptimizer(options, store, groups, device));
  for (int unit = 0; unit < optimizer->num_units(); ++unit) {
    TESSERA_RETURN_IF_ERROR(optimizer->AddUnit(unit, stream));
  }
  size_t slots = 1;
  for (int unit = 0; unit < optimizer->num_units(); ++unit)
    slots += store.layout(unit).slots.size();
  optimizer->norms_.resize(slots);
  TESSERA_ASSIGN_OR_RETURN(optimizer->norm_buffer_,
                           device.Allocate(optimizer->norms_.size() * sizeof(float),
                                           MemoryCategory::kWorkspace, "gradient norms"));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  return optimizer;
}

absl::Status ZeroOptimizer::AddUnit(int unit, Stream& stream) {
  const int64_t size = held(unit).count;
  const int64_t stride = StateStride(size), arrays = has_master() ? 3 : 2;
  UnitState state;
  TESSERA_ASSIGN_OR_RETURN(state.buffer,
                           device_.Allocate(stride * arrays * DTypeSizeBytes(DType::kFloat32),
                                            MemoryCategory::kOptimizer,
                                            absl::StrCat("unit ", store_.units()[unit].name)));
  const Tensor all = state.buffer.View(DType::kFloat32, {stride * arrays});
  TESSERA_RETURN_IF_ERROR(device_.SetZero(all, stream));
  state.exp_avg = all.Slice(0, size);
  state.exp_avg_sq = all.Slice(stride, size);
  state.master =
      has_master() ? all.Slice(2 * stride, size) : store_.parameters().Held(unit, held(unit));
  states_.push_back(std::move(state));
  return absl::OkStatus();
}

ElementRange ZeroOptimizer::HeldOf(ParameterId id, int64_t begin, int64_t count) const {
  const ElementRange slot = store_.layout(id.unit).slot(id.index);
  return ElementRange{slot.begin + begin, count}.Intersect(held(id.unit));
}

Tensor ZeroOptimizer::StateOf(ParameterState state, int unit, const ElementRange& range) const {
  const UnitState& of = states_[unit];
  const Tensor& tensor = state == ParameterState::kMaster ? of.master : of.exp_avg;
  return tensor.Slice(range.begin - held(unit).begin, range.count);
}

absl::Status ZeroOptimizer::Read(ParameterState state, ParameterId id, int64_t begin,
                                 absl::Span<float> values, Stream& stream) const {
  const ElementRange here = HeldOf(id, begin, values.size());
  if (here.count == 0) return absl::OkStatus();
  const int64_t first = here.begin - store_.layout(id.unit).slot(id.index).begin - begin;
  return CopyOutFp32(StateOf(state, id.unit, here), values.subspan(first, here.count), stream);
}

absl::Status ZeroOptimizer::Write(ParameterId id, int64_t begin, absl::Span<const float> values,
                                  Stream& stream) {
  TESSERA_RETURN_IF_ERROR(store_.Write(id, begin, values, stream));
  const ElementRange here = HeldOf(id, begin, values.size());
  if (!has_master() || here.count == 0) return absl::OkStatus();
  const int64_t first = here.begin - store_.layout(id.unit).slot(id.index).begin - begin;
  return CopyInFp32(values.subspan(first, here.count),
                    StateOf(ParameterState::kMaster, id.unit, here), stream);
}

absl::StatusOr<double> ZeroOptimizer::SquareSum(const std::function<Piece(int unit)>& piece_of,
                                                Stream& stream) {
  std::vector<Tensor> counted;
  for (int unit = 0; unit < num_units(); ++unit) {
    const Piece piece = piece_of(unit);
    const UnitLayout& layout = store_.layout(unit);
    if (layout.counts_all()) {
      counted.push_back(piece.tensor);
      continue;
    }
    for (int i = 0; i < static_cast<int>(layout.slots.size()); ++i) {
      const ElementRange part = layout.slot(i).Intersect(piece.range);
      if (!layout.slots[i].is_counted || part.count == 0) continue;
      counted.push_back(piece.tensor.Slice(part.begin - piece.range.begin, part.count));
    }
  }
  const auto count = static_cast<int64_t>(counted.size());
  const Tensor sums = norm_buffer_.View(DType::kFloat32, {count});
  for (int64_t i = 0; i < count; ++i) {
    TESSERA_RETURN_IF_ERROR(SquaredNorm(counted[i], sums.Slice(i, 1), stream));
  }
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(sums, norms_.data(), sums.size_bytes(), stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += norms_[i];
  return total;
}

absl::StatusOr<float> ZeroOptimizer::SumOver(Communicator& group, float value, Stream& stream) {
  const Tensor total =
      norm_buffer_.View(DType::kFloat32, {1}, norm_buffer_.size_bytes() - sizeof(float));
  TESSERA_RETURN_IF_ERROR(device_.CopyIn(&value, sizeof(value), total, stream));
  TESSERA_RETURN_IF_ERROR(group.AllReduce(total, ReduceOp::kSum, stream));
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(total, &value, sizeof(value), stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  return value;
}

absl::Status ZeroOptimizer::ClipLocal(const StepInput& input, Stream& stream) {
  if (input.local_valid_targets == 0) return absl::OkStatus();  // contributes 0 as it is
  TESSERA_ASSIGN_OR_RETURN(
      double squares,
      SquareSum(
          [&](int unit) {
            return Piece{store_.layout(unit).whole(), store_.gradients().flat(unit)};
          },
          stream));
  for (Communicator* group : model_groups_) {
    TESSERA_ASSIGN_OR_RETURN(squares, SumOver(*group, static_cast<float>(squares), stream));
  }
  // The gradients hold the global divisor; the rank's own mean has its own.
  const double norm = std::sqrt(squares) / input.loss_scale *
                      static_cast<double>(input.global_valid_targets) /
                      static_cast<double>(input.local_valid_targets);
  if (norm <= options_.clip_norm) return absl::OkStatus();
  const float scale = static_cast<float>(options_.clip_norm / norm);
  for (int unit = 0; unit < num_units(); ++unit) {
    TESSERA_RETURN_IF_ERROR(Scale(store_.gradients().flat(unit), scale, stream));
  }
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::ReduceGradients(const StepInput& input, Stream& stream) {
  const bool clips = std::isfinite(options_.clip_norm);
  if (clips && options_.clip_before_reduce) TESSERA_RETURN_IF_ERROR(ClipLocal(input, stream));
  return store_.gradients().FinishReduction(stream);
}

absl::StatusOr<double> ZeroOptimizer::Step(const StepInput& input, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const double shard_squares,
                           SquareSum(
                               [&](int unit) {
                                 return Piece{store_.layout(unit).shard(zero_group_.group_rank()),
                                              store_.gradients().reduced(unit)};
                               },
                               stream));
  TESSERA_ASSIGN_OR_RETURN(float squares,
                           SumOver(zero_group_, static_cast<float>(shard_squares), stream));
  for (Communicator* group : model_groups_) {
    TESSERA_ASSIGN_OR_RETURN(squares, SumOver(*group, squares, stream));
  }
  const double norm = std::sqrt(static_cast<double>(squares)) / input.loss_scale;
  if (!std::isfinite(norm)) return norm;
  const bool clips = std::isfinite(options_.clip_norm) && !options_.clip_before_reduce;
  const bool over = clips && norm > options_.clip_norm;
  const double clip = over ? options_.clip_norm / norm : 1;
  TESSERA_RETURN_IF_ERROR(Update(input, clip / input.loss_scale, stream));
  return norm;
}

absl::Status ZeroOptimizer::Update(const StepInput& input, double gradient_scale, Stream& stream) {
  AdamWOptions adamw;
  adamw.learning_rate = input.learning_rate;
  adamw.beta1 = options_.beta1;
  adamw.beta2 = options_.beta2;
  adamw.epsilon = options_.epsilon;
  adamw.step = input.step;
  adamw.gradient_scale = gradient_scale;
  for (int unit = 0; unit < num_units(); ++unit) {
    TESSERA_RETURN_IF_ERROR(UpdateUnit(unit, adamw, stream));
  }
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::UpdateUnit(int unit, AdamWOptions adamw, Stream& stream) {
  // Stage 0 updates whole parameters, so it needs whole gradients.
  if (!is_sharded()) TESSERA_RETURN_IF_ERROR(store_.gradients().AllGather(unit, stream));
  const Tensor& gradients =
      is_sharded() ? store_.gradients().reduced(unit) : store_.gradients().flat(unit);
  const UnitLayout& layout = store_.layout(unit);
  const UnitState& state = states_[unit];
  const ElementRange here = held(unit);
  for (int i = 0; i < static_cast<int>(layout.slots.size()); ++i) {
    const ElementRange range = layout.slot(i).Intersect(here);
    if (range.count == 0) continue;
    auto part = [&](const Tensor& of) { return of.Slice(range.begin - here.begin, range.count); };
    adamw.weight_decay = layout.slots[i].decays ? options_.weight_decay : 0;
    if (has_master()) adamw.low_precision_parameter = store_.parameters().Held(unit, range);
    TESSERA_RETURN_IF_ERROR(AdamW(part(state.master), part(gradients), part(state.exp_avg),
                                  part(state.exp_avg_sq), adamw, stream));
  }
  if (!is_sharded() || store_.parameters().is_sharded(unit)) return absl::OkStatus();
  return zero_group_.AllGather(store_.parameters().Held(unit, here),
                               store_.parameters().tensor(unit), stream);
}

}  // namespace tessera
