// cellm convert and cellm quantize: any model to one .cellm file.
#include "format/convert.h"

#include <cinttypes>
#include <string>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/progress.h"
#include "format/model_file.h"
#include "platform/file.h"

namespace cellm::tools {
namespace {

bool Report(void* user, uint64_t done, uint64_t total, std::string_view) {
  static_cast<Progress*>(user)->Update(done, total);
  return true;
}

void PrintSummary(const std::string& output, const format::ConvertReport& report) {
  for (int role = 0; role < static_cast<int>(format::TensorRole::kCount); ++role) {
    const format::RoleReport& row = report.roles[role];
    if (row.tensors == 0) continue;
    std::string line = StrFormat(
        "  %-12s %4" PRId64 " tensors, %7.2f M weights, %5.2f bits each",
        format::RoleName(static_cast<format::TensorRole>(role)), row.tensors,
        static_cast<double>(row.weights) / 1e6,
        row.weights == 0 ? 0.0
                         : static_cast<double>(row.bytes) * 8 / static_cast<double>(row.weights));
    if (row.squared_error > 0) line += StrFormat(", relative error %.3g", row.RelativeError());
    Note(false, line);
  }
  for (const std::string& note : report.notes) Note(false, "note: " + note);
  Note(false, StrFormat("%s: %.1f MB, %.2f bits a weight", output.c_str(),
                        static_cast<double>(report.file_bytes) / 1e6, report.BitsPerWeight()));
}

Status Convert(const Arguments& arguments, format::ConvertOptions options) {
  const std::string input = arguments.Text("input");
  const std::string output = arguments.Text("output");
  if (input.empty()) return InvalidArgument("give the model with --input PATH");
  if (output.empty()) return InvalidArgument("give the file to write with --output FILE");
  if (arguments.Text("layout", "packed") == "v1") options.layout = format::ConvertLayout::kV1;
  options.version = std::string("cellm ") + cellm_version_string();
  const bool quiet = arguments.Switch("quiet");
  Progress progress("convert", quiet);
  options.progress = {Report, &progress};

  platform::FileSystem& files = platform::SystemFiles();
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<format::ModelFile> model,
                         format::OpenModelFile(files, input));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> writer, files.Create(output));
  Result<format::ConvertReport> report = format::ConvertModel(*model, options, writer.get());
  progress.Clear();
  if (!report.ok()) {
    const Status& status = report.status();
    const bool named = status.message().find(output) != std::string::npos ||
                       status.message().find(input) != std::string::npos;
    return named ? status : Status(status).WithContext(input);
  }
  if (!quiet) PrintSummary(output, *report);
  return OkStatus();
}

// The columns that share a scale: 0 (the row), 32, 64 or 128.
Result<int32_t> GroupSize(const Arguments& arguments) {
  const int64_t group = arguments.Integer("group-size", 32);
  if (group != 0 && group != 32 && group != 64 && group != 128) {
    return InvalidArgument("--group-size is %" PRId64 "; it must be 32, 64, 128, or 0 for the row",
                           group);
  }
  return static_cast<int32_t>(group);
}

Status ConvertWithFlags(const Arguments& arguments) {
  const bool int8 = arguments.Switch("quantize-int8-symmetric");
  const bool int4 = arguments.Switch("quantize-int4-symmetric");
  if (int8 && int4) {
    return InvalidArgument(
        "--quantize-int8-symmetric and --quantize-int4-symmetric exclude each "
        "other");
  }
  if (arguments.Has("group-size") && !int4) {
    return InvalidArgument("--group-size needs --quantize-int4-symmetric");
  }
  format::ConvertOptions options;
  if (int8) options = format::Int8Options();
  if (int4) {
    CELLM_ASSIGN_OR_RETURN(const int32_t group, GroupSize(arguments));
    options = format::Int4Options(group);
  }
  const std::string dtype = arguments.Text("dtype", "source");
  options.dtype = dtype == "f16"    ? Format::kF16
                  : dtype == "bf16" ? Format::kBF16
                  : dtype == "f32"  ? Format::kF32
                                    : Format::kCount;
  return Convert(arguments, options);
}

Status QuantizeWithFlags(const Arguments& arguments) {
  const bool int8 = arguments.Text("mode", "i4") == "i8";
  if (int8) {
    if (arguments.Has("group-size")) return InvalidArgument("--group-size needs --mode i4");
    return Convert(arguments, format::Int8Options());
  }
  CELLM_ASSIGN_OR_RETURN(const int32_t group, GroupSize(arguments));
  return Convert(arguments, format::Int4Options(group));
}

}  // namespace

int RunConvert(const Arguments& arguments) {
  const Status status = ConvertWithFlags(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

int RunQuantize(const Arguments& arguments) {
  const Status status = QuantizeWithFlags(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
