// cellm convert and cellm quantize: any model to one .cellm file.
#include "format/convert.h"

#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/convert_calibrate.h"
#include "cellm/convert_check.h"
#include "cellm/progress.h"
#include "format/model_file.h"
#include "platform/file.h"

namespace cellm::tools {
namespace {

// What the converter's progress goes to. Ctrl-C stops between tensors, so that nothing half done
// stays on the disk.
struct Watch {
  Progress progress;
  CancelOnInterrupt interrupt;
};

bool Report(void* user, uint64_t done, uint64_t total, std::string_view) {
  Watch& watch = *static_cast<Watch*>(user);
  watch.progress.Update(done, total);
  return !watch.interrupt.interrupted();
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
  if (report.uncalibrated != 0) {
    Note(false, StrFormat("note: %" PRId64 " tensors were never reached by the calibration text",
                          report.uncalibrated));
  }
  for (const std::string& note : report.notes) Note(false, "note: " + note);
  Note(false, StrFormat("%s: %.1f MB, %.2f bits a weight", output.c_str(),
                        static_cast<double>(report.file_bytes) / 1e6, report.BitsPerWeight()));
}

// Writes `model` to `output`.
Result<format::ConvertReport> Write(const format::ModelFile& model,
                                    const format::ConvertOptions& options,
                                    const std::string& output) {
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> writer,
                         platform::SystemFiles().Create(output));
  return format::ConvertModel(model, options, writer.get());
}

// The same with a calibration: the file is first written beside `output`, measured against its
// source, and then copied with what was measured.
Result<format::ConvertReport> WriteCalibrated(const format::ModelFile& model,
                                              format::ConvertOptions options,
                                              Calibrator* calibrator, const std::string& output,
                                              bool quiet) {
  platform::FileSystem& files = platform::SystemFiles();
  const std::string draft = output + ".draft";
  options.calibration = &calibrator->inputs();
  const format::ConvertCheck check = std::exchange(options.check, {});  // of the last file only
  CELLM_ASSIGN_OR_RETURN(format::ConvertReport report, Write(model, options, draft));
  const auto finish = [&]() -> Status {
    CELLM_ASSIGN_OR_RETURN(std::string ledger, calibrator->MeasureFile(draft, quiet));
    Note(quiet, "  measured on the calibration text: " + ledger);
    CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<format::ModelFile> written,
                           format::OpenModelFile(files, draft));
    CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> writer,
                           files.Create(output));
    return format::RewriteWithQuality(*written, options.version, std::move(ledger), check,
                                      writer.get())
        .status();
  };
  const Status status = finish();
  (void)std::remove(draft.c_str());
  if (!status.ok()) return status;
  return report;
}

Status Convert(const Arguments& arguments, format::ConvertOptions options) {
  // "convert SOURCE FILE": arguments stand for the flags that are not given, in this order.
  std::string input = arguments.Text("input");
  std::string output = arguments.Text("output");
  for (const std::string& argument : arguments.positional()) {
    if (argument.empty()) return InvalidArgument("an argument is empty; a path was expected");
    if (input.empty() || output.empty()) {
      (input.empty() ? input : output) = argument;
      continue;
    }
    return InvalidArgument("unexpected argument '%s'", argument.c_str());
  }
  if (input.empty()) return InvalidArgument("give the model to read: an argument, or --input PATH");
  if (output.empty())
    return InvalidArgument("give the file to write: a second argument, or --output FILE");
  if (arguments.Text("layout", "packed") == "v1") options.layout = format::ConvertLayout::kV1;
  options.version = std::string("cellm ") + cellm_version_string();
  options.requantize = arguments.Switch("requantize");
  const bool quiet = arguments.Switch("quiet");
  const bool calibrated = arguments.Has("calibrate");
  if (calibrated && options.layout == format::ConvertLayout::kV1) {
    return InvalidArgument("--calibrate and --layout v1 exclude each other");
  }
  const int64_t tokens = arguments.Integer("calibrate-tokens", 32768);
  if (tokens < 256) return InvalidArgument("--calibrate-tokens is below 256");

  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<format::ModelFile> model,
                         format::OpenModelFile(platform::SystemFiles(), input));
  std::optional<Calibrator> calibrator;
  if (calibrated) {
    CELLM_ASSIGN_OR_RETURN(const uint64_t memory,
                           ParseSize("calibrate-memory", arguments.Text("calibrate-memory", "4G")));
    CELLM_ASSIGN_OR_RETURN(calibrator,
                           Calibrator::Run(input, arguments.Text("calibrate"),
                                           static_cast<uint64_t>(tokens), memory, quiet));
  }
  Watch watch = {Progress("convert", quiet), {}};
  options.progress = {Report, &watch};
  options.check = {CheckLoads, &input};
  Result<format::ConvertReport> report =
      calibrated ? WriteCalibrated(*model, options, &*calibrator, output, quiet)
                 : Write(*model, options, output);
  watch.progress.Clear();
  if (!report.ok()) {
    const Status& status = report.status();
    const bool named = status.message().find(output) != std::string::npos ||
                       status.message().find(input) != std::string::npos;
    return named ? status : Status(status).WithContext(input);
  }
  if (!quiet) PrintSummary(output, *report);
  return OkStatus();
}

