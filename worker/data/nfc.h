// Unicode normalization form C (Unicode Standard Annex 15), piece by piece.
#ifndef TESSERA_WORKER_DATA_NFC_H_
#define TESSERA_WORKER_DATA_NFC_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The last place in the text before which nothing changes with what follows, and after which
// nothing with what comes before; 0 if none is known. It is before a character that is a starter
// and never the second of a composition: one below U+0300, or an ideograph.
size_t LastNfcBoundary(absl::string_view text);

// Appends the text's normal form. Bytes that are no UTF-8 stay, as boundaries. RESOURCE_EXHAUSTED
// without memory.
absl::Status AppendNfc(absl::string_view text, std::string* out);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_NFC_H_
