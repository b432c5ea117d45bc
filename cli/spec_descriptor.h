// spec.proto with its comments, embedded at build time.
#ifndef TESSERA_CLI_SPEC_DESCRIPTOR_H_
#define TESSERA_CLI_SPEC_DESCRIPTOR_H_

#include <string>

namespace tessera {

// A serialized google.protobuf.FileDescriptorSet with source info.
std::string SpecDescriptorSet();

}  // namespace tessera

#endif  // TESSERA_CLI_SPEC_DESCRIPTOR_H_
