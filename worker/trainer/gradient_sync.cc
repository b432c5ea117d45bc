#include "worker/trainer/gradient_sync.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise.h"
#include "kernels/fp32_copy.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

Tensor Flat(const Tensor& tensor) { return tensor.Reshape({tensor.num_elements()}); }

}  // namespace

absl::StatusOr<std::unique_ptr<GradientSync>> GradientSync::Create(
    const GradientSyncOptions& options, ZeroStore& store, Communicator& tp, Communicator& pp,
    Device& device) {
  std::unique_ptr<GradientSync> sync(new GradientSync(options, store, tp, pp, device));
  sync->Collect();
  const int64_t bytes = sync->scratch_elements_ * DTypeSizeBytes(store.options().gradient_dtype);
  TESSERA_ASSIGN_OR_RETURN(
      sync->scratch_, device.Allocate(bytes, MemoryCategory::kCommunication, "shared gradients"));
  return sync;
}

void GradientSync::Collect() {
  const int replicas = KvHeadsOf(options_.part.tp, options_.kv_heads).replicas;
  auto reserve = [&](int64_t size) { scratch_elements_ = std::max(scratch_elements_, size); };
  for (int unit = 0; unit < static_cast<int>(store_.units().size()); ++unit) {
    const UnitSpec& spec = store_.units()[unit];
    for (int i = 0; i < static_cast<int>(spec.parameters.size()); ++i) {
      const ParameterSpec& parameter = spec.parameters[i];
      const ParameterId id{unit, i};
      const int64_t size = parameter.local_shape.num_elements();
      switch (parameter.tp_gradient) {
        case TpGradient::kOwn:
          break;
        case TpGradient::kReplicated:
          replicated_.push_back(id);
          if (options_.check_replicated) reserve(size);
          break;
        case TpGradient::kPartial:
          partial_.push_back(id);
          break;
        case TpGradient::kReplicaPartial:
          replica_partial_.push_back(id);
          reserve(size * options_.part.tp.tp_size / replicas);
          break;
      }
      const bool is_embedding = spec.name == "embedding" && i == 0;
      if (options_.part.splits_tied_embedding && (is_embedding || parameter.is_tied_copy)) {
        has_tied_ = true;
        tied_ = id;
        reserve(size);
      }
    }
  }
}

Tensor GradientSync::Scratch(int64_t size) const {
  return scratch_.View(store_.options().gradient_dtype, {size});
}

absl::Status GradientSync::Run(int64_t step, Stream& stream) {
  if (options_.check_replicated) TESSERA_RETURN_IF_ERROR(CheckReplicated(step, stream));
  for (const ParameterId id : partial_) {
    TESSERA_RETURN_IF_ERROR(tp_.AllReduce(Flat(store_.gradient(id)), ReduceOp::kSum, stream));
  }
  for (const ParameterId id : replica_partial_) {
    TESSERA_RETURN_IF_ERROR(SumReplicas(Flat(store_.gradient(id)), stream));
  }
  return has_tied_ ? SumTied(stream) : absl::OkStatus();
}

absl::Status GradientSync::SumReplicas(const Tensor& gradient, Stream& stream) {
  // There is no group of the replicas alone: each rank adds to its kv head's place in the whole.
  const TensorParallelLayout& layout = options_.part.tp;
  const KvHeads kv = KvHeadsOf(layout, options_.kv_heads);
  const int64_t size = gradient.num_elements();
  const Tensor whole = Scratch(size * layout.tp_size / kv.replicas);
  const Tensor own = whole.Slice(kv.heads.begin * size, size);
  TESSERA_RETURN_IF_ERROR(device_.SetZero(whole, stream));
  TESSERA_RETURN_IF_ERROR(device_.Copy(gradient, own, stream));
  TESSERA_RETURN_IF_ERROR(tp_.AllReduce(whole, ReduceOp::kSum, stream));
  return device_.Copy(own, gradient, stream);
}

absl::Status GradientSync::SumTied(Stream& stream) {
  const Tensor own = Flat(store_.gradient(tied_));
  const Tensor other = Scratch(own.num_elements());
  const int peer = pp_.group_rank() == 0 ? pp_.size() - 1 : 0;
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveHandle> sent,
                           pp_.StartSend(own, peer, stream));
  TESSERA_RETURN_IF_ERROR(pp_.Recv(other, peer, stream));
  TESSERA_RETURN_IF_ERROR(sent->Wait());
  return Add(own, other, own, stream);  // the same bits on both: a + b is b + a
}

absl::Status GradientSync::CheckReplicated(int64_t step, Stream& stream) {
  std::vector<float> own, first;
  for (const ParameterId id : replicated_) {
    const Tensor gradient = Flat(store_.gradient(id));
    const int64_t size = gradient.num_elements();
    const Tensor copy = Scratch(size);
    TESSERA_RETURN_IF_ERROR(device_.Copy(gradient, copy, stream));
    TESSERA_RETURN_IF_ERROR(tp_.Broadcast(copy, 0, stream));
    own.resize(size);
    first.resize(size);
    TESSERA_RETURN_IF_ERROR(CopyOutFp32(gradient, absl::MakeSpan(own), stream));
    TESSERA_RETURN_IF_ERROR(CopyOutFp32(copy, absl::MakeSpan(first), stream));
    for (int64_t i = 0; i < size; ++i) {
      if (own[i] == first[i] || (own[i] != own[i] && first[i] != first[i])) continue;
      return absl::InternalError(absl::StrCat(
          "step ", step, ": the gradient of ", store_.units()[id.unit].parameters[id.index].name,
          " should be equal on all tp ranks, but element ", i, " is ", first[i],
          " on tp_rank 0 and ", own[i], " on tp_rank ", tp_.group_rank()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera
