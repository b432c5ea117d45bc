// Sound and malformed files: every refusal has its reason, and comes in the format's order.
#include "storage/safetensors.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// A file with this JSON, and data of this many bytes.
std::string File(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += json;
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

absl::StatusOr<SafetensorsHeader> Parse(const std::string& file) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
}

std::string Tensor(const char* dtype, const char* shape, const char* offsets) {
  return absl::StrCat("{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets,
                      "}");
}

std::string OneTensor(const char* dtype, const char* shape, const char* offsets) {
  return absl::StrCat("{\"t\":", Tensor(dtype, shape, offsets), "}");
}

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}

struct Refusal {
  const char* name;
  std::string file;
  const char* reason;     // the name that the format's own library gives
  const char* said = "";  // in the message besides
};

const Refusal kRefusals[] = {
    {"no_bytes", "", "HeaderTooSmall"},
    {"seven_bytes", std::string(7, '\0'), "HeaderTooSmall", "7 bytes"},
    {"length_100000001", WithLength(100000001, "{}"), "HeaderTooLarge", "100000001"},
    {"length_all_ones", WithLength(~uint64_t{0}, "{}"), "HeaderTooLarge"},
    {"length_100000000", WithLength(100000000, "{}"), "InvalidHeaderLength", "only 2 bytes"},
    {"length_one_more", WithLength(3, "{}"), "InvalidHeaderLength"},
    {"not_utf8", File("{\"\xc3\":1}", 0), "InvalidHeader"},
    {"not_utf8_before_bad_json", File("[\xff", 0), "InvalidHeader"},
    {"no_json", File("", 0), "InvalidHeaderDeserialization"},
    {"an_array", File("[]", 0), "InvalidHeaderDeserialization", "not an object"},
    {"a_number", File("1", 0), "InvalidHeaderDeserialization", "not an object"},
    {"trailing_json", File("{}{}", 0), "InvalidHeaderDeserialization", "syntax error"},
    {"byte_order_mark", File("\xEF\xBB\xBF{}", 0), "InvalidHeaderDeserialization"},
    {"tensor_no_object", File("{\"t\":1}", 0), "InvalidHeaderDeserialization", "'t': 1"},
    {"tensor_array", File("{\"t\":[\"F32\",[],[0,4]]}", 4), "InvalidHeaderDeserialization"},
    {"unknown_dtype", File(OneTensor("F31", "[1]", "[0,4]"), 4), "InvalidHeaderDeserialization",
     "tensor 't': unknown dtype 'F31'"},
    {"dtype_lower_case", File(OneTensor("f32", "[1]", "[0,4]"), 4), "InvalidHeaderDeserialization"},
    {"dtype_number", File("{\"t\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}", 4),
     "InvalidHeaderDeserialization", "dtype 1 is not a string"},
    {"negative_dim", File(OneTensor("F32", "[-1]", "[0,4]"), 4), "InvalidHeaderDeserialization",
     "shape has -1"},
    {"minus_zero", File(OneTensor("F32", "[-0]", "[0,0]"), 0), "InvalidHeaderDeserialization"},
    {"fractional_dim", File(OneTensor("F32", "[1.0]", "[0,4]"), 4), "InvalidHeaderDeserialization"},
    {"dim_beyond_64_bits", File(OneTensor("F32", "[18446744073709551616]", "[0,4]"), 4),
     "InvalidHeaderDeserialization"},
    {"dim_of_array", File(OneTensor("F32", "[[1]]", "[0,4]"), 4), "InvalidHeaderDeserialization"},
    {"shape_null", File(OneTensor("F32", "null", "[0,4]"), 4), "InvalidHeaderDeserialization"},
    {"negative_offset", File(OneTensor("F32", "[1]", "[-4,0]"), 4), "InvalidHeaderDeserialization",
     "data_offsets have -4"},
    {"one_offset", File(OneTensor("F32", "[1]", "[4]"), 4), "InvalidHeaderDeserialization", "pair"},
    {"three_offsets", File(OneTensor("F32", "[1]", "[0,4,4]"), 4), "InvalidHeaderDeserialization",
     "pair"},
    {"offsets_object", File(OneTensor("F32", "[1]", "{}"), 4), "InvalidHeaderDeserialization"},
    {"no_dtype", File("{\"t\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4),
     "InvalidHeaderDeserialization", "has no dtype"},
    {"no_shape", File("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4),
     "InvalidHeaderDeserialization", "has no shape"},
    {"no_offsets", File("{\"t\":{\"dtype\":\"F32\",\"shape\":[]}}", 4),
     "InvalidHeaderDeserialization", "has no data_offsets"},
    {"metadata_number", File("{\"__metadata__\":{\"a\":1}}", 0), "InvalidHeaderDeserialization",
     "the value 1 of 'a'"},
    {"metadata_nested", File("{\"__metadata__\":{\"a\":{}}}", 0), "InvalidHeaderDeserialization"},
    {"metadata_text", File("{\"__metadata__\":\"a\"}", 0), "InvalidHeaderDeserialization"},
    {"duplicate_tensor",
     File(absl::StrCat("{\"t\":", Tensor("F32", "[1]", "[0,4]"),
                       ",\"t\":", Tensor("F32", "[1]", "[4,8]"), "}"),
          8),
     "InvalidHeaderDeserialization", "duplicate key 't'"},
    {"duplicate_metadata", File("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
     "InvalidHeaderDeserialization", "duplicate key"},
    {"duplicate_metadata_key", File("{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", 0),
     "InvalidHeaderDeserialization", "duplicate key 'a'"},
    {"duplicate_member",
     File("{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4),
     "InvalidHeaderDeserialization", "duplicate key 'dtype'"},
    {"first_begins_late", File(OneTensor("F32", "[1]", "[4,8]"), 8), "InvalidOffset"},
    {"no_room", File(OneTensor("F32", "[1]", "[0,0]"), 0), "TensorInvalidInfo"},
    {"backwards",
     File(absl::StrCat("{\"a\":", Tensor("F32", "[1]", "[0,4]"),
                       ",\"b\":", Tensor("F32", "[1]", "[4,0]"), "}"),
          4),
     "InvalidOffset", "tensor 'b'"},
    {"hole",
     File(absl::StrCat("{\"a\":", Tensor("F32", "[1]", "[0,4]"),
                       ",\"b\":", Tensor("F32", "[1]", "[5,9]"), "}"),
          9),
     "InvalidOffset", "tensor 'b'"},
    {"overlap",
     File(absl::StrCat("{\"a\":", Tensor("F32", "[1]", "[0,4]"),
                       ",\"b\":", Tensor("F32", "[1]", "[3,7]"), "}"),
          7),
     "InvalidOffset", "tensor 'b'"},
    {"same_bytes",
     File(absl::StrCat("{\"a\":", Tensor("F32", "[1]", "[0,4]"),
                       ",\"b\":", Tensor("F32", "[1]", "[0,4]"), "}"),
          4),
     "InvalidOffset", "tensor 'b'"},
    {"elements_overflow", File(OneTensor("U8", "[4294967296,4294967296]", "[0,0]"), 0),
     "ValidationOverflow"},
    {"overflow_then_zero", File(OneTensor("U8", "[4294967296,4294967296,0]", "[0,0]"), 0),
     "ValidationOverflow"},
    {"bits_overflow", File(OneTensor("F32", "[576460752303423488]", "[0,0]"), 0),
     "ValidationOverflow"},
    {"half_a_byte", File(OneTensor("F4", "[3]", "[0,2]"), 2), "MisalignedSlice", "12 bits"},
    {"six_bits", File(OneTensor("F6_E2M3", "[2]", "[0,1]"), 1), "MisalignedSlice"},
    {"size_too_small", File(OneTensor("F32", "[2]", "[0,4]"), 4), "TensorInvalidInfo",
     "4 bytes, but its shape and dtype take 8"},
    {"end_beyond_everything", File(OneTensor("F32", "[1]", "[0,18446744073709551615]"), 4),
     "TensorInvalidInfo"},
    {"data_missing", File(OneTensor("F32", "[2]", "[0,8]"), 4), "MetadataIncompleteBuffer"},
    {"data_of_a_terabyte", File(OneTensor("F32", "[274877906944]", "[0,1099511627776]"), 4),
     "MetadataIncompleteBuffer"},
    {"data_left_over", File(OneTensor("F32", "[1]", "[0,4]"), 5), "MetadataIncompleteBuffer"},
    {"data_without_tensors", File("{}", 1), "MetadataIncompleteBuffer"},
    // Of two things that are wrong, the one that comes first.
    {"json_before_offsets", File(OneTensor("F31", "[1]", "[4,8]"), 8),
     "InvalidHeaderDeserialization"},
    {"first_tensor_first",
     File(absl::StrCat("{\"b\":", Tensor("F32", "[1]", "[5,9]"),
                       ",\"a\":", Tensor("F32", "[2]", "[0,4]"), "}"),
          9),
     "TensorInvalidInfo", "tensor 'a'"},
    {"offset_before_overflow", File(OneTensor("U8", "[4294967296,4294967296]", "[1,0]"), 0),
     "InvalidOffset"},
};

TEST(Safetensors, RefusesWithTheReason) {
  for (const Refusal& c : kRefusals) {
    const auto header = Parse(c.file);
    EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    const std::string message(header.status().message());
    EXPECT_NE(message.find(absl::StrCat("(", c.reason, ")")), std::string::npos)
        << c.name << ": " << message;
    EXPECT_NE(message.find(c.said), std::string::npos) << c.name << ": " << message;
  }
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  const struct {
    const char* name;
    std::string file;
    size_t tensors;
  } kCases[] = {
      {"no_tensors", File("{}", 0), 0},
      {"white_space_around", File(" \n{} \t ", 0), 0},
      {"metadata_only", File("{\"__metadata__\":{\"a\":\"b\"}}", 0), 0},
      {"scalar", File(OneTensor("F64", "[]", "[0,8]"), 8), 1},
      {"zero_size", File(OneTensor("F32", "[2,0]", "[0,0]"), 0), 1},
      {"zero_before_overflow", File(OneTensor("F32", "[0,18446744073709551615]", "[0,0]"), 0), 1},
      {"odd_offset",
       File(absl::StrCat("{\"b\":", Tensor("F32", "[1]", "[1,5]"),
                         ",\"a\":", Tensor("U8", "[1]", "[0,1]"), "}"),
            5),
       2},
      {"zero_size_between",
       File(absl::StrCat("{\"c\":", Tensor("U8", "[1]", "[1,2]"),
                         ",\"b\":", Tensor("U8", "[0]", "[1,1]"),
                         ",\"a\":", Tensor("U8", "[1]", "[0,1]"), "}"),
            2),
       3},
      {"packed_bits", File(OneTensor("F6_E3M2", "[4]", "[0,3]"), 3), 1},
      {"other_members",
       File("{\"t\":{\"x\":{\"dtype\":[{}]},\"dtype\":\"U8\",\"y\":[[1,-1,1.5,\"s\"],null],"
            "\"shape\":[1],\"z\":true,\"data_offsets\":[0,1]}}",
            1),
       1},
      {"empty_name", File("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), 1},
  };
  for (const auto& c : kCases) {
    const auto header = Parse(c.file);
    ASSERT_TRUE(header.ok()) << c.name << ": " << header.status();
    EXPECT_EQ(header->tensors.size(), c.tensors) << c.name;
  }
}

TEST(Safetensors, KnowsEveryDType) {
  const char* kNames[] = {"BOOL",    "F4",      "F6_E2M3", "F6_E3M2",     "U8",          "I8",
                          "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
                          "U16",     "F16",     "BF16",    "I32",         "U32",         "F32",
                          "C64",     "F64",     "I64",     "U64"};
  const int kBits[] = {8, 4, 6, 6, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const auto dtype = SafetensorsDTypeFromName(kNames[i]);
    ASSERT_TRUE(dtype.has_value()) << kNames[i];
    EXPECT_EQ(static_cast<size_t>(*dtype), i);
    EXPECT_STREQ(SafetensorsDTypeName(*dtype), kNames[i]);
    EXPECT_EQ(SafetensorsDTypeBits(*dtype), kBits[i]) << kNames[i];
  }
}

std::string FreshFolder() {
  std::string path = testing::TempDir() + "/stXXXXXX";
  return mkdtemp(path.data());
}

TEST(SafetensorsFile, GivesViewsOfTheMapping) {
  const std::string path = FreshFolder() + "/f.safetensors";
  std::ofstream(path, std::ios::binary) << File(
      absl::StrCat("{\"__metadata__\":{\"format\":\"pt\"},\"b\":", Tensor("U8", "[2]", "[3,5]"),
                   ",\"a\":", Tensor("U8", "[3,1]", "[0,3]"), "}"),
      5);
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<uint64_t>{3, 1}));
  const SafetensorsTensor* b = file->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(file->bytes(*b), (std::vector<uint8_t>{3, 4}));
  EXPECT_EQ(file->Find("c"), nullptr);
}

TEST(SafetensorsFile, NamesTheFile) {
  const std::string folder = FreshFolder();
  std::ofstream(folder + "/bad") << "x";
  for (const auto& [path, code] : {std::pair{folder + "/bad", absl::StatusCode::kInvalidArgument},
                                   {folder + "/none", absl::StatusCode::kNotFound},
                                   {folder, absl::StatusCode::kInvalidArgument}}) {
    const absl::Status status = SafetensorsFile::Open(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(status.message().find(path), 0u) << status;
  }
}

// Files of the format's own test suite; testdata/safetensors/README.md says from where.
TEST(SafetensorsFile, TreatsTheFormatsOwnTestFilesAsExpected) {
  const std::string folder = "storage/testdata/safetensors";
  std::ifstream table(folder + "/EXPECTED.tsv");
  std::string line;
  int files = 0;
  while (std::getline(table, line)) {
    const std::string name = line.substr(0, line.find('\t'));
    const std::string expected = line.substr(line.rfind('\t') + 1);
    const auto file = SafetensorsFile::Open(absl::StrCat(folder, "/", name, ".safetensors"));
    if (expected.rfind("ok", 0) == 0) {
      EXPECT_TRUE(file.ok()) << name << ": " << file.status();
    } else {
      EXPECT_FALSE(file.ok()) << name;
      EXPECT_NE(file.status().message().find(absl::StrCat("(", expected, ")")), std::string::npos)
          << name << ": " << file.status();
    }
    ++files;
  }
  EXPECT_EQ(files, 15);
}

}  // namespace
}  // namespace tessera
