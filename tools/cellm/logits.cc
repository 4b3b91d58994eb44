// cellm logits: the raw logits after every token of a list, as one safetensors file.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cellm/commands.h"
#include "cellm/common.h"
#include "platform/file.h"

namespace cellm::tools {
namespace {

constexpr int64_t kMostBeside = 63;

// Writes rows as they come; positions arrive in order.
struct Output {
  platform::FileWriter* writer = nullptr;
  Status status;
  const CancelOnInterrupt* interrupt = nullptr;
};

int32_t OnLogits(size_t, size_t, const float* logits, int32_t vocabulary, void* user) {
  Output& output = *static_cast<Output*>(user);
  output.status = output.writer->Write(
      {reinterpret_cast<const uint8_t*>(logits), static_cast<size_t>(vocabulary) * sizeof(float)});
  // Ctrl-C leaves no half file behind.
  if (output.status.ok() && output.interrupt->interrupted()) output.status = Cancelled("stopped");
  return output.status.ok() ? 0 : 1;
}

// A safetensors file: 8 bytes of header length, the header (padded with spaces), the data.
Status WriteHeader(platform::FileWriter& writer, size_t tokens, int32_t vocabulary) {
  const uint64_t bytes =
      static_cast<uint64_t>(tokens) * static_cast<uint64_t>(vocabulary) * sizeof(float);
  std::string header = StrFormat(
      "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%zu,%d],"
      "\"data_offsets\":[0,%" PRIu64 "]}}",
      tokens, vocabulary, bytes);
  while (header.size() % 8 != 0) header.push_back(' ');
  uint8_t length[8];
  for (size_t i = 0; i < 8; ++i) {
    length[i] = static_cast<uint8_t>(static_cast<uint64_t>(header.size()) >> (8 * i));
  }
  CELLM_RETURN_IF_ERROR(writer.Write(length));
  return writer.Write({reinterpret_cast<const uint8_t*>(header.data()), header.size()});
}

int64_t BesideCount(const Arguments& arguments) { return arguments.Integer("beside", 0); }

// Room for all sequences in one step, and for logits of a whole chunk.
void Adjust(cellm_engine_options* options, const Arguments& arguments) {
  const uint32_t chunk = options->chunk_tokens == 0 ? 512 : options->chunk_tokens;
  options->chunk_tokens = chunk;
  options->step_tokens = chunk * static_cast<uint32_t>(BesideCount(arguments) + 1);
  options->logit_rows = std::min<uint32_t>(chunk, 512);
}

Status Write(const Arguments& arguments) {
  if (!arguments.Has("tokens")) return InvalidArgument("logits: give --tokens IDS");
  if (!arguments.Has("out")) return InvalidArgument("logits: give --out FILE");
  CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadTokenIds(arguments.Text("tokens")));
  if (ids.empty()) return InvalidArgument("--tokens: no ids");
  const int64_t beside = BesideCount(arguments);
  if (beside < 0 || beside > kMostBeside) {
    return InvalidArgument("--beside is %" PRId64 "; it must be from 0 to %" PRId64, beside,
                           kMostBeside);
  }
  CELLM_ASSIGN_OR_RETURN(const LoadedModel loaded, OpenModel(arguments, false));
  CELLM_ASSIGN_OR_RETURN(const EngineHandle engine,
                         OpenEngine(arguments, loaded.model.get(), Adjust));
  cellm_error error = CELLM_ERROR_INIT;
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  if (cellm_engine_get_info(engine.get(), &info, &error) != CELLM_OK) return ToStatus(error);

  // The neighbours: other tokens and other lengths, so that chunks end at different places.
  Rng rng(12345);
  std::vector<std::vector<int32_t>> others(static_cast<size_t>(beside));
  std::vector<cellm_token_list> lists(others.size() + 1);
  for (size_t i = 0; i < lists.size(); ++i) {
    lists[i] = CELLM_TOKEN_LIST_INIT;
    if (i == 0) {
      lists[i].ids = ids.data();
      lists[i].count = ids.size();
      continue;
    }
    std::vector<int32_t>& other = others[i - 1];
    const size_t length = 1 + rng.NextBelow(ids.size() + ids.size() / 2);
    const size_t most = std::min<size_t>(length, info.context_tokens);
    for (size_t k = 0; k < most; ++k) {
      other.push_back(static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(info.vocabulary))));
    }
    lists[i].flags = CELLM_EVALUATE_NO_LOGITS;
    lists[i].ids = other.data();
    lists[i].count = other.size();
  }

  const std::string out = arguments.Text("out");
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> writer,
                         platform::SystemFiles().Create(out));
  CELLM_RETURN_IF_ERROR(WriteHeader(*writer, ids.size(), info.vocabulary));
  Output output;
  output.writer = writer.get();
  const CancelOnInterrupt interrupt;
  output.interrupt = &interrupt;
  const cellm_status status =
      cellm_engine_evaluate(engine.get(), lists.data(), lists.size(), OnLogits, &output, &error);
  CELLM_RETURN_IF_ERROR(output.status);
  if (status != CELLM_OK) return ToStatus(error);
  CELLM_RETURN_IF_ERROR(writer->Commit());
  Note(arguments.Switch("quiet"),
       StrFormat("%s: logits [%zu, %d], %s kernels, %d threads", out.c_str(), ids.size(),
                 info.vocabulary, info.kernels, info.threads));
  return OkStatus();
}

}  // namespace

int RunLogits(const Arguments& arguments) {
  const Status status = Write(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
