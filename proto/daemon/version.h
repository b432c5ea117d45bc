// The version of all of Tessera's programs.
#ifndef TESSERA_PROTO_DAEMON_VERSION_H_
#define TESSERA_PROTO_DAEMON_VERSION_H_

namespace tessera {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tessera

#endif  // TESSERA_PROTO_DAEMON_VERSION_H_
