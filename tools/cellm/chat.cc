// cellm chat: a conversation. The whole conversation is rendered for every turn; the session keeps
// what it has already evaluated of it, so a turn costs its new tokens only.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/conversation.h"
#include "cellm/journals.h"
#include "cellm/line_editor.h"

namespace cellm::tools {
namespace {

constexpr const char* kHelp =
    "  /help           this list\n"
    "  /reset          forget the conversation\n"
    "  /system TEXT    set the system message and start again\n"
    "  /retry          another reply to the last message\n"
    "  /stats          what the last reply cost\n"
    "  /exit           leave (also Ctrl-D)\n"
    "  Ctrl-C stops a reply. A line that ends in a backslash goes on in the next one.\n";

struct Chat {
  bool interactive = false;
  bool color = false;
  Conversation conversation;
  std::string path;  // of --session; empty: it is kept nowhere
  std::string template_args;
  std::string last_receipt;
  // What the callback needs.
  std::string reply;
  bool broken = false;
};

int32_t OnToken(const cellm_token* token, void* user) {
  Chat& chat = *static_cast<Chat*>(user);
  const std::string_view text(token->text, token->text_bytes);
  chat.reply += text;
  if (!text.empty() && (!Print(text) || std::fflush(stdout) != 0)) chat.broken = true;
  return chat.broken ? 1 : 0;
}

// The conversation into its file, if it has one.
Status Keep(const Chat& chat) {
  return chat.path.empty() ? OkStatus() : WriteConversation(chat.conversation, chat.path);
}

// The reply of `request` from where it is, to its end; appends it to the conversation. What was
// shown of it before is in chat->reply.
Status Hear(Chat* chat, cellm_request* request) {
  cellm_error error = CELLM_ERROR_INIT;
  if (chat->color) Print("\x1b[36m");
  Print(chat->reply);
  const cellm_status status = cellm_request_run(request, OnToken, chat, &error);
  if (chat->color) Print("\x1b[0m");
  Print("\n");
  std::fflush(stdout);
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
  cellm_error ignored = CELLM_ERROR_INIT;
  if (cellm_request_get_receipt(request, &receipt, &ignored) == CELLM_OK) {
    chat->last_receipt = ReceiptLine(receipt);
    if (receipt.finish == CELLM_FINISH_CONTEXT) {
      std::fprintf(stderr, "(the context of this conversation is full: /reset starts again)\n");
    }
  }
  if (status != CELLM_OK) return ToStatus(error);
  chat->conversation.messages.push_back({"assistant", chat->reply});
  return Keep(*chat);
}

// One reply to the conversation as it stands; appends it. The session stays usable after an error,
// whose message is returned.
Status Answer(Chat* chat, cellm_session* session, cellm_request_options options) {
  const CancelOnInterrupt guard(/*termination_too=*/false);
  options.stop_flag = CancelOnInterrupt::flag();
  const std::string messages = chat->conversation.MessagesJson();
  cellm_chat turn = CELLM_CHAT_INIT;
  turn.messages = ToText(messages);
  turn.template_args = ToText(chat->template_args);
  cellm_error error = CELLM_ERROR_INIT;
  cellm_request* pointer = nullptr;
  if (cellm_session_submit_chat(session, &turn, &options, &pointer, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  const RequestHandle request(pointer);
  chat->reply.clear();
  return Hear(chat, request.get());
}

// A command that begins with '/'. False: leave the program. *answer: a reply is wanted.
bool Obey(const std::string& line, Chat* chat, bool* answer) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string command = line.substr(0, space);
  const std::string rest = space < line.size() ? line.substr(space + 1) : "";
  if (command == "/exit" || command == "/quit") return false;
  if (command == "/help") {
    std::fputs(kHelp, stderr);
  } else if (command == "/reset") {
    chat->conversation.messages.clear();
    std::fprintf(stderr, "(a new conversation)\n");
  } else if (command == "/system") {
    chat->conversation.system = rest;
    chat->conversation.messages.clear();
    std::fprintf(stderr, "(a new conversation)\n");
  } else if (command == "/stats") {
    std::fprintf(stderr, "%s\n",
                 chat->last_receipt.empty() ? "(no reply yet)" : chat->last_receipt.c_str());
  } else if (command == "/retry") {
    if (!chat->conversation.messages.empty() &&
        chat->conversation.messages.back().role == "assistant") {
      chat->conversation.messages.pop_back();
    }
    *answer = !chat->conversation.messages.empty();
    if (!*answer) std::fprintf(stderr, "(nothing to answer yet)\n");
  } else {
    std::fprintf(stderr, "(unknown command %s; /help lists them)\n", command.c_str());
  }
  return true;
}

Status Converse(Chat* chat, cellm_session* session, const cellm_request_options& options,
                bool show_receipt) {
  LineEditor editor;
  std::string line;
  Status last;
  for (;;) {
    const LineEditor::Outcome outcome = editor.Read("> ", &line);
    if (outcome == LineEditor::Outcome::kEnd) break;
    if (outcome == LineEditor::Outcome::kInterrupted || line.empty()) continue;
    while (!line.empty() && line.back() == '\\') {
      std::string more;
      line.back() = '\n';
      if (editor.Read(". ", &more) != LineEditor::Outcome::kLine) break;
      line += more;
    }
    bool answer = true;
    if (line[0] == '/') {
      answer = false;
      if (!Obey(line, chat, &answer)) break;
    } else {
      chat->conversation.messages.push_back({"user", line});
    }
    if (!answer) continue;
    last = Answer(chat, session, options);
    if (chat->broken) return IoError("standard output cannot be written");
    if (!last.ok()) {
      // The message is not part of the conversation; a script must not go on as if it were.
      if (!chat->conversation.messages.empty()) chat->conversation.messages.pop_back();
      if (!chat->interactive) return last;
      (void)Fail(last);
    } else if (show_receipt) {
      std::fprintf(stderr, "(%s)\n", chat->last_receipt.c_str());
    }
  }
  return OkStatus();
}

// With --journal: the session that goes on from where an earlier process died, its conversation in
// `chat`, and the reply under way heard to its end. Null: there is none.
Result<SessionHandle> GoOn(Chat* chat, cellm_engine* engine, cellm_request_options hooks,
                           bool quiet) {
  const CancelOnInterrupt guard;
  hooks.stop_flag = CancelOnInterrupt::flag();
  CELLM_ASSIGN_OR_RETURN(Recovered recovered, RecoverNewest(engine, hooks, {}));
  if (recovered.session == nullptr) return SessionHandle();
  CELLM_ASSIGN_OR_RETURN(const std::string messages, SessionMessages(recovered.session.get()));
  if (!messages.empty()) {
    CELLM_ASSIGN_OR_RETURN(chat->conversation, ParseMessages(messages, recovered.name));
  }
  Note(quiet, StrFormat("going on with a conversation of %zu messages%s",
                        chat->conversation.messages.size(),
                        recovered.request != nullptr ? ", in the middle of a reply" : ""));
  if (recovered.request != nullptr) {
    chat->reply = recovered.shown;
    CELLM_RETURN_IF_ERROR(Hear(chat, recovered.request.get()));
  }
  return std::move(recovered.session);
}

Status RunConversation(const Arguments& arguments) {
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<SamplingFlags> sampling, ReadSampling(arguments));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<ReplyFlags> reply,
                         ReadReply(arguments, &sampling->sampling));
  Chat chat;
  CELLM_ASSIGN_OR_RETURN(chat.template_args, ReadTemplateArgs(arguments));
  CELLM_ASSIGN_OR_RETURN(const cellm_session_options session_options, ReadSession(arguments));
  if (arguments.Has("session") && arguments.Has("journal")) {
    return InvalidArgument("--session and --journal exclude each other");
  }
  if (arguments.Has("session")) {
    chat.path = arguments.Text("session");
    CELLM_ASSIGN_OR_RETURN(chat.conversation, ReadConversation(chat.path));
  }
  Conversation& conversation = chat.conversation;
  if (arguments.Has("system")) {
    if (!conversation.messages.empty() && conversation.system != arguments.Text("system")) {
      return InvalidArgument("--system: the conversation in %s has another system message",
                             chat.path.c_str());
    }
    conversation.system = arguments.Text("system");
  }
  chat.interactive = isatty(STDIN_FILENO) != 0;
  chat.color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;

