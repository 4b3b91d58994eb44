// cellm render: what a chat template makes of variables.
#include <string>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "json/json.h"

namespace cellm::tools {
namespace {

struct Renderer {
  const cellm_model* model = nullptr;  // null: `source`
  std::string source;
  bool source_per_line = false;
  std::string now;
  uint32_t flags = 0;
};

// One render. On failure *error says why.
cellm_status Render(const Renderer& renderer, json::Value variables, std::string* out,
                    cellm_error* error) {
  std::string source = renderer.source;
  json::Value vars = variables;
  if (renderer.source_per_line) {
    std::string_view text;
    if (variables.Find("template").GetString(&text)) source = text;
    vars = variables.Find("vars");
  }
  uint32_t flags = renderer.flags;
  bool continues = false;
  if (vars.is_object() && vars.Find("continue_final_message").GetBool(&continues) && continues) {
    flags |= CELLM_CHAT_CONTINUE_FINAL;
  }
  const std::string json = vars.exists() ? json::Serialize(vars) : "{}";
  size_t bytes = 0;
  out->resize(json.size() * 2 + source.size() * 2 + 4096);
  for (;;) {
    cellm_status status = CELLM_OK;
    if (renderer.model != nullptr) {
      status = cellm_model_render_variables(renderer.model, json.data(), json.size(),
                                            renderer.now.data(), renderer.now.size(), flags,
                                            out->data(), out->size(), &bytes, error);
    } else {
      status = cellm_template_render(source.data(), source.size(), json.data(), json.size(),
                                     renderer.now.data(), renderer.now.size(), flags, out->data(),
                                     out->size(), &bytes, error);
    }
    const bool too_small = status == CELLM_OUT_OF_RANGE && bytes > out->size();
    out->resize(bytes);
    if (!too_small) return status;
  }
}

Status Lines(const Renderer& renderer, const std::string& path) {
  CELLM_ASSIGN_OR_RETURN(const std::string content, ReadInput(path));
  size_t number = 0;
  for (const std::string_view line : SplitLines(content)) {
    const std::string place = path + ": line " + std::to_string(++number);
    CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> document,
                           json::Document::Parse(line, place));
    std::string text;
    cellm_error error = CELLM_ERROR_INIT;
    JsonObject object;
    if (Render(renderer, document->root(), &text, &error) == CELLM_OK) {
      object.Add("result", text);
    } else if (error.kind[0] != '\0') {
      object.Add("error", error.message).Add("error_type", error.kind);
    } else {
      return ToStatus(error).WithContext(place);
    }
    if (!Print(object.Finish() + "\n")) return IoError("standard output cannot be written");
  }
  return OkStatus();
}

Status RenderAll(const Arguments& arguments) {
  Renderer renderer;
  renderer.now = arguments.Text("now");
  if (arguments.Switch("continue-final-message")) renderer.flags |= CELLM_CHAT_CONTINUE_FINAL;
  if (arguments.Has("vars") == arguments.Has("jsonl")) {
    return InvalidArgument("render: give either --vars FILE or --jsonl FILE");
  }
  if (arguments.Has("template") && arguments.Has("model")) {
    return InvalidArgument("--template and --model exclude each other");
  }
  ModelHandle model;
  if (arguments.Has("template")) {
    CELLM_ASSIGN_OR_RETURN(renderer.source, ReadInput(arguments.Text("template")));
  } else if (arguments.Has("jsonl") && !arguments.Has("model")) {
    renderer.source_per_line = true;
  } else {
    CELLM_ASSIGN_OR_RETURN(const std::string path, FindModelPath(arguments.Text("model")));
    cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
    options.flags = CELLM_MODEL_TOKENIZER_ONLY;
    cellm_error error = CELLM_ERROR_INIT;
    cellm_model* pointer = nullptr;
    if (cellm_model_open(path.data(), path.size(), &options, &pointer, &error) != CELLM_OK) {
      return ToStatus(error);
    }
    model.reset(pointer);
    renderer.model = pointer;
  }
  if (arguments.Has("jsonl")) return Lines(renderer, arguments.Text("jsonl"));

  const std::string path = arguments.Text("vars");
  CELLM_ASSIGN_OR_RETURN(const std::string content, ReadInput(path));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> document,
                         json::Document::Parse(content, path));
  if (!document->root().is_object()) {
    return Corrupt("%s: the variables must be a JSON object", path.c_str());
  }
  std::string text;
  cellm_error error = CELLM_ERROR_INIT;
  if (Render(renderer, document->root(), &text, &error) != CELLM_OK) {
    // An error that the template raised is one of the input, not of usage.
    const Status status = ToStatus(error);
    return error.kind[0] != '\0' ? Corrupt("%s", status.message().c_str()) : status;
  }
  // Exactly what the template wrote: no line end is added.
  Print(text);
  return OkStatus();
}

}  // namespace

int RunRender(const Arguments& arguments) {
  const Status status = RenderAll(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
