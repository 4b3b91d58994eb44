// /v1/embeddings: texts or ids in, vectors out.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cellm/serve/endpoints.h"
#include "cellm/serve/openai_request.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr size_t kMaxInputs = 2048;

// The inputs as ids. A text gets the special tokens that the tokenizer adds.
ApiError ReadInputs(const OpenModelState& model, json::Value input,
                    std::vector<std::vector<int32_t>>* out) {
  const auto bad = [](const char* message) {
    return BadField("input", std::string("input: ") + message, "invalid_type");
  };
  std::vector<json::Value> items;
  if (input.is_string() || (input.is_array() && input.First().is_number())) {
    items.push_back(input);
  } else if (input.is_array()) {
    for (json::Value v = input.First(); v.exists(); v = input.Next(v)) items.push_back(v);
  }
  if (items.empty()) return bad("expected a string, token ids, or a list of one of them");
  if (items.size() > kMaxInputs) return bad("more than 2048 inputs");
  for (const json::Value item : items) {
    std::vector<int32_t> ids;
    std::string_view text;
    if (item.GetString(&text)) {
      if (text.empty()) return bad("a text is empty");
      size_t count = 0;
      cellm_error error = CELLM_ERROR_INIT;
      ids.resize(text.size() + 8);
      cellm_status status =
          cellm_model_tokenize(model.model.get(), text.data(), text.size(),
                               CELLM_TOKENIZE_ADD_SPECIAL, ids.data(), ids.size(), &count, &error);
      if (status == CELLM_OUT_OF_RANGE) {
        ids.resize(count);
        status = cellm_model_tokenize(model.model.get(), text.data(), text.size(),
                                      CELLM_TOKENIZE_ADD_SPECIAL, ids.data(), ids.size(), &count,
                                      &error);
      }
      if (status != CELLM_OK) return FromCellm(error, "input");
      ids.resize(count);
    } else if (item.is_array() && item.size() > 0) {
      for (json::Value v = item.First(); v.exists(); v = item.Next(v)) {
        int64_t id = 0;
        if (!v.GetInt64(&id) || id < 0 || id > INT32_MAX) return bad("expected token ids");
        ids.push_back(static_cast<int32_t>(id));
      }
    } else {
      return bad("expected strings or lists of token ids");
    }
    out->push_back(std::move(ids));
  }
  return {};
}

std::string Base64(const float* values, size_t count) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values, bytes.size());
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < have ? bytes[i + j] : 0u);
    for (size_t j = 0; j < 4; ++j) {
      out.push_back(j <= have ? kDigits[group >> (18 - 6 * j) & 63] : '=');
    }
  }
  return out;
}

std::string VectorJson(const float* values, size_t count, bool base64) {
  if (base64) return json::Quote(Base64(values, count));
  std::string list;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) list += ", ";
    list += StrFormat("%.9g", static_cast<double>(values[i]));
  }
  return Bracketed(list);
}

struct EmbeddingRequest {
  std::string model;
  json::Value input;
  bool base64 = false;
  cellm_embed_options options = CELLM_EMBED_OPTIONS_INIT;
};

ApiError ParseEmbeddingRequest(ServerState& state, json::Value body, EmbeddingRequest* out) {
  Fields fields(body);
  (void)fields.Text("model", &out->model);
  if (!fields.Any("input", &out->input) && fields.ok()) {
    fields.Fail("input", "missing", "missing_required_parameter");
  }
  std::string text;
  if (fields.Text("encoding_format", &text)) {
    out->base64 = text == "base64";
    if (!out->base64 && text != "float") {
      fields.Fail("encoding_format", "expected float or base64", "invalid_value");
    }
  }
  if (fields.Text("pooling", &text)) {
    out->options.pooling = text == "last" ? CELLM_POOLING_LAST : CELLM_POOLING_MEAN;
    if (text != "last" && text != "mean") {
      fields.Fail("pooling", "expected mean or last", "invalid_value");
    }
  }
  bool normalize = true;
  (void)fields.Bool("normalize", &normalize);
  if (normalize) out->options.flags |= CELLM_EMBED_NORMALIZE;
  json::Value ignored;
  (void)fields.Any("user", &ignored);
  int64_t dimensions = 0;
  if (fields.Integer("dimensions", 1, INT32_MAX, &dimensions)) {
    fields.Fail("dimensions", "this model's vectors have one length; leave it out", "unsupported");
  }
  if (fields.ok()) state.NoteUnknown("/v1/embeddings", fields.Unknown());
  return fields.error();
}

}  // namespace

int ServeEmbeddings(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  EmbeddingRequest request;
  ApiError error = ParseBody(exchange.request().body, &body);
  if (error.ok()) error = ParseEmbeddingRequest(state, body->root(), &request);
  if (!error.ok()) return Answer(exchange, error, {});
  const Admission admission(&state);
  if (!admission.error().ok()) return Answer(exchange, admission.error(), {});
  ModelLease model;
  error = state.models.Acquire(request.model, &model);
  std::vector<std::vector<int32_t>> inputs;
  if (error.ok()) error = ReadInputs(*model, request.input, &inputs);
  if (!error.ok()) return Answer(exchange, error, {});

  std::vector<cellm_token_list> lists;
  uint64_t tokens = 0;
  for (const std::vector<int32_t>& ids : inputs) {
    cellm_token_list list = CELLM_TOKEN_LIST_INIT;
    list.ids = ids.data();
    list.count = ids.size();
    lists.push_back(list);
    tokens += ids.size();
  }
  const size_t length = static_cast<size_t>(model->hidden);
  std::vector<float> vectors(lists.size() * length);
  size_t floats = 0;
  cellm_error failure = CELLM_ERROR_INIT;
  const std::shared_ptr<const Watch> client = model->runner->WatchClient(exchange.socket());
  request.options.stop_flag = client->gone_flag();
  const cellm_status status =
      cellm_engine_embed(model->engine.get(), lists.data(), lists.size(), &request.options,
                         vectors.data(), vectors.size(), &floats, &failure);
  if (status == CELLM_CANCELLED && client->client_gone()) {
    state.metrics.departed.fetch_add(1, std::memory_order_relaxed);
    return 499;  // as nginx counts them; nobody is there to read it
  }
  if (status != CELLM_OK) return Answer(exchange, FromCellm(failure, "input"), {});
  std::string data;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (i > 0) data += ", ";
    data += JsonObject()
                .Add("object", "embedding")
                .Add("index", static_cast<uint64_t>(i))
                .AddRaw("embedding", VectorJson(&vectors[i * length], length, request.base64))
                .Finish();
  }
  const std::string usage =
      JsonObject().Add("prompt_tokens", tokens).Add("total_tokens", tokens).Finish();
  ReplyJson(exchange, JsonObject()
                          .Add("object", "list")
                          .AddRaw("data", Bracketed(data))
                          .Add("model", model->name)
                          .AddRaw("usage", usage)
                          .Finish());
  return 200;
}

}  // namespace cellm::tools::serve
