#include "cellm/conversation.h"

#include <memory>

#include "json/json.h"
#include "platform/file.h"

namespace cellm::tools {
namespace {

constexpr uint64_t kMaxConversationBytes = uint64_t{256} << 20;

std::string StatePath(const std::string& path) { return path + ".state"; }

Result<Conversation> FromArray(json::Value messages, const std::string& name) {
  Conversation conversation;
  size_t number = 0;
  for (json::Value m = messages.First(); m.exists(); m = messages.Next(m), ++number) {
    std::string_view role, content;
    if (!m.Find("role").GetString(&role) || !m.Find("content").GetString(&content)) {
      return Corrupt("%s: message %zu has no \"role\" and \"content\" that are texts", name.c_str(),
                     number);
    }
    if (number == 0 && role == "system") {
      conversation.system = content;
    } else {
      conversation.messages.push_back({std::string(role), std::string(content)});
    }
  }
  return conversation;
}

}  // namespace

std::string Conversation::MessagesJson() const {
  std::string out = "[";
  const auto add = [&](const std::string& role, const std::string& content) {
    if (out.size() > 1) out += ", ";
    out += R"({"role": )" + json::Quote(role) + R"(, "content": )" + json::Quote(content) + "}";
  };
  if (!system.empty()) add("system", system);
  for (const Message& message : messages) add(message.role, message.content);
  return out + "]";
}

Result<Conversation> ReadConversation(const std::string& path) {
  Conversation conversation;
  platform::FileSystem& files = platform::SystemFiles();
  const Result<std::string> text = files.Read(path, kMaxConversationBytes);
  if (!text.ok()) {
    if (text.status().code() == StatusCode::kNotFound) return conversation;
    return text.status();
  }
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> document,
                         json::Document::Parse(*text, path));
  const json::Value messages = document->root().Find("messages");
  if (!messages.is_array()) {
    return Corrupt("%s: no array \"messages\"; this is no conversation of cellm chat",
                   path.c_str());
  }
  return FromArray(messages, path);
}

Result<Conversation> ParseMessages(const std::string& json, const std::string& name) {
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> document,
                         json::Document::Parse(json, name));
  return FromArray(document->root(), name);
}

Status WriteConversation(const Conversation& conversation, const std::string& path) {
  const std::string text = R"({"messages": )" + conversation.MessagesJson() + "}\n";
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> file,
                         platform::SystemFiles().Create(path));
  CELLM_RETURN_IF_ERROR(file->Write({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  return file->Commit();
}

Result<SessionHandle> OpenSession(cellm_engine* engine, const cellm_session_options& options,
                                  const std::string& path, bool quiet) {
  cellm_error error = CELLM_ERROR_INIT;
  cellm_session* session = nullptr;
  const std::string state = StatePath(path);
  if (!path.empty() && platform::SystemFiles().IsFile(state)) {
    size_t restored = 0;
    if (cellm_session_restore(engine, state.data(), state.size(), &options, &session, &restored,
                              &error) == CELLM_OK) {
      Note(quiet, StrFormat("%s: %zu tokens need not be evaluated again", state.c_str(), restored));
      return SessionHandle(session);
    }
    Note(false, StrFormat("cellm: %s; the conversation is evaluated again",
                          ToStatus(error).message().c_str()));
  }
  if (cellm_session_open(engine, &options, &session, &error) != CELLM_OK) return ToStatus(error);
  return SessionHandle(session);
}

Status SaveState(cellm_session* session, const std::string& path) {
  const std::string state = StatePath(path);
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_session_save(session, state.data(), state.size(), 0, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  return OkStatus();
}

}  // namespace cellm::tools
