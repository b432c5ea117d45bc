#include "cli/yaml_decoder.h"

#include <google/protobuf/descriptor.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// HTTPServer -> HTTP_SERVER would need more care; Tessera's enums are CamelCase words.
std::string UpperSnake(const std::string& camel) {
  std::string out;
  for (char c : camel) {
    if (absl::ascii_isupper(c) && !out.empty()) out += '_';
    out += absl::ascii_toupper(c);
  }
  return out;
}

class Decoder {
 public:
  explicit Decoder(const std::string& file) : file_(file) {}

  absl::Status Fill(const YAML::Node& node, const std::string& path, Message& message) {
    if (!node.IsMap()) return Wrong(node, path, "must be a mapping of fields");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Wrong(entry.first, path, "field names must be scalars");
      const std::string name = entry.first.Scalar();
      const std::string field_path = absl::StrCat(path, ".", name.substr(0, 80));
      const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
      if (field == nullptr) {
        return Wrong(entry.first, field_path,
                     absl::StrCat("unknown field; ", path, " has: ", FieldNames(message)));
      }
      if (!seen.insert(name).second) return Wrong(entry.first, field_path, "is given twice");
      absl::Status status = field->is_repeated()
                                ? Repeated(entry.second, field_path, *field, message)
                                : Singular(entry.second, field_path, *field, message);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  static std::string FieldNames(const Message& message) {
    std::vector<std::string> names;
    names.reserve(message.GetDescriptor()->field_count());
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      names.push_back(message.GetDescriptor()->field(i)->name());
    }
    return absl::StrJoin(names, ", ");
  }

  absl::Status Wrong(const YAML::Node& node, const std::string& path, absl::string_view rule) {
    std::string value;
    if (node.IsScalar()) value = absl::StrCat("\"", node.Scalar().substr(0, 80), "\"");
    const YAML::Mark mark = node.Mark();
    return InvalidField(
        path, value,
        absl::StrCat(rule, " (", file_, ":", mark.line + 1, ":", mark.column + 1, ")"));
  }

  absl::Status Repeated(const YAML::Node& node, const std::string& path,
                        const FieldDescriptor& field, Message& message) {
    if (!node.IsSequence()) return Wrong(node, path, "must be a list");
    for (size_t i = 0; i < node.size(); ++i) {
      absl::Status status = Singular(node[i], absl::StrCat(path, "[", i, "]"), field, message);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Sets, or for a repeated field adds, one value.
  absl::Status Singular(const YAML::Node& node, const std::string& path,
                        const FieldDescriptor& field, Message& message) {
    const Reflection& reflection = *message.GetReflection();
    const bool add = field.is_repeated();
    if (node.IsNull()) return Wrong(node, path, "must not be empty; leave the field out instead");
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return Fill(node, path,
                  add ? *reflection.AddMessage(&message, &field)
                      : *reflection.MutableMessage(&message, &field));
    }
    if (!node.IsScalar()) return Wrong(node, path, "must be a single value");
    const std::string& text = node.Scalar();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        int32_t value = 0;
        if (!absl::SimpleAtoi(text, &value)) return Wrong(node, path, "must be a 32-bit integer");
        add ? reflection.AddInt32(&message, &field, value)
            : reflection.SetInt32(&message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        int64_t value = 0;
        if (!absl::SimpleAtoi(text, &value)) return Wrong(node, path, "must be a 64-bit integer");
        add ? reflection.AddInt64(&message, &field, value)
            : reflection.SetInt64(&message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        uint64_t value = 0;
        if (!absl::SimpleAtoi(text, &value)) {
          return Wrong(node, path, "must be a 64-bit integer of at least 0");
        }
        add ? reflection.AddUInt64(&message, &field, value)
            : reflection.SetUInt64(&message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        double value = 0;
        if (text == ".inf" || text == "+.inf") {
          value = std::numeric_limits<double>::infinity();
        } else if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
          return Wrong(node, path, "must be a number");
        }
        add ? reflection.AddDouble(&message, &field, value)
            : reflection.SetDouble(&message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        if (text != "true" && text != "false") return Wrong(node, path, "must be true or false");
        add ? reflection.AddBool(&message, &field, text == "true")
            : reflection.SetBool(&message, &field, text == "true");
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_STRING:
        if (!google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                                 static_cast<int>(text.size()))) {
          return Wrong(node, path, "must be valid UTF-8");
        }
        add ? reflection.AddString(&message, &field, text)
            : reflection.SetString(&message, &field, text);
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_ENUM:
        return Enum(node, path, field, message);
      default:
        return Wrong(node, path, "cannot be set in a job file");
    }
  }

  absl::Status Enum(const YAML::Node& node, const std::string& path, const FieldDescriptor& field,
                    Message& message) {
    const EnumDescriptor& type = *field.enum_type();
    std::vector<std::string> names;
    for (int i = 0; i < type.value_count(); ++i) {
      const EnumValueDescriptor& value = *type.value(i);
      if (value.number() == 0) continue;
      if (ShortEnumName(value) == node.Scalar()) {
        const Reflection& reflection = *message.GetReflection();
        field.is_repeated() ? reflection.AddEnum(&message, &field, &value)
                            : reflection.SetEnum(&message, &field, &value);
        return absl::OkStatus();
      }
      names.push_back(ShortEnumName(value));
    }
    return Wrong(node, path, absl::StrCat("must be one of: ", absl::StrJoin(names, ", ")));
  }

  const std::string& file_;
};

}  // namespace

std::string ShortEnumName(const EnumValueDescriptor& value) {
  absl::string_view name = value.name();
  absl::ConsumePrefix(&name, absl::StrCat(UpperSnake(value.type()->name()), "_"));
  return absl::AsciiStrToLower(name);
}

absl::Status DecodeYaml(const YAML::Node& node, const std::string& file, const std::string& field,
                        Message& message) {
  return Decoder(file).Fill(node, field, message);
}

}  // namespace tessera
