// cellm inspect: what is in a model file, and whether it is whole.
#include <algorithm>
#include <cinttypes>
#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cellm/commands.h"
#include "cellm/common.h"
#include "format/model_file.h"
#include "json/json.h"
#include "kernels/kernel_table.h"
#include "tensor/format.h"
#include "tensor/packed.h"

namespace cellm::tools {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

// "packed i8 row" and the like; the bare name for other formats.
std::string FormatText(const format::Tensor& tensor) {
  if (tensor.format != Format::kPacked) return std::string(GetFormatInfo(tensor.format).name);
  return PackedName(tensor.packed);
}

std::string SizeText(uint64_t bytes) {
  if (bytes < 10000) return std::to_string(bytes) + " B";
  return StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
}

uint64_t Elements(const format::Tensor& tensor) {
  uint64_t count = 1;
  for (const int64_t dimension : tensor.shape) count *= static_cast<uint64_t>(dimension);
  return count;
}

// Texts are stored as u8 tensors whose names begin with "cellm/".
bool IsText(const format::Tensor& tensor) { return tensor.name.starts_with("cellm/"); }

struct Totals {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t elements = 0;
};

std::map<std::string, Totals> TotalsByFormat(const format::ModelFile& file, Totals* all) {
  std::map<std::string, Totals> totals;
  for (const format::Tensor& tensor : file.tensors) {
    if (IsText(tensor)) continue;
    for (Totals* total : {&totals[FormatText(tensor)], all}) {
      ++total->count;
      total->bytes += tensor.data.size();
      total->elements += Elements(tensor);
    }
  }
  return totals;
}

struct NamedText {
  const char* name;
  std::string_view text;
};

std::vector<NamedText> TextsOf(const format::ModelFile& file) {
  return {{"tokenizer.json", file.tokenizer_json},
          {"tokenizer.gguf", file.tokenizer_gguf},
          {"tokenizer_config.json", file.tokenizer_config_json},
          {"chat_template.jinja", file.chat_template},
          {"generation_config.json", file.generation_config_json},
          {"processor_config.json", file.processor_config_json}};
}

size_t ChecksumCount(const format::ModelFile& file) {
  return static_cast<size_t>(
      std::count_if(file.tensors.begin(), file.tensors.end(),
                    [](const format::Tensor& tensor) { return tensor.has_checksum; }));
}

uint64_t FileBytes(const format::ModelFile& file) {
  uint64_t bytes = 0;
  for (const platform::FileMapping& mapping : file.files) bytes += mapping.bytes().size();
  return bytes;
}

std::string JsonReport(const format::ModelFile& file, bool verified) {
  Totals all;
  (void)TotalsByFormat(file, &all);
  std::string tensors = "[";
  for (const format::Tensor& tensor : file.tensors) {
    if (tensors.size() > 1) tensors += ", ";
    JsonObject entry;
    entry.Add("name", tensor.name)
        .Add("format", FormatText(tensor))
        .AddRaw("shape", ShapeText(tensor.shape))
        .Add("bytes", static_cast<uint64_t>(tensor.data.size()))
        .Add("file", static_cast<uint64_t>(tensor.file_index))
        .Add("offset", tensor.file_offset);
    if (tensor.has_checksum) entry.Add("xxh3", StrFormat("%016" PRIx64, tensor.checksum));
    tensors += entry.Finish();
  }
  std::string notes = "[";
  for (const std::string& note : file.notes) {
    if (notes.size() > 1) notes += ", ";
    notes += json::Quote(note);
  }
  JsonObject texts;
  for (const NamedText& text : TextsOf(file)) {
    if (!text.text.empty()) texts.Add(text.name, static_cast<uint64_t>(text.text.size()));
  }
  JsonObject object;
  object.Add("path", file.path)
      .Add("container", file.container)
      .Add("bytes", FileBytes(file))
      .Add("parameters", all.elements)
      .Add("tensor_bytes", all.bytes)
      .AddRaw("config", json::Serialize(file.config->root()))
      .AddRaw("texts", texts.Finish())
      .Add("chat_template_xxh3", StrFormat("%016" PRIx64, HashXxh3(file.chat_template)))
      .Add("checksums", static_cast<uint64_t>(ChecksumCount(file)))
      .Add("verified", verified)
      .AddRaw("quantization", file.quantization_json.empty() ? "null" : file.quantization_json)
      .AddRaw("quality", file.quality_json.empty() ? "null" : file.quality_json)
      .AddRaw("notes", notes + "]")
      .AddRaw("tensors", tensors + "]");
  return object.Finish();
}

void PrintConfig(json::Value config) {
  Print("configuration\n");
  for (json::Value v = config.First(); v.exists(); v = config.Next(v)) {
    std::string value = json::Serialize(v);
    if (value.size() > 90) value = value.substr(0, 87) + "...";
    Print(StrFormat("  %-28s %s\n", std::string(config.KeyOf(v)).c_str(), value.c_str()));
  }
}

void PrintReport(const format::ModelFile& file) {
  Print(StrFormat("%s: %s, %s\n", file.path.c_str(), file.container.c_str(),
                  SizeText(FileBytes(file)).c_str()));
  PrintConfig(file.config->root());
  Print("texts\n");
  for (const NamedText& text : TextsOf(file)) {
    if (text.text.empty()) continue;
    Print(StrFormat("  %-28s %zu bytes, xxh3 %016" PRIx64 "\n", text.name, text.text.size(),
                    HashXxh3(text.text)));
  }
  Print("tensors\n");
  for (const format::Tensor& tensor : file.tensors) {
    if (IsText(tensor)) continue;
    Print(StrFormat("  %-56s %-14s %-18s %s\n", tensor.name.c_str(), FormatText(tensor).c_str(),
                    ShapeText(tensor.shape).c_str(), SizeText(tensor.data.size()).c_str()));
  }
  Totals all;
  Print("totals\n");
  for (const auto& [name, total] : TotalsByFormat(file, &all)) {
    Print(StrFormat("  %-14s %6" PRIu64 " tensors, %s\n", name.c_str(), total.count,
                    SizeText(total.bytes).c_str()));
  }
  if (all.elements > 0) {
    Print(StrFormat("  all            %6" PRIu64
                    " tensors, %s, %.2f M parameters, %.2f bits each\n",
                    all.count, SizeText(all.bytes).c_str(), static_cast<double>(all.elements) / 1e6,
                    static_cast<double>(all.bytes) * 8 / static_cast<double>(all.elements)));
  }
  if (!file.quality_json.empty()) Print("quality\n  " + std::string(file.quality_json) + "\n");
  for (const std::string& note : file.notes) Print("note: " + note + "\n");
}

Status InspectKernels(bool json) {
  CELLM_ASSIGN_OR_RETURN(const kernels::ChosenKernels chosen, kernels::ChooseKernels(""));
  std::string list = "[";
  for (const kernels::Tier& tier : kernels::AllTiers()) {
    const bool runs = tier.runs_here();
    const bool agrees = runs && kernels::AgreesWithScalar(*tier.table);
    const char* state = !runs ? "this CPU lacks it" : agrees ? "runs here" : "fails its self-test";
    if (json) {
      if (list.size() > 1) list += ", ";
      list += JsonObject()
                  .Add("tier", tier.name)
                  .Add("runs_here", runs)
                  .Add("self_test", agrees)
                  .Add("chosen", tier.name == chosen.tier)
                  .Finish();
    } else {
      Print(StrFormat("%c %-12s %s\n", tier.name == chosen.tier ? '*' : ' ',
                      std::string(tier.name).c_str(), state));
    }
  }
  if (json) Print("{\"kernels\": " + list + "]}\n");
  if (!json) Print("* the best tier that runs here and agrees with scalar is used\n");
  return OkStatus();
}

Status Inspect(const Arguments& arguments) {
  const bool json = arguments.Switch("json");
  if (arguments.positional().size() > 1) {
    return InvalidArgument("unexpected argument '%s'", arguments.positional()[1].c_str());
  }
  const bool has_argument = !arguments.positional().empty();
  if (has_argument && arguments.Has("model")) {
    return InvalidArgument("--model and an argument exclude each other");
  }
  if (arguments.Switch("kernels")) return InspectKernels(json);
  CELLM_ASSIGN_OR_RETURN(
      const std::string path,
      FindModelPath(has_argument ? arguments.positional()[0] : arguments.Text("model")));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<format::ModelFile> file,
                         format::OpenModelFile(platform::SystemFiles(), path));
  const bool verify = arguments.Switch("verify");
  if (verify) CELLM_RETURN_IF_ERROR(format::VerifyChecksums(*file));
  const size_t checksums = ChecksumCount(*file);
  if (json) {
    Print(JsonReport(*file, verify && checksums > 0) + "\n");
    return OkStatus();
  }
  if (!verify) {
    PrintReport(*file);
  } else if (checksums > 0) {
    Print(StrFormat("%s: %zu checksums are right\n", path.c_str(), checksums));
  } else {
    Print(StrFormat("%s: the file carries no checksums; its structure is right\n", path.c_str()));
  }
  return OkStatus();
}

}  // namespace

int RunInspect(const Arguments& arguments) {
  const Status status = Inspect(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