  CELLM_ASSIGN_OR_RETURN(const LoadedModel loaded, OpenModel(arguments, true));
  const std::string journal = arguments.Text("journal");
  CELLM_ASSIGN_OR_RETURN(
      const EngineHandle engine,
      OpenEngineWith(arguments, loaded.model.get(), [&journal](cellm_engine_options* options) {
        options->journal_folder = ToText(journal);
      }));
  cellm_error error = CELLM_ERROR_INIT;
  SessionHandle session;
  if (arguments.Has("journal")) {
    CELLM_ASSIGN_OR_RETURN(session,
                           GoOn(&chat, engine.get(), reply->options, arguments.Switch("quiet")));
  }
  if (session == nullptr) {
    CELLM_ASSIGN_OR_RETURN(session, OpenSession(engine.get(), session_options, chat.path,
                                                arguments.Switch("quiet") || !chat.interactive));
  }
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  if (cellm_engine_get_info(engine.get(), &info, &error) != CELLM_OK) return ToStatus(error);
  if (chat.interactive && !arguments.Switch("quiet")) {
    std::fprintf(stderr,
                 "%s: context of %u tokens, %d threads, %s kernels. /help lists commands.\n",
                 loaded.path.c_str(), info.context_tokens, info.threads, info.kernels);
  }
  const Status status = Converse(&chat, session.get(), reply->options, arguments.Switch("receipt"));
  if (chat.path.empty()) return status;
  // Also after an error, for what there is of it: /reset and the like have no reply of their own.
  const Status kept = Keep(chat);
  const Status saved = kept.ok() ? SaveState(session.get(), chat.path) : kept;
  return status.ok() ? saved : status;
}

}  // namespace

int RunChat(const Arguments& arguments) {
  const Status status = RunConversation(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
