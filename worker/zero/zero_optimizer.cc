#include "worker/zero/zero_optimizer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/elementwise.h"
#include "kernels/fp32_copy.h"
#include "kernels/squared_norm.h"
#include "kernels/status_macros.h"
#include "plan/unit_sizes.h"
#include "worker/offload/host_view.h"

namespace tessera {
namespace {

// Weights of any element type = the fp32 master.
absl::Status CopyMaster(const Tensor& master, const Tensor& parameters, Stream& stream) {
  if (parameters.dtype() != DType::kFloat32) return Cast(master, parameters, stream);
  return stream.device().Copy(master, parameters, stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZeroOptimizer>> ZeroOptimizer::Create(
    const ZeroOptimizerOptions& options, ZeroStore& store, const ZeroGroups& groups, Device& device,
    Stream& stream) {
  std::unique_ptr<ZeroOptimizer> optimizer(new ZeroOptimizer(options, store, groups, device));
  if (Device* host = store.tiers().host; host != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(optimizer->host_stream_, host->CreateStream());
  }
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
  const std::string& name = store_.units()[unit].name;
  UnitState& state = states_.emplace_back();
  if (is_offloaded(unit)) return offload_.tier->AddUnit(unit, name, held(unit).begin, size);
  const int64_t stride = plan::StateStrideElements(size), arrays = has_master() ? 3 : 2;
  TESSERA_ASSIGN_OR_RETURN(
      state.buffer, device_.Allocate(stride * arrays * DTypeSizeBytes(DType::kFloat32),
                                     MemoryCategory::kOptimizer, absl::StrCat("unit ", name)));
  const Tensor all = state.buffer.View(DType::kFloat32, {stride * arrays});
  TESSERA_RETURN_IF_ERROR(device_.SetZero(all, stream));
  state.whole = {0, size, has_master() ? all.Slice(2 * stride, size) : HeldParameters(unit),
                 all.Slice(0, size), all.Slice(stride, size)};
  return absl::OkStatus();
}

ElementRange ZeroOptimizer::HeldOf(ParameterId id, int64_t begin, int64_t count) const {
  const ElementRange slot = store_.layout(id.unit).slot(id.index);
  return ElementRange{slot.begin + begin, count}.Intersect(held(id.unit));
}

absl::Status ZeroOptimizer::Read(StateArray array, ParameterId id, int64_t begin,
                                 absl::Span<float> values, Stream& stream) const {
  const ElementRange here = HeldOf(id, begin, values.size());
  if (here.count == 0) return absl::OkStatus();
  const int64_t first = here.begin - store_.layout(id.unit).slot(id.index).begin - begin;
  const int64_t in_held = here.begin - held(id.unit).begin;
  values = values.subspan(first, here.count);
  if (is_offloaded(id.unit)) return offload_.tier->Read(array, id.unit, in_held, values);
  return CopyOutFp32(states_[id.unit].whole.of(array).Slice(in_held, here.count), values, stream);
}

absl::Status ZeroOptimizer::Write(ParameterId id, int64_t begin, absl::Span<const float> values,
                                  Stream& stream) {
  TESSERA_RETURN_IF_ERROR(store_.Write(id, begin, values, stream));
  const ElementRange here = HeldOf(id, begin, values.size());
  if (here.count == 0) return absl::OkStatus();
  const int64_t first = here.begin - store_.layout(id.unit).slot(id.index).begin - begin;
  const int64_t in_held = here.begin - held(id.unit).begin;
  values = values.subspan(first, here.count);
  if (is_offloaded(id.unit)) return offload_.tier->WriteMaster(id.unit, in_held, values);
  if (!has_master()) return absl::OkStatus();
  return CopyInFp32(values, states_[id.unit].whole.master.Slice(in_held, here.count), stream);
}

absl::Status ZeroOptimizer::VisitState(int unit, int64_t piece_elements,
                                       absl::FunctionRef<absl::Status(const StatePiece&)> visit) {
  auto by_pieces = [&](const StatePiece& all) -> absl::Status {
    for (int64_t begin = 0; begin < all.count; begin += piece_elements) {
      const int64_t count = std::min(piece_elements, all.count - begin);
      auto part = [&](const Tensor& of) { return of.Slice(begin, count); };
      TESSERA_RETURN_IF_ERROR(visit(
          {all.begin + begin, count, part(all.master), part(all.exp_avg), part(all.exp_avg_sq)}));
    }
    return absl::OkStatus();
  };
  if (!is_offloaded(unit)) return by_pieces(states_[unit].whole);
  return offload_.tier->Visit(unit, Access::kUpdate, by_pieces);
}

absl::Status ZeroOptimizer::RestoreParameters(int unit, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(store_.parameters().BeginUpdate(unit, /*keep=*/false, stream));
  const Tensor parameters = HeldParameters(unit);
  if (is_offloaded(unit)) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor on_host, HostView(parameters, *store_.tiers().host));
    TESSERA_RETURN_IF_ERROR(offload_.tier->Visit(unit, Access::kRead, [&](const StatePiece& piece) {
      return CopyMaster(piece.master, on_host.Slice(piece.begin, piece.count), *host_stream_);
    }));
  } else if (has_master()) {
    TESSERA_RETURN_IF_ERROR(CopyMaster(states_[unit].whole.master, parameters, stream));
  }
  TESSERA_RETURN_IF_ERROR(GatherParameters(unit, stream));
  return store_.parameters().EndUpdate(unit, stream);
}

absl::StatusOr<int64_t> ZeroOptimizer::StartSquareSums(int unit, const Piece& piece, int64_t first,
                                                       Stream& stream) {
  int64_t sums = 0;
  auto start = [&](const Tensor& counted) {
    const Tensor sum = norm_buffer_.View(DType::kFloat32, {1}, (first + sums++) * sizeof(float));
    return SquaredNorm(counted, sum, stream);
  };
  const UnitLayout& layout = store_.layout(unit);
  if (layout.counts_all()) {
    TESSERA_RETURN_IF_ERROR(start(piece.tensor));
    return sums;
  }
  for (int i = 0; i < static_cast<int>(layout.slots.size()); ++i) {
    const ElementRange part = layout.slot(i).Intersect(piece.range);
    if (!layout.slots[i].is_counted || part.count == 0) continue;
    TESSERA_RETURN_IF_ERROR(start(piece.tensor.Slice(part.begin - piece.range.begin, part.count)));
  }
  return sums;
}

absl::StatusOr<double> ZeroOptimizer::FinishSquareSums(int64_t count, Stream& stream) {
  const Tensor sums = norm_buffer_.View(DType::kFloat32, {count});
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(sums, norms_.data(), sums.size_bytes(), stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += norms_[i];
  return total;
}

absl::StatusOr<double> ZeroOptimizer::ShardSquareSum(Stream& stream) {
  int64_t count = 0;
  for (int unit = 0; unit < num_units(); ++unit) {
    Piece piece;
    piece.range = store_.layout(unit).shard(zero_group_.group_rank());
    TESSERA_ASSIGN_OR_RETURN(piece.tensor, store_.gradients().AcquireReduced(unit, stream));
    TESSERA_ASSIGN_OR_RETURN(const int64_t sums, StartSquareSums(unit, piece, count, stream));
    count += sums;
    if (store_.gradients().is_offloaded(unit)) TESSERA_RETURN_IF_ERROR(stream.Synchronize());
    TESSERA_RETURN_IF_ERROR(store_.gradients().ReleaseReduced(unit, /*is_changed=*/false, stream));
  }
  return FinishSquareSums(count, stream);
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
  int64_t count = 0;
  for (int unit = 0; unit < num_units(); ++unit) {
    const Piece piece{store_.layout(unit).whole(), store_.gradients().flat(unit)};
    TESSERA_ASSIGN_OR_RETURN(const int64_t sums, StartSquareSums(unit, piece, count, stream));
    count += sums;
  }
  TESSERA_ASSIGN_OR_RETURN(double squares, FinishSquareSums(count, stream));
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
  TESSERA_ASSIGN_OR_RETURN(const double shard_squares, ShardSquareSum(stream));
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
  if (hooks_.before_update) TESSERA_RETURN_IF_ERROR(hooks_.before_update());
  if (offload_.tier != nullptr) TESSERA_RETURN_IF_ERROR(offload_.tier->StartPass());
  for (int unit = 0; unit < num_units(); ++unit) {
    TESSERA_RETURN_IF_ERROR(UpdateUnit(unit, adamw, stream));
    if (hooks_.after_unit) TESSERA_RETURN_IF_ERROR(hooks_.after_unit(unit));
  }
  return offload_.tier == nullptr ? absl::OkStatus() : offload_.tier->FinishPass();
}

absl::Status ZeroOptimizer::UpdateUnit(int unit, const AdamWOptions& adamw, Stream& stream) {
  GradientShards& shards = store_.gradients();
  // Stage 0 updates whole parameters, so it needs whole gradients.
  TESSERA_ASSIGN_OR_RETURN(const Tensor gradients, is_sharded()
                                                       ? shards.AcquireReduced(unit, stream)
                                                       : shards.AcquireWholeSum(unit, stream));
  TESSERA_RETURN_IF_ERROR(store_.parameters().BeginUpdate(unit, /*keep=*/false, stream));
  const Tensor parameters = HeldParameters(unit);
  if (is_offloaded(unit)) {
    Device& host = *store_.tiers().host;
    TESSERA_ASSIGN_OR_RETURN(const Tensor host_gradients, HostView(gradients, host));
    TESSERA_ASSIGN_OR_RETURN(const Tensor host_parameters, HostView(parameters, host));
    TESSERA_RETURN_IF_ERROR(stream.Synchronize());
    TESSERA_RETURN_IF_ERROR(
        offload_.tier->Visit(unit, Access::kUpdate, [&](const StatePiece& piece) {
          return UpdatePiece(unit, piece, host_gradients, host_parameters, adamw, *host_stream_);
        }));
  } else {
    TESSERA_RETURN_IF_ERROR(
        UpdatePiece(unit, states_[unit].whole, gradients, parameters, adamw, stream));
  }
  if (is_sharded()) {
    TESSERA_RETURN_IF_ERROR(shards.ReleaseReduced(unit, /*is_changed=*/false, stream));
  } else {
    shards.ReleaseWholeSum(unit);
  }
  TESSERA_RETURN_IF_ERROR(GatherParameters(unit, stream));
  return store_.parameters().EndUpdate(unit, stream);
}

absl::Status ZeroOptimizer::UpdatePiece(int unit, const StatePiece& piece, const Tensor& gradients,
                                        const Tensor& parameters, AdamWOptions adamw,
                                        Stream& stream) {
  const UnitLayout& layout = store_.layout(unit);
  const ElementRange here{held(unit).begin + piece.begin, piece.count};
  for (int i = 0; i < static_cast<int>(layout.slots.size()); ++i) {
    const ElementRange range = layout.slot(i).Intersect(here);
    if (range.count == 0) continue;
    const int64_t begin = range.begin - here.begin;
    auto part = [&](const Tensor& of) { return of.Slice(begin, range.count); };
    const Tensor parameter = parameters.Slice(piece.begin + begin, range.count);
    adamw.weight_decay = layout.slots[i].decays ? options_.weight_decay : 0;
    if (has_master()) adamw.low_precision_parameter = parameter;
    TESSERA_RETURN_IF_ERROR(AdamW(part(piece.master),
                                  gradients.Slice(piece.begin + begin, range.count),
                                  part(piece.exp_avg), part(piece.exp_avg_sq), adamw, stream));
    if (!has_master() && is_offloaded(unit)) {
      TESSERA_RETURN_IF_ERROR(CopyMaster(part(piece.master), parameter, stream));
    }
  }
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::GatherParameters(int unit, Stream& stream) {
  if (!is_sharded() || store_.parameters().is_sharded(unit)) return absl::OkStatus();
  return zero_group_.AllGather(HeldParameters(unit), store_.parameters().tensor(unit), stream);
}

}  // namespace tessera
