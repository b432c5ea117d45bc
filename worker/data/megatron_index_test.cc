// Megatron's .idx and .bin: every field of the index is checked.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "worker/data/token_source_testing.h"

namespace tessera {
namespace {

class MegatronIndexTest : public TokenSourceTest {};

template <typename Item>
std::string Items(std::initializer_list<Item> items) {
  std::string bytes;
  for (const Item item : items) bytes.append(reinterpret_cast<const char*>(&item), sizeof(item));
  return bytes;
}

// An index of sequences of these lengths, two documents.
std::string MegatronIndex(uint8_t dtype, int64_t item_size, const std::vector<int32_t>& lengths) {
  std::string bytes = std::string("MMIDIDX\0\0", 9) + Items<uint64_t>({1}) +
                      static_cast<char>(dtype) + Items<uint64_t>({lengths.size(), 3});
  int64_t pointer = 0;
  std::string pointers;
  for (const int32_t length : lengths) {
    bytes += Items<int32_t>({length});
    pointers += Items<int64_t>({pointer});
    pointer += length * item_size;
  }
  const auto sequences = static_cast<int64_t>(lengths.size());
  return bytes + pointers + Items<int64_t>({0, 1, sequences});
}

TEST_F(MegatronIndexTest, ReadsMegatronsIntegerTypes) {
  struct Case {
    uint8_t dtype;
    int64_t item_size;
    std::string bytes;
  };
  const Case cases[] = {{1, 1, Items<uint8_t>({1, 2, 127})}, {2, 1, Items<int8_t>({1, 2, 127})},
                        {3, 2, Items<int16_t>({1, 2, 127})}, {4, 4, Items<int32_t>({1, 2, 127})},
                        {5, 8, Items<int64_t>({1, 2, 127})}, {8, 2, Items<uint16_t>({1, 2, 127})}};
  for (const Case& c : cases) {
    for (const char* modes : {"", "00"}) {
      const std::string mode_bytes = *modes == 0 ? std::string() : std::string(2, 0);
      Write("m.idx", MegatronIndex(c.dtype, c.item_size, {1, 2}) + mode_bytes);
      Write("m.bin", c.bytes);
      auto source = Open("m", v1::DATA_FORMAT_MEGATRON, 128);
      ASSERT_TRUE(source.ok()) << source.status();
      EXPECT_EQ(AllTokens(**source), (std::vector<int32_t>{1, 2, 127})) << int{c.dtype};
    }
  }
}

// One change of a sound index each; the message names the field and its byte.
TEST_F(MegatronIndexTest, RefusesEveryFlawOfAMegatronIndex) {
  const std::string sound = MegatronIndex(8, 2, {1, 2});  // 34 + 2*4 + 2*8 + 3*8 = 82 bytes
  ASSERT_EQ(sound.size(), 82u);
  const auto with = [&](size_t at, const std::string& bytes) {
    return std::string(sound).replace(at, bytes.size(), bytes);
  };
  struct Case {
    std::string index;
    const char* message;
  };
  const Case cases[] = {
      {sound.substr(0, 33), "index: has 33 bytes, fewer than the 34 of its header"},
      {with(0, "X"), "index: does not begin with MMIDIDX"},
      {with(8, "\x01"), "index: does not begin with MMIDIDX"},
      {with(9, "\x02"), "version at byte 9 is 2, not 1"},
      {with(17, "\x06"), "dtype code at byte 17 is 6, a floating-point type"},
      {with(17, "\x07"), "dtype code at byte 17 is 7, a floating-point type"},
      {with(17, std::string(1, 0)), "dtype code at byte 17 is 0, not 1 .. 5 or 8"},
      {with(17, "\x09"), "dtype code at byte 17 is 9"},
      {with(18, Items<uint64_t>({~uint64_t{0}})),
       "number of sequences at byte 18 is 18446744073709551615, more than fit"},
      {with(18, Items<uint64_t>({uint64_t{1} << 62})), "number of sequences at byte 18"},
      {with(18, Items<uint64_t>({3})),
       "3 sequences and 3 document entries ask for 94 bytes, or 97 with modes, but the file has "
       "82"},
      {with(26, Items<uint64_t>({~uint64_t{0}})),
       "length of the document index at byte 26 is 18446744073709551615, more than fits"},
      {with(26, Items<uint64_t>({0})),
       "length of the document index at byte 26 is 0, not at least 1"},
      {sound + std::string(1, 0), "but the file has 83"},
      {sound.substr(0, 81), "but the file has 81"},
      {with(34, Items<int32_t>({-1})), "length of sequence 0 at byte 34 is -1, less than 0"},
      {with(34, Items<int32_t>({4})),
       "length of sequence 0 at byte 34 is 4, which ends at byte 8 of a .bin of 6"},
      {with(38, Items<int32_t>({1})), "the sequences end at byte 4, but the .bin has 6"},
      {with(42, Items<int64_t>({2})), "pointer of sequence 0 at byte 42 is 2, not 0"},
      {with(50, Items<int64_t>({-2})), "pointer of sequence 1 at byte 50 is -2, not 2"},
      {with(58, Items<int64_t>({1})), "document entry 0 at byte 58 is 1, not 0"},
      {with(66, Items<int64_t>({-1})),
       "document entry 1 at byte 66 is -1, less than the one before"},
      {with(66, Items<int64_t>({3})), "document entry 2 at byte 74 is 2, less than the one before"},
      {with(74, Items<int64_t>({3})),
       "document entry 2 at byte 74 is 3, not 2, the number of sequences"},
      {sound + std::string("\0\x01", 2), "mode of sequence 1 at byte 83 is 1, not 0"},
  };
  Write("m.bin", Items<uint16_t>({1, 2, 3}));
  for (const Case& c : cases) {
    Write("m.idx", c.index);
    const absl::Status status = Open("m", v1::DATA_FORMAT_MEGATRON).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message << status;
    EXPECT_EQ(FieldOf(status), "spec.data.path");
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos)
        << status << " / " << c.message;
  }
}

TEST_F(MegatronIndexTest, MegatronIdsAndFilesAreNamed) {
  Write("m.idx", MegatronIndex(4, 4, {1, 2}));
  EXPECT_EQ(Open("m", v1::DATA_FORMAT_MEGATRON).status().message(),
            "spec.data.path: m.bin: no such file");
  for (const int32_t id : {-5, 50257}) {
    Write("m.bin", Items<int32_t>({1, 2, id}));
    EXPECT_EQ(Open("m", v1::DATA_FORMAT_MEGATRON).status().message(),
              absl::StrCat("spec.data.path: m.bin: token 2 (byte 8) is ", id,
                           ", not below spec.model.vocab_size (50257)"));
  }
  std::filesystem::remove(root_ + "/m.idx");
  EXPECT_EQ(Open("m", v1::DATA_FORMAT_MEGATRON).status().message(),
            "spec.data.path: m.idx: no such file");
}

}  // namespace
}  // namespace tessera
