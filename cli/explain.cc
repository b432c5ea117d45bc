// explain: what a field of the job file may be, from the comments of spec.proto.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <stdio.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/spec_descriptor.h"
#include "cli/yaml_decoder.h"

namespace tessera {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

template <typename Any>
std::string CommentOf(const Any& descriptor) {
  google::protobuf::SourceLocation location;
  if (!descriptor.GetSourceLocation(&location)) return "";
  return std::string(
      absl::StripAsciiWhitespace(absl::StrReplaceAll(location.leading_comments, {{"\n ", "\n"}})));
}

std::string TypeOf(const FieldDescriptor& field) {
  std::string type = field.cpp_type_name();
  if (field.message_type() != nullptr) type = "fields";
  if (field.enum_type() != nullptr) type = "one of";
  return field.is_repeated() ? absl::StrCat("list of ", type) : type;
}

void PrintMessage(const Descriptor& message) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    printf("\n  %s  (%s)\n    %s\n", field.name().c_str(), TypeOf(field).c_str(),
           absl::StrReplaceAll(CommentOf(field), {{"\n", "\n    "}}).c_str());
  }
}

void PrintEnum(const EnumDescriptor& type) {
  for (int i = 1; i < type.value_count(); ++i) {
    printf("\n  %s\n", ShortEnumName(*type.value(i)).c_str());
    const std::string comment = CommentOf(*type.value(i));
    if (!comment.empty()) printf("    %s\n", comment.c_str());
  }
}

}  // namespace

int RunExplain(const std::string& path) {
  google::protobuf::FileDescriptorSet files;
  DescriptorPool pool;
  if (!files.ParseFromString(SpecDescriptorSet())) {
    fputs("error: INTERNAL: the embedded descriptor cannot be parsed\n", stderr);
    return kCliFailed;
  }
  for (const auto& file : files.file()) pool.BuildFile(file);
  const Descriptor* message = pool.FindMessageTypeByName("tessera.v1.TrainingJobSpec");
  std::string where = "spec";
  const FieldDescriptor* field = nullptr;
  for (absl::string_view part : absl::StrSplit(path, '.')) {
    if (part.empty() || (part == "spec" && field == nullptr)) continue;
    const std::string name(part.substr(0, part.find('[')));
    const FieldDescriptor* next = message == nullptr ? nullptr : message->FindFieldByName(name);
    if (next == nullptr) {
      fprintf(stderr, "error: NOT_FOUND: %s has no field \"%s\"\n", where.c_str(), name.c_str());
      return kCliPrecondition;
    }
    field = next;
    message = field->message_type();
    absl::StrAppend(&where, ".", name);
  }
  if (field == nullptr) {
    printf("%s: a training job; the job file has these fields\n", where.c_str());
    PrintMessage(*message);
    return kCliOk;
  }
  printf("%s  (%s)\n%s\n", where.c_str(), TypeOf(*field).c_str(), CommentOf(*field).c_str());
  if (field->message_type() != nullptr) PrintMessage(*field->message_type());
  if (field->enum_type() != nullptr) PrintEnum(*field->enum_type());
  return kCliOk;
}

}  // namespace tessera
