#include "storage/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

// RFC 3720, appendix B.4, and the check value of the catalogue of parametrised CRC algorithms.
TEST(Crc32c, PublishedValues) {
  std::vector<uint8_t> rising(32), falling(32);
  for (int i = 0; i < 32; ++i) {
    rising[i] = static_cast<uint8_t>(i);
    falling[i] = static_cast<uint8_t>(31 - i);
  }
  const std::string digits = "123456789";
  const struct {
    const char* name;
    std::vector<uint8_t> bytes;
    uint32_t crc;
  } kCases[] = {
      {"nothing", {}, 0},
      {"zeros", std::vector<uint8_t>(32, 0), 0x8a9136aa},
      {"ones", std::vector<uint8_t>(32, 0xff), 0x62a8ab43},
      {"rising", rising, 0x46dd794e},
      {"falling", falling, 0x113fdb5c},
      {"digits", {digits.begin(), digits.end()}, 0xe3069283},
  };
  for (const auto& c : kCases) EXPECT_EQ(Crc32c(c.bytes), c.crc) << c.name;
}

TEST(Crc32c, GoesOnFromAnyPlace) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i >> 3);
  const uint32_t whole = Crc32c(bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut += 7) {
    const absl::Span<const uint8_t> all(bytes);
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), whole) << cut;
  }
}

}  // namespace
}  // namespace tessera