// --quantize, --recipe and --mixed, of which one at most may be given. Without: no rules.
Result<format::QuantRecipe> ReadRecipe(const Arguments& arguments) {
  const bool word = arguments.Has("quantize");
  const bool file = arguments.Has("recipe");
  const bool mixed = arguments.Has("mixed");
  if (word + file + mixed > 1) {
    return InvalidArgument("--quantize, --recipe and --mixed exclude each other");
  }
  if (file) {
    CELLM_ASSIGN_OR_RETURN(const std::string text, ReadInput(arguments.Text("recipe")));
    Result<format::QuantRecipe> recipe = format::ParseQuantRecipe(text);
    if (recipe.ok()) return recipe;
    return Corrupt("%s: %s", arguments.Text("recipe").c_str(), recipe.status().message().c_str());
  }
  if (mixed) {
    Result<format::QuantRecipe> recipe = format::MixedRecipe(arguments.Text("mixed"));
    if (recipe.ok()) return recipe;
    return InvalidArgument("--mixed: %s", recipe.status().message().c_str());
  }
  format::QuantRecipe recipe;
  if (!word) return recipe;
  CELLM_ASSIGN_OR_RETURN(const format::QuantScheme scheme,
                         format::ParseQuantScheme(arguments.Text("quantize")));
  // A lookup table feels every error in every token.
  const std::string table =
      arguments.Text("quantize-embedding", scheme.bits > 0 && scheme.bits <= 4 ? "i6" : "i8");
  CELLM_ASSIGN_OR_RETURN(const format::QuantScheme embedding, format::ParseQuantScheme(table));
  recipe.name = format::QuantSchemeName(scheme);
  recipe.rules = {{"@embedding", embedding}, {"@head", embedding}, {"*", scheme}};
  return recipe;
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
  CELLM_ASSIGN_OR_RETURN(format::QuantRecipe recipe, ReadRecipe(arguments));
  if ((int8 || int4) && !recipe.rules.empty()) {
    return InvalidArgument(
        "--quantize, --recipe and --mixed exclude --quantize-int8-symmetric and "
        "--quantize-int4-symmetric");
  }
  if (arguments.Has("quantize-embedding") && !arguments.Has("quantize")) {
    return InvalidArgument("--quantize-embedding needs --quantize");
  }
  if (arguments.Has("calibrate") && !int8 && !int4 && recipe.rules.empty()) {
    return InvalidArgument("--calibrate needs --quantize, --recipe or --mixed");
  }
  format::ConvertOptions options;
  if (int8) options = format::Int8Options();
  if (int4) {
    CELLM_ASSIGN_OR_RETURN(const int32_t group, GroupSize(arguments));
    options = format::Int4Options(group);
  }
  options.recipe = std::move(recipe);
  const std::string dtype = arguments.Text("dtype", "source");
  options.dtype = dtype == "f16"    ? Format::kF16
                  : dtype == "bf16" ? Format::kBF16
                  : dtype == "f32"  ? Format::kF32
                                    : Format::kCount;
  return Convert(arguments, options);
}

Status QuantizeWithFlags(const Arguments& arguments) {
  CELLM_ASSIGN_OR_RETURN(format::QuantRecipe recipe, ReadRecipe(arguments));
  if (!recipe.rules.empty()) {
    if (arguments.Has("mode") || arguments.Has("group-size")) {
      return InvalidArgument("--quantize, --recipe and --mixed exclude --mode and --group-size");
    }
    format::ConvertOptions options;
    options.recipe = std::move(recipe);
    return Convert(arguments, options);
  }
  if (arguments.Has("quantize-embedding")) {
    return InvalidArgument("--quantize-embedding needs --quantize");
  }
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
