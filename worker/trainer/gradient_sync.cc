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
    const GradientSyncOptions& options, ZeroStore& store, const GradientSyncGroups& groups,
    Device& device) {
  std::unique_ptr<GradientSync> sync(new GradientSync(options, store, groups, device));
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
    Shared& shared = units_.emplace_back();
    for (int i = 0; i < static_cast<int>(spec.parameters.size()); ++i) {
      const ParameterSpec& parameter = spec.parameters[i];
      const ParameterId id{unit, i};
      const int64_t size = parameter.local_shape.num_elements();
      switch (parameter.tp_gradient) {
        case TpGradient::kOwn:
          break;
        case TpGradient::kReplicated:
          shared.replicated.push_back(id);
          if (options_.check_replicated) reserve(size);
          break;
        case TpGradient::kPartial:
          shared.partial.push_back(id);
          break;
        case TpGradient::kReplicaPartial:
          shared.replica_partial.push_back(id);
          reserve(size * options_.part.tp.tp_size / replicas);
          break;
      }
      const bool is_embedding = spec.name == "embedding" && i == 0;
      if (options_.part.splits_tied_embedding && (is_embedding || parameter.is_tied_copy)) {
        has_tied_ = true;
        tied_ = id;
        reserve(TiedRange().count);
      }
    }
  }
}

Tensor GradientSync::Scratch(int64_t size) const {
  return scratch_.View(store_.options().gradient_dtype, {size});
}

ElementRange GradientSync::TiedRange() const {
  const UnitLayout& layout = store_.layout(tied_.unit);
  return store_.options().defers_reduction ? layout.whole() : layout.shard(zero_.group_rank());
}

Tensor GradientSync::Gradient(ParameterId id) const {
  return Flat(store_.gradients().whole(id.unit)[id.index]);
}

absl::Status GradientSync::SumOverTp(int64_t step, int unit, Stream& stream) {
  const Shared& shared = units_[unit];
  if (options_.check_replicated) {
    for (const ParameterId id : shared.replicated) {
      TESSERA_RETURN_IF_ERROR(CheckReplicated(step, id, stream));
    }
  }
  for (const ParameterId id : shared.partial) {
    TESSERA_RETURN_IF_ERROR(tp_.AllReduce(Gradient(id), ReduceOp::kSum, stream));
  }
  for (const ParameterId id : shared.replica_partial) {
    TESSERA_RETURN_IF_ERROR(SumReplicas(Gradient(id), stream));
  }
  return absl::OkStatus();
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
  if (!has_tied_) return absl::OkStatus();
  GradientShards& gradients = store_.gradients();
  if (store_.options().defers_reduction) return AddPeers(gradients.flat(tied_.unit), stream);
  TESSERA_ASSIGN_OR_RETURN(const Tensor own, gradients.AcquireReduced(tied_.unit, stream));
  TESSERA_RETURN_IF_ERROR(AddPeers(own, stream));
  return gradients.ReleaseReduced(tied_.unit, /*is_changed=*/true, stream);
}

absl::Status GradientSync::AddPeers(const Tensor& own, Stream& stream) {
  const Tensor other = Scratch(own.num_elements());
  const int peer = pp_.group_rank() == 0 ? pp_.size() - 1 : 0;
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveHandle> sent,
                           pp_.StartSend(own, peer, stream));
  TESSERA_RETURN_IF_ERROR(pp_.Recv(other, peer, stream));
  TESSERA_RETURN_IF_ERROR(sent->Wait());
  // The rest of the units is of other parameters.
  const ElementRange range = TiedRange();
  const ElementRange part = store_.layout(tied_.unit).slot(tied_.index).Intersect(range);
  if (part.count == 0) return absl::OkStatus();
  const Tensor sum = own.Slice(part.begin - range.begin, part.count);
  // The same bits on both: a + b is b + a.
  return Add(sum, other.Slice(part.begin - range.begin, part.count), sum, stream);
}

absl::Status GradientSync::CheckReplicated(int64_t step, ParameterId id, Stream& stream) {
  const Tensor gradient = Gradient(id);
  const int64_t size = gradient.num_elements();
  const Tensor copy = Scratch(size);
  TESSERA_RETURN_IF_ERROR(device_.Copy(gradient, copy, stream));
  TESSERA_RETURN_IF_ERROR(tp_.Broadcast(copy, 0, stream));
  std::vector<float> own(size), first(size);
  TESSERA_RETURN_IF_ERROR(CopyOutFp32(gradient, absl::MakeSpan(own), stream));
  TESSERA_RETURN_IF_ERROR(CopyOutFp32(copy, absl::MakeSpan(first), stream));
  for (int64_t i = 0; i < size; ++i) {
    if (own[i] == first[i] || (own[i] != own[i] && first[i] != first[i])) continue;
    return absl::InternalError(absl::StrCat(
        "step ", step, ": the gradient of ", store_.units()[id.unit].parameters[id.index].name,
        " should be equal on all tp ranks, but element ", i, " is ", first[i], " on tp_rank 0 and ",
        own[i], " on tp_rank ", tp_.group_rank()));
  }
  return absl::OkStatus();
}

}  // namespace tessera
