#include "worker/tensor_parallel/vocab_parallel_cross_entropy.h"

#include <array>

#include "kernels/cross_entropy.h"
#include "kernels/status_macros.h"

namespace tessera {

absl::Status VocabParallelCrossEntropy(const Tensor& logits, const Tensor& targets,
                                       int64_t vocab_size, float gradient_scale, bool backward,
                                       const CrossEntropyScratch& scratch, const Tensor& losses,
                                       const TensorParallel& tp, Stream& stream) {
  CrossEntropyOptions options;
  options.num_classes = vocab_size;
  options.gradient_scale = gradient_scale;
  options.overwrite_logits = backward;
  if (!tp.is_split()) return CrossEntropy(logits, targets, options, losses, stream);

  const VocabularyPart part = VocabularyPartOf(tp.layout(), vocab_size);
  const VocabularySlice slice{part.ids.begin, part.ids.count};
  const int64_t rows = targets.num_elements(), ranks = tp.layout().tp_size;
  std::array<Tensor, 3> own, all;
  for (int i = 0; i < 3; ++i) {
    own[i] = scratch.statistics.Reshape({3 * rows}).Slice(i * rows, rows);
    all[i] = scratch.gathered.Reshape({3 * ranks * rows})
                 .Slice(i * ranks * rows, ranks * rows)
                 .Reshape({ranks, rows});
  }
  TESSERA_RETURN_IF_ERROR(
      CrossEntropyStatistics(logits, targets, vocab_size, slice, own[0], own[1], own[2], stream));
  for (int i = 0; i < 3; ++i) {
    TESSERA_RETURN_IF_ERROR(tp.group().AllGather(own[i], all[i], stream));
  }
  TESSERA_RETURN_IF_ERROR(
      CombineCrossEntropy(all[0], all[1], all[2], targets, scratch.log_sum_exp, losses, stream));
  if (!backward) return absl::OkStatus();
  return CrossEntropyGradient(logits, targets, options, slice, scratch.log_sum_exp, stream);
}

}  // namespace tessera
