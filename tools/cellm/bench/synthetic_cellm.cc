#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "cellm/bench/synthetic_model.h"
#include "cellm/bench/synthetic_noise.h"
#include "cellm/bench/synthetic_vocabulary.h"
#include "format/cellm_writer.h"
#include "format/quant_recipe.h"
#include "json/json.h"
#include "platform/file.h"
#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/packed.h"

namespace cellm::tools {
namespace {

// The format of one kind of tensor: floats, or a scheme.
struct Choice {
  Format floats = Format::kF16;
  format::QuantScheme scheme;  // bits 0: floats
};

struct Formats {
  Choice matrices, embedding;
};

Result<Choice> ParseChoice(std::string_view word) {
  Choice choice;
  if (word == "f32" || word == "f16" || word == "bf16") {
    choice.floats = FormatByName(word);
    return choice;
  }
  Result<format::QuantScheme> scheme = format::ParseQuantScheme(word);
  if (!scheme.ok() || scheme->bits == 0) {
    return InvalidArgument(
        "--format: '%s' is not f32, f16, bf16 or a scheme such as i8, i4:64, i4a:32, ternary",
        std::string(word).c_str());
  }
  choice.scheme = *scheme;
  return choice;
}

Result<Formats> ParseFormats(std::string_view word) {
  Formats formats;
  const size_t slash = word.find('/');
  CELLM_ASSIGN_OR_RETURN(formats.matrices, ParseChoice(word.substr(0, slash)));
  formats.embedding = formats.matrices;
  if (slash != std::string_view::npos) {
    CELLM_ASSIGN_OR_RETURN(formats.embedding, ParseChoice(word.substr(slash + 1)));
  } else if (formats.matrices.scheme.bits > 0 && formats.matrices.scheme.bits < 3) {
    CELLM_ASSIGN_OR_RETURN(formats.embedding, ParseChoice("i8"));
  }
  return formats;
}

// One tensor as it goes into the file.
struct Planned {
  const SyntheticTensor* tensor = nullptr;
  Format floats = Format::kF32;
  PackedLayout layout;  // bits 0: floats
  bool ternary = false;
  int64_t matrices = 1;
};

int64_t Elements(const SyntheticTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  return count;
}

Result<Planned> Plan(const SyntheticTensor& tensor, const Formats& formats) {
  Planned planned;
  planned.tensor = &tensor;
  const Choice& choice = tensor.is_embedding ? formats.embedding : formats.matrices;
  if (!tensor.quantised) {
    // Vectors stay exact; small matrices follow the floats.
    planned.floats = tensor.shape.size() > 1 ? choice.floats : Format::kF32;
    return planned;
  }
  planned.floats = choice.floats;
  if (choice.scheme.bits == 0) return planned;
  const size_t rank = tensor.shape.size();
  planned.matrices = rank == 3 ? tensor.shape[0] : 1;
  planned.ternary = choice.scheme.kind == format::QuantKind::kTernary;
  CELLM_ASSIGN_OR_RETURN(
      planned.layout,
      format::QuantLayout(choice.scheme, static_cast<int32_t>(tensor.shape[rank - 2]),
                          static_cast<int32_t>(tensor.shape[rank - 1])));
  return planned;
}

uint64_t BytesOf(const Planned& planned) {
  if (planned.layout.bits > 0) {
    return static_cast<uint64_t>(planned.matrices) * planned.layout.total_bytes();
  }
  const uint64_t width = planned.floats == Format::kF32 ? 4 : 2;
  return width * static_cast<uint64_t>(Elements(*planned.tensor));
}

Result<std::vector<Planned>> PlanAll(const std::vector<SyntheticTensor>& tensors,
                                     std::string_view format) {
  CELLM_ASSIGN_OR_RETURN(const Formats formats, ParseFormats(format));
  std::vector<Planned> all;
  for (const SyntheticTensor& tensor : tensors) {
    if (tensor.name.empty()) continue;
    CELLM_ASSIGN_OR_RETURN(Planned planned, Plan(tensor, formats));
    all.push_back(std::move(planned));
  }
  std::sort(all.begin(), all.end(),
            [](const Planned& a, const Planned& b) { return a.tensor->name < b.tensor->name; });
  return all;
}

constexpr size_t kBufferBytes = size_t{1} << 20;

Status AppendFloats(const Planned& planned, format::CellmWriter* writer) {
  const SyntheticTensor& tensor = *planned.tensor;
  Noise noise(tensor.name, kSyntheticSeed);
  std::vector<uint8_t> buffer;
  buffer.reserve(kBufferBytes + 4);
  for (int64_t left = Elements(tensor); left > 0; --left) {
    const float value =
        tensor.fill == Fill::kNoise ? tensor.deviation * noise.Normal() : tensor.deviation;
    const size_t at = buffer.size();
    if (planned.floats == Format::kF32) {
      buffer.resize(at + 4);
      StoreLe<float>(buffer.data() + at, value);
    } else {
      buffer.resize(at + 2);
      StoreLe<uint16_t>(buffer.data() + at,
                        planned.floats == Format::kF16 ? FloatToF16(value) : FloatToBf16(value));
    }
    if (buffer.size() < kBufferBytes && left > 1) continue;
    CELLM_RETURN_IF_ERROR(writer->Append(buffer));
    buffer.clear();
  }
  return OkStatus();
}

// Four codes of 0, 1 or 2 in one byte.
uint8_t TernaryByte(uint64_t bits) {
  uint8_t byte = 0;
  for (int i = 0; i < 4; ++i) {
    byte = static_cast<uint8_t>(byte | ((((bits >> (8 * i)) & 0xFF) * 3) >> 8) << (2 * i));
  }
  return byte;
}

// Tiles whose codes are drawn and whose scales are all the same.
Status AppendPacked(const Planned& planned, format::CellmWriter* writer) {
  const PackedLayout& layout = planned.layout;
  if (layout.rows % kTileRows != 0 || layout.cols % kChunkCols != 0) {
    return Internal("%s: a shape that leaves tiles unfilled", planned.tensor->name.c_str());
  }
  // Codes are uniform over 2^bits levels (ternary: over three).
  const float levels = planned.ternary ? 3.0f : static_cast<float>(1 << layout.bits);
  const float spread = planned.ternary ? 0.8165f : levels / 3.4641f;
  const float scale = planned.tensor->deviation / spread;
  const float middle = -0.5f * (levels - 1.0f) * scale;
  std::vector<uint8_t> tile(layout.tile_bytes(), 0);
  const size_t numbers = static_cast<size_t>(layout.groups()) * kTileRows;
  for (size_t i = 0; i < numbers * (layout.has_min ? 2 : 1); ++i) {
    const float value = i < numbers ? scale : middle;
    if (layout.scale_type == ScaleType::kF16) {
      StoreLe<uint16_t>(tile.data() + 2 * i, FloatToF16(value));
    } else {
      StoreLe<float>(tile.data() + 4 * i, value);
    }
  }
  Noise noise(planned.tensor->name, kSyntheticSeed);
  const int64_t tiles = planned.matrices * layout.tiles();
  for (int64_t t = 0; t < tiles; ++t) {
    uint8_t* const codes = tile.data() + layout.codes_offset();
    const size_t bytes = tile.size() - layout.codes_offset();
    for (size_t i = 0; i < bytes; i += 8) {
      const uint64_t bits = noise.Bits();
      std::memcpy(codes + i, &bits, 8);
      if (planned.ternary) {
        for (size_t k = 0; k < 8; ++k) codes[i + k] = TernaryByte(k == 0 ? bits : noise.Bits());
      } else if (layout.bits == 8) {
        for (size_t k = 0; k < 8; ++k) codes[i + k] = std::max<uint8_t>(codes[i + k], 1);
      }
    }
    CELLM_RETURN_IF_ERROR(writer->Append(tile));
  }
  return OkStatus();
}

}  // namespace

Result<uint64_t> SyntheticCellmBytes(const SyntheticShape& shape, std::string_view format) {
  const std::vector<SyntheticTensor> tensors = shape.Tensors();
  CELLM_ASSIGN_OR_RETURN(const std::vector<Planned> all, PlanAll(tensors, format));
  uint64_t bytes = 0;
  for (const Planned& planned : all) bytes += BytesOf(planned);
  return bytes;
}

Status WriteSyntheticCellm(const SyntheticShape& shape, std::string_view format,
                           const std::string& path) {
  const std::vector<SyntheticTensor> tensors = shape.Tensors();
  CELLM_ASSIGN_OR_RETURN(const std::vector<Planned> all, PlanAll(tensors, format));
  const std::string tokenizer = TokenizerJson(MakeVocabulary(shape.vocab));
  constexpr const char* kTokenizerName = "cellm/tokenizer.json";
  std::vector<format::CellmTensorPlan> plans;
  plans.push_back(
      {kTokenizerName, "u8", {static_cast<int64_t>(tokenizer.size())}, tokenizer.size()});
  for (const Planned& planned : all) {
    const std::string dtype = planned.layout.bits > 0
                                  ? PackedName(planned.layout)
                                  : std::string(GetFormatInfo(planned.floats).name);
    plans.push_back({planned.tensor->name, dtype, planned.tensor->shape, BytesOf(planned)});
  }
  std::string members = "\"cellm_version\":\"synthetic\",\"cellm_source_config\":";
  members += shape.ConfigJson();
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> file,
                         platform::SystemFiles().Create(path));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<format::CellmWriter> writer,
                         format::CellmWriter::Begin(file.get(), members, std::move(plans), false));
  // The tokenizer's name comes before those of the tensors, which are in order.
  CELLM_RETURN_IF_ERROR(
      writer->Append({reinterpret_cast<const uint8_t*>(tokenizer.data()), tokenizer.size()}));
  for (const Planned& planned : all) {
    CELLM_RETURN_IF_ERROR(planned.layout.bits > 0 ? AppendPacked(planned, writer.get())
                                                  : AppendFloats(planned, writer.get()));
  }
  CELLM_RETURN_IF_ERROR(writer->Finish());
  return file->Commit();
}

}  // namespace cellm::tools
