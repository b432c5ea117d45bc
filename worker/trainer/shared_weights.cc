#include "worker/trainer/shared_weights.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

constexpr int64_t kPieceElements = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<SharedWeights>> SharedWeights::Create(
    const ModelConfig& config, const ZeroStore& store, const ZeroOptimizer& optimizer,
    Communicator& zero, Communicator& pp, Communicator& tp, Device& device) {
  std::unique_ptr<SharedWeights> shared(new SharedWeights(store, optimizer, zero, pp, tp, device));
  for (const UnitSpec& unit : Units(config)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      Entry entry{parameter.name, parameter.shape, false, {}};
      for (int u = 0; u < static_cast<int>(store.units().size()); ++u) {
        const std::vector<ParameterSpec>& own = store.units()[u].parameters;
        for (int i = 0; i < static_cast<int>(own.size()); ++i) {
          if (own[i].name != parameter.name || own[i].is_tied_copy) continue;
          entry.is_here = true;
          entry.id = {u, i};
        }
      }
      shared->entries_.push_back(std::move(entry));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(
      shared->request_,
      device.Allocate(4 * sizeof(int64_t), MemoryCategory::kCommunication, "weights request"));
  if (!shared->is_split()) return shared;
  TESSERA_ASSIGN_OR_RETURN(shared->piece_,
                           device.Allocate(kPieceElements * sizeof(float),
                                           MemoryCategory::kCommunication, "shared weights"));
  return shared;
}

std::vector<std::string> SharedWeights::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

absl::StatusOr<Shape> SharedWeights::ShapeOf(absl::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return entry.shape;
  }
  return absl::NotFoundError(absl::StrCat("parameter \"", name, "\": no such parameter"));
}

absl::Status SharedWeights::Exchange(Request& request, Stream& stream) const {
  int64_t words[] = {request.parameter, request.begin, request.count,
                     static_cast<int64_t>(request.array)};
  const Tensor tensor = request_.View(DType::kInt64, {4});
  TESSERA_RETURN_IF_ERROR(device_.CopyIn(words, sizeof(words), tensor, stream));
  if (is_first_of_zero()) {
    if (tp_.group_rank() == 0) TESSERA_RETURN_IF_ERROR(pp_.Broadcast(tensor, 0, stream));
    TESSERA_RETURN_IF_ERROR(tp_.Broadcast(tensor, 0, stream));
  }
  if (is_sharded()) TESSERA_RETURN_IF_ERROR(zero_.Broadcast(tensor, 0, stream));
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(tensor, words, sizeof(words), stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  request = {words[0], words[1], words[2], static_cast<StateArray>(words[3])};
  return absl::OkStatus();
}

absl::Status SharedWeights::CollectOwn(const Entry& entry, const Request& request,
                                       absl::Span<float> values, Stream& stream) const {
  std::fill(values.begin(), values.end(), 0.0f);
  if (!entry.is_here) return absl::OkStatus();
  const ParameterSpec& spec = store_.units()[entry.id.unit].parameters[entry.id.index];
  if (!spec.is_counted) return absl::OkStatus();  // another rank has it as well
  const int64_t end = request.begin + request.count;
  // Runs ascend in the local part; those of a range are one stretch of it, or several.
  return ForEachRun(spec.slice, [&](const SliceRun& run) {
    const int64_t begin = std::max(request.begin, run.whole_begin);
    const int64_t stop = std::min(end, run.whole_begin + run.count);
    if (begin >= stop) return absl::OkStatus();
    return optimizer_.Read(request.array, entry.id, run.local_begin + begin - run.whole_begin,
                           values.subspan(begin - request.begin, stop - begin), stream);
  });
}

absl::Status SharedWeights::Answer(const Request& request, absl::Span<float> values,
                                   Stream& stream) const {
  const Entry& entry = entries_[request.parameter];
  TESSERA_RETURN_IF_ERROR(CollectOwn(entry, request, values, stream));
  const Tensor piece = piece_.View(DType::kFloat32, {request.count});
  TESSERA_RETURN_IF_ERROR(device_.CopyIn(values.data(), piece.size_bytes(), piece, stream));
  if (is_sharded()) TESSERA_RETURN_IF_ERROR(zero_.AllReduce(piece, ReduceOp::kSum, stream));
  if (is_first_of_zero()) {
    TESSERA_RETURN_IF_ERROR(tp_.AllReduce(piece, ReduceOp::kSum, stream));
    if (tp_.group_rank() == 0) {
      TESSERA_RETURN_IF_ERROR(pp_.AllReduce(piece, ReduceOp::kSum, stream));
    }
  }
  if (!is_reader()) return stream.Synchronize();
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(piece, values.data(), piece.size_bytes(), stream));
  return stream.Synchronize();
}

absl::Status SharedWeights::Share(const std::function<absl::Status()>& body, Stream& stream) {
  if (!is_sharded() && !is_first_of_zero()) return absl::OkStatus();
  if (is_reader()) {
    absl::Status result = body();
    Request end;
    if (is_split()) TESSERA_RETURN_IF_ERROR(Exchange(end, stream));
    return result;
  }
  std::vector<float> values(kPieceElements);
  while (true) {
    Request request;
    TESSERA_RETURN_IF_ERROR(Exchange(request, stream));
    if (request.parameter < 0) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(Answer(request, absl::MakeSpan(values).first(request.count), stream));
  }
}

absl::Status SharedWeights::Read(StateArray array, absl::string_view name, int64_t begin,
                                 absl::Span<float> values, Stream& stream) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& each) { return each.name == name; });
  if (entry == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("parameter \"", name, "\": no such parameter"));
  }
  if (!is_split()) return optimizer_.Read(array, entry->id, begin, values, stream);
  while (!values.empty()) {
    const int64_t count = std::min<int64_t>(values.size(), kPieceElements);
    Request request{entry - entries_.begin(), begin, count, array};
    TESSERA_RETURN_IF_ERROR(Exchange(request, stream));
    TESSERA_RETURN_IF_ERROR(Answer(request, values.first(count), stream));
    values.remove_prefix(count);
    begin += count;
  }
  return absl::OkStatus();
}

}  // namespace tessera
