// Journals: a process that is killed at any moment loses nothing that it was told, and goes on with
// the text that it would have written.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cellm/cellm.h"
#include "json/json.h"
#include "platform/file.h"
#include "platform/random_file.h"
#include "support/c_api.h"
#include "support/paths.h"

namespace cellm {
namespace {

using ::cellm::testing::EnginePtr;
using ::cellm::testing::ModelPtr;
using ::cellm::testing::OpenEngineOf;
using ::cellm::testing::OpenModelAt;
using ::cellm::testing::OpenSessionOf;
using ::cellm::testing::RequestPtr;
using ::cellm::testing::SessionPtr;
using ::cellm::testing::TextOf;

struct Found {
  std::string name, message;
  cellm_status status = CELLM_OK;
  uint64_t tokens = 0, lost_bytes = 0;
  bool open_request = false;
};

std::vector<Found> List(cellm_engine* engine) {
  std::vector<Found> found;
  cellm_error error = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_engine_list_journals(
                engine,
                [](const cellm_journal_info* info, void* user) -> int32_t {
                  Found one;
                  one.name.assign(info->name.data, info->name.bytes);
                  one.message.assign(info->message.data, info->message.bytes);
                  one.status = info->status;
                  one.tokens = info->tokens;
                  one.lost_bytes = info->lost_bytes;
                  one.open_request = info->open_request != 0;
                  static_cast<std::vector<Found>*>(user)->push_back(one);
                  return 0;
                },
                &found, &error),
            CELLM_OK)
      << error.message;
  return found;
}

std::vector<int32_t> TokensOf(cellm_session* session) {
  size_t count = 0;
  (void)cellm_session_get_tokens(session, nullptr, 0, &count, nullptr);
  std::vector<int32_t> ids(count);
  EXPECT_EQ(cellm_session_get_tokens(session, ids.data(), ids.size(), &count, nullptr), CELLM_OK);
  return ids;
}

std::string ShownOf(cellm_request* request) {
  size_t bytes = 0;
  (void)cellm_request_get_text(request, nullptr, 0, &bytes, nullptr);
  std::string text(bytes, '\0');
  EXPECT_EQ(cellm_request_get_text(request, text.data(), text.size(), &bytes, nullptr), CELLM_OK);
  return text;
}

// "" when the last request was no conversation.
std::string MessagesOf(cellm_session* session) {
  size_t bytes = 0;
  const cellm_status status = cellm_session_get_messages(session, nullptr, 0, &bytes, nullptr);
  if (status == CELLM_NOT_FOUND) return "";
  std::string text(bytes, '\0');
  EXPECT_EQ(cellm_session_get_messages(session, text.data(), text.size(), &bytes, nullptr),
            CELLM_OK);
  return text;
}

size_t CountOf(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// ---- a conversation that is the same every time ----

struct Variant {
  const char* name;
  uint32_t context;
  int32_t overflow;
  float temperature;
};
constexpr Variant kVariants[] = {
    {"sampled", 256, CELLM_OVERFLOW_STOP, 0.9f},
    {"greedy", 256, CELLM_OVERFLOW_STOP, 0.0f},
    {"forgetting", 56, CELLM_OVERFLOW_SLIDE, 0.9f},
};
constexpr int32_t kTurns = 4;
constexpr int32_t kReplyTokens = 20;

// What one process tells another through a pipe.
struct Report {
  enum Kind : int32_t { kToken, kResumed, kDone };
  int32_t kind = kToken;
  int32_t turn = 0, index = 0, id = 0, finish = 0;
  std::string text;  // kToken, kResumed: all that is shown of the reply so far
};

void Send(int pipe, int go, const Report& report) {
  const int32_t head[] = {report.kind, report.turn,   report.index,
                          report.id,   report.finish, static_cast<int32_t>(report.text.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof(head));
  bytes += report.text;
  // Less than PIPE_BUF: whole or not at all.
  if (::write(pipe, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) ::_exit(3);
  char word = 0;
  if (::read(go, &word, 1) != 1) ::_exit(8);
}

// False at the end.
bool Receive(int pipe, Report* report) {
  const auto read_all = [pipe](void* out, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t count = ::read(pipe, static_cast<char*>(out) + done, bytes - done);
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  };
  int32_t head[6];
  if (!read_all(head, sizeof(head))) return false;
  report->kind = head[0];
  report->turn = head[1];
  report->index = head[2];
  report->id = head[3];
  report->finish = head[4];
  report->text.resize(static_cast<size_t>(head[5]));
  return read_all(report->text.data(), report->text.size());
}

class Talk {
 public:
  Talk(const Variant& variant, std::string folder, int pipe, int go)
      : variant_(variant), folder_(std::move(folder)), pipe_(pipe), go_(go) {}

  void Run() {
    model_ = OpenModelAt(testing::TestData("zoo/llama"), "plain");
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_tokens = variant_.context;
    options.journal_folder = TextOf(folder_);
    engine_ = OpenEngineOf(model_, options);
    int32_t turn = Resume();
    while (turn < kTurns) {
      if (request_ == nullptr) Submit(turn);
      Reply(turn);
      ++turn;
    }
    Report done;
    done.kind = Report::kDone;
    const std::vector<int32_t> ids = TokensOf(session_.get());
    done.text.assign(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t));
    Send(pipe_, go_, done);
  }

 private:
  // The turn that is under way, or the one to begin.
  int32_t Resume() {
    const std::vector<Found> found = folder_.empty() ? std::vector<Found>() : List(engine_.get());
    if (found.size() > 1) ::_exit(4);
    if (found.empty() || found[0].status == CELLM_CORRUPT) {
      // Killed while the first request was being submitted, which it was never told.
      if (!found.empty() && found[0].lost_bytes > 0) {
        (void)cellm_engine_remove_journal(engine_.get(), found[0].name.data(), found[0].name.size(),
                                          nullptr);
      }
      cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
      options.overflow = variant_.overflow;
      session_ = OpenSessionOf(engine_, &options);
      return 0;
    }
    cellm_session* session = nullptr;
    cellm_request* request = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    if (cellm_session_recover(engine_.get(), found[0].name.data(), found[0].name.size(), nullptr,
                              &session, &request, &error) != CELLM_OK) {
      std::fprintf(stderr, "recover: %s\n", error.message);
      ::_exit(5);
    }
    session_.reset(session);
    request_.reset(request);
    const std::string messages = MessagesOf(session);
    const size_t asked = CountOf(messages, "\"user\"");
    int32_t turn = asked > 0 ? static_cast<int32_t>(asked) - 1 : kTurns - 1;
    if (TokensOf(session).empty()) return 0;  // the snapshot alone
    if (request_ == nullptr) return turn + 1;
    Report resumed;
    resumed.kind = Report::kResumed;
    resumed.turn = turn;
    cellm_receipt receipt = CELLM_RECEIPT_INIT;
    EXPECT_EQ(cellm_request_get_receipt(request, &receipt, nullptr), CELLM_OK);
    resumed.index = static_cast<int32_t>(receipt.generated_tokens);
    resumed.text = ShownOf(request);
    Send(pipe_, go_, resumed);
    return turn;
  }

  void Submit(int32_t turn) {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_SEED | CELLM_SAMPLING_TEMPERATURE |
                     CELLM_SAMPLING_REPETITION_PENALTY | CELLM_SAMPLING_TOP_K;
    sampling.seed = 1000 + static_cast<uint64_t>(turn);
    sampling.temperature = variant_.temperature;
    sampling.repetition_penalty = 1.2f;
    sampling.top_k = 200;
    const std::string stop_words[] = {"e", "never this"};
    // A stop string that holds text back; only the last turn can really end with one.
    const cellm_text stops[] = {TextOf(stop_words[1]), TextOf(stop_words[0])};
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.flags = CELLM_REQUEST_IGNORE_END;
    options.sampling = &sampling;
    options.stops = stops;
    options.stop_count = turn == 2 ? 2 : 1;
    options.max_tokens = kReplyTokens;
    cellm_error error = CELLM_ERROR_INIT;
    cellm_request* request = nullptr;
    cellm_status status = CELLM_OK;
    if (turn < kTurns - 1) {
      std::string messages = turn == 0 ? "[" : MessagesOf(session_.get());
      if (turn > 0) messages.back() = ',';
      messages += R"({"role": "user", "content": "What is )" + std::to_string(turn) + R"(?"}])";
      cellm_chat chat = CELLM_CHAT_INIT;
      chat.messages = TextOf(messages);
      status = cellm_session_submit_chat(session_.get(), &chat, &options, &request, &error);
    } else {
      const int32_t ids[] = {7, 8, 9};
      status = cellm_session_submit_tokens(session_.get(), ids, 3, &options, &request, &error);
    }
    if (status != CELLM_OK) {
      std::fprintf(stderr, "submit of turn %d: %s\n", turn, error.message);
      ::_exit(6);
    }
    request_.reset(request);
  }

  void Reply(int32_t turn) {
    cellm_receipt receipt = CELLM_RECEIPT_INIT;
    EXPECT_EQ(cellm_request_get_receipt(request_.get(), &receipt, nullptr), CELLM_OK);
    Report report;
    report.turn = turn;
    report.index = static_cast<int32_t>(receipt.generated_tokens);
    report.text = ShownOf(request_.get());
    do {
      cellm_token token = CELLM_TOKEN_INIT;
      cellm_error error = CELLM_ERROR_INIT;
      if (cellm_request_next(request_.get(), &token, &error) != CELLM_OK) {
        std::fprintf(stderr, "turn %d: %s\n", turn, error.message);
        ::_exit(7);
      }
      report.id = token.token_id;
      report.finish = token.finish;
      report.text.append(token.text, token.text_bytes);
      Send(pipe_, go_, report);
      ++report.index;
    } while (report.finish == CELLM_FINISH_NONE);
    request_.reset();
  }

  const Variant& variant_;
  const std::string folder_;
  const int pipe_;
  const int go_;
  ModelPtr model_;
  EnginePtr engine_;
  SessionPtr session_;
  RequestPtr request_;
};

// Runs the conversation in a process of its own, which is killed after `most` reports (< 0: never)
// and a while more, so that it is in the middle of something.
std::vector<Report> RunProcess(const Variant& variant, const std::string& folder, int most,
                               uint32_t yields) {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  // The child goes on when it is told to, so that it dies in the middle of things.
  int go[2];
  EXPECT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe[0]);
    ::close(go[1]);
    Talk(variant, folder, pipe[1], go[0]).Run();
    ::_exit(0);  // as if it had crashed at the end: handles are not closed
  }
  ::close(pipe[1]);
  ::close(go[0]);
  std::vector<Report> reports;
  Report report;
  bool killed = false;
  for (;;) {
    if (!killed && most >= 0 && static_cast<int>(reports.size()) >= most) {
      for (uint32_t i = 0; i < yields; ++i) ::sched_yield();
      ::kill(child, SIGKILL);
      killed = true;  // what is in the pipe was told all the same
    }
    if (!Receive(pipe[0], &report)) break;
    reports.push_back(report);
    if (!killed && ::write(go[1], "g", 1) != 1) break;
  }
  ::close(pipe[0]);
  ::close(go[1]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << "status " << status;
  return reports;
}

class JournalKill : public ::testing::TestWithParam<Variant> {};

TEST_P(JournalKill, LosesNothingThatWasAcknowledged) {
  const std::vector<Report> whole = RunProcess(GetParam(), "", -1, 0);
  ASSERT_FALSE(whole.empty());
  ASSERT_EQ(whole.back().kind, Report::kDone);
  std::map<std::pair<int32_t, int32_t>, Report> expected;
  for (const Report& report : whole) {
    if (report.kind == Report::kToken) expected[{report.turn, report.index}] = report;
  }

  Rng rng(77);
  const int conversations = ::getenv("CELLM_TEST_LONG") != nullptr ? 60 : 3;
  int kills = 0;
  int resumed_replies = 0;
  for (int c = 0; c < conversations; ++c) {
    SCOPED_TRACE(c);
    const std::string folder = testing::TempFolder();
    std::pair<int32_t, int32_t> told = {0, -1};  // the last token that a process was told of
    for (bool done = false; !done; ++kills) {
      ASSERT_LT(kills, 10000);
      const int most = static_cast<int>(rng.NextBelow(14));
      const auto yields = static_cast<uint32_t>(rng.NextBelow(4000));
      for (const Report& report : RunProcess(GetParam(), folder, most, yields)) {
        if (report.kind == Report::kDone) {
          EXPECT_EQ(report.text, whole.back().text);
          done = true;
          continue;
        }
        const std::pair<int32_t, int32_t> place = {report.turn, report.index};
        if (report.kind == Report::kResumed) {
          ++resumed_replies;
          EXPECT_TRUE(place > told)
              << "turn " << report.turn << ": " << report.index << " after " << told.second;
          const auto before = expected.find({report.turn, report.index - 1});
          ASSERT_TRUE(report.index == 0 || before != expected.end());
          EXPECT_EQ(report.text, report.index == 0 ? "" : before->second.text);
          continue;
        }
        ASSERT_TRUE(expected.contains(place)) << report.turn << " " << report.index;
        const Report& wanted = expected[place];
        EXPECT_TRUE(place > told) << "a token was told twice";
        EXPECT_EQ(report.id, wanted.id);
        EXPECT_EQ(report.finish, wanted.finish);
        EXPECT_EQ(report.text, wanted.text);
        told = place;
      }
    }
  }
  std::printf("%d processes, %d replies gone on with\n", kills, resumed_replies);
  EXPECT_GT(resumed_replies, conversations);
}

INSTANTIATE_TEST_SUITE_P(Variants, JournalKill, ::testing::ValuesIn(kVariants),
                         [](const auto& param) { return std::string(param.param.name); });

// ---- in one process ----

struct Fixture {
  std::string folder = testing::TempFolder();
  ModelPtr model = OpenModelAt(testing::TestData("zoo/llama"), "plain");
  EnginePtr engine;

  Fixture() {
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_tokens = 256;
    options.journal_folder = TextOf(folder);
    engine = OpenEngineOf(model, options);
  }
  SessionPtr Open(uint32_t flags) const {
    cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
    options.flags = flags;
    return OpenSessionOf(engine, &options);
  }
  RequestPtr Submit(const SessionPtr& session, int32_t first_id, uint32_t tokens = 8) const {
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.flags = CELLM_REQUEST_IGNORE_END;
    options.max_tokens = tokens;
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_SEED;
    sampling.seed = 5;
    options.sampling = &sampling;
    const int32_t ids[] = {first_id, first_id + 1, first_id + 2};
    cellm_request* request = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    EXPECT_EQ(cellm_session_submit_tokens(session.get(), ids, 3, &options, &request, &error),
              CELLM_OK)
        << error.message;
    return RequestPtr(request);
  }
  std::vector<std::string> Files() const {
    const auto names = platform::SystemFiles().List(folder);
    return names.ok() ? *names : std::vector<std::string>();
  }
};

std::vector<int32_t> Take(const RequestPtr& request, int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) {
    cellm_token token = CELLM_TOKEN_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    EXPECT_EQ(cellm_request_next(request.get(), &token, &error), CELLM_OK) << error.message;
    ids.push_back(token.token_id);
  }
  return ids;
}

cellm_status Recover(const EnginePtr& engine, const std::string& name, SessionPtr* session,
                     RequestPtr* request) {
  cellm_session* opened = nullptr;
  cellm_request* reply = nullptr;
  const cellm_status status = cellm_session_recover(engine.get(), name.data(), name.size(), nullptr,
                                                    &opened, &reply, nullptr);
  if (status == CELLM_OK) {
    session->reset(opened);
    request->reset(reply);
  }
  return status;
}

TEST(Journal, ClosingASessionDeletesItUnlessItIsToBeKept) {
  const Fixture f;
  {
    const SessionPtr session = f.Open(0);
    EXPECT_TRUE(f.Files().empty()) << "nothing was said yet";
    Take(f.Submit(session, 10), 8);
    EXPECT_EQ(f.Files().size(), 1u);
    const std::vector<Found> found = List(f.engine.get());
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].status, CELLM_BUSY) << "its session is open";
    SessionPtr other;
    RequestPtr request;
    EXPECT_EQ(Recover(f.engine, found[0].name, &other, &request), CELLM_BUSY);
    EXPECT_EQ(cellm_engine_remove_journal(f.engine.get(), found[0].name.data(),
                                          found[0].name.size(), nullptr),
              CELLM_BUSY);
  }
  EXPECT_TRUE(f.Files().empty());
  {
    const SessionPtr secret = f.Open(CELLM_SESSION_PRIVATE);
    Take(f.Submit(secret, 10), 8);
    EXPECT_TRUE(f.Files().empty()) << "nothing of a private session outlives it";
  }
  std::vector<int32_t> tokens;
  {
    const SessionPtr session = f.Open(CELLM_SESSION_KEEP_JOURNAL);
    Take(f.Submit(session, 10), 8);
    EXPECT_EQ(cellm_session_rewind(session.get(), 7, nullptr), CELLM_OK);
    Take(f.Submit(session, 20), 4);  // given up: the request is closed before its end
    EXPECT_EQ(cellm_session_set_class(session.get(), CELLM_CLASS_BACKGROUND, 3, 0, nullptr),
              CELLM_OK);
    tokens = TokensOf(session.get());
    EXPECT_EQ(tokens.size(), 7u + 3u + 4u);
  }
  const std::vector<Found> found = List(f.engine.get());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].status, CELLM_OK) << found[0].message;
  EXPECT_EQ(found[0].tokens, tokens.size());
  EXPECT_FALSE(found[0].open_request);
  SessionPtr session;
  RequestPtr request;
  ASSERT_EQ(Recover(f.engine, found[0].name, &session, &request), CELLM_OK);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(TokensOf(session.get()), tokens);
  EXPECT_EQ(cellm_session_keep_journal(session.get(), 0, nullptr), CELLM_OK);
  EXPECT_EQ(cellm_session_keep_journal(session.get(), 1, nullptr), CELLM_OK);
  session.reset();  // kept again
  EXPECT_EQ(f.Files().size(), 1u);
  EXPECT_EQ(cellm_engine_remove_journal(f.engine.get(), found[0].name.data(), found[0].name.size(),
                                        nullptr),
            CELLM_OK);
  EXPECT_TRUE(f.Files().empty());
}

TEST(Journal, NamesLeadNowhereElse) {
  const Fixture f;
  SessionPtr session;
  RequestPtr request;
  for (const std::string name :
       {"", "../x.cellm-journal", "0123456789abcdef", "0123456789ABCDEF.cellm-journal",
        "0123456789abcdef.cellm-journal/", "/etc/passwd", "01234567/9abcdef.cellm-journal"}) {
    EXPECT_EQ(Recover(f.engine, name, &session, &request), CELLM_INVALID_ARGUMENT) << name;
  }
  const std::string name = "0123456789abcdef.cellm-journal";
  EXPECT_EQ(Recover(f.engine, name, &session, &request), CELLM_NOT_FOUND);
  // A link to somebody else's file is not followed.
  ASSERT_EQ(::symlink("/etc/passwd", (f.folder + "/" + name).c_str()), 0);
  EXPECT_EQ(Recover(f.engine, name, &session, &request), CELLM_IO);
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  const EnginePtr without = OpenEngineOf(f.model, options);
  EXPECT_EQ(Recover(without, name, &session, &request), CELLM_INVALID_ARGUMENT);
  options.journal_folder = {"/nowhere/at/all", 15};
  cellm_engine* none = nullptr;
  EXPECT_EQ(cellm_engine_open(f.model.get(), &options, &none, nullptr), CELLM_NOT_FOUND);
}

// A journal of two replies, the second under way, as bytes.
std::string SomeJournal(const Fixture& f, std::vector<int32_t>* tokens) {
  const SessionPtr session = f.Open(CELLM_SESSION_KEEP_JOURNAL);
  Take(f.Submit(session, 10), 8);
  const RequestPtr request = f.Submit(session, 30);
  Take(request, 3);
  *tokens = TokensOf(session.get());
  const std::string path = f.folder + "/" + f.Files()[0];
  // While the second reply is under way.
  return platform::SystemFiles().Read(path, 1 << 20).value();
}

TEST(Journal, DamageCostsTheEndAndHarmsNobody) {
  const Fixture f;
  std::vector<int32_t> tokens;
  const std::string good = SomeJournal(f, &tokens);
  for (const std::string& name : f.Files()) {
    EXPECT_EQ(cellm_engine_remove_journal(f.engine.get(), name.data(), name.size(), nullptr),
              CELLM_OK);
  }
  // A session that lives beside all of it.
  const SessionPtr live = f.Open(CELLM_SESSION_PRIVATE);
  const RequestPtr live_reply = f.Submit(live, 50, 200);
  const SessionPtr twin = f.Open(CELLM_SESSION_PRIVATE);
  const RequestPtr twin_reply = f.Submit(twin, 50, 200);

  const std::string name = "00000000000000aa.cellm-journal";
  const std::string path = f.folder + "/" + name;
  Rng rng(9);
  int whole = 0;
  int shorter = 0;
  int refused = 0;
  for (size_t i = 0; i < 160; ++i) {
    std::string bytes = good;
    if (i % 2 == 0) {
      bytes.resize(rng.NextBelow(good.size() + 1));
    } else if (i % 4 == 1) {
      bytes[rng.NextBelow(bytes.size())] ^= static_cast<char>(1 << rng.NextBelow(8));
    } else {
      // A piece of the file again at its end: good records in the wrong place.
      bytes += good.substr(rng.NextBelow(good.size()));
    }
    {
      std::FILE* const file = std::fopen(path.c_str(), "wb");
      ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
      std::fclose(file);
    }
    SessionPtr session;
    RequestPtr request;
    const cellm_status status = Recover(f.engine, name, &session, &request);
    if (status == CELLM_OK) {
      const std::vector<int32_t> held = TokensOf(session.get());
      ASSERT_LE(held.size(), tokens.size());
      EXPECT_TRUE(std::equal(held.begin(), held.end(), tokens.begin()));
      ++(held.size() == tokens.size() ? whole : shorter);
      if (request != nullptr) Take(request, 1);
    } else {
      EXPECT_TRUE(status == CELLM_CORRUPT || status == CELLM_UNSUPPORTED) << status;
      ++refused;
    }
    // What was recovered goes on in the same file, which is whole again.
    request.reset();
    session.reset();
    const std::vector<Found> found = List(f.engine.get());
    for (const Found& one : found) {
      EXPECT_EQ(one.status == CELLM_OK, status == CELLM_OK) << one.message;
      EXPECT_TRUE(status != CELLM_OK || one.lost_bytes == 0);
      EXPECT_EQ(
          cellm_engine_remove_journal(f.engine.get(), one.name.data(), one.name.size(), nullptr),
          CELLM_OK);
    }
    if (i % 8 == 0) {
      EXPECT_EQ(Take(live_reply, 1), Take(twin_reply, 1));
    }
  }
  EXPECT_GT(whole, 10);
  EXPECT_GT(shorter, 10);
  EXPECT_GT(refused, 2);
}

TEST(Journal, AnotherModelsIsRefusedByName) {
  const Fixture f;
  std::vector<int32_t> tokens;
  SomeJournal(f, &tokens);
  CELLM_SKIP_WITHOUT_SHARED(other_path, "zoo/qwen3");
  const ModelPtr other = OpenModelAt(other_path);
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.journal_folder = TextOf(f.folder);
  const EnginePtr engine = OpenEngineOf(other, options);
  const std::vector<Found> found = List(engine.get());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].status, CELLM_UNSUPPORTED);
  EXPECT_NE(found[0].message.find("another model"), std::string::npos) << found[0].message;
}

// Files may not grow any more: the reply under way fails, and the next request begins anew with
// everything that was acknowledged.
TEST(Journal, AFullDiskIsSaidAndRecoveredFrom) {
  const Fixture f;
  const SessionPtr session = f.Open(CELLM_SESSION_KEEP_JOURNAL);
  RequestPtr request = f.Submit(session, 10, 50);
  Take(request, 3);
  struct rlimit old_limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  struct rlimit limit = old_limit;
  struct stat info = {};
  ASSERT_EQ(::stat((f.folder + "/" + f.Files()[0]).c_str(), &info), 0);
  limit.rlim_cur = static_cast<rlim_t>(info.st_size) + 50;  // half a record more than one
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  cellm_token token = CELLM_TOKEN_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_status status = CELLM_OK;
  int told = 3;
  for (; told < 50 && status == CELLM_OK; ++told) {
    status = cellm_request_next(request.get(), &token, &error);
  }
  EXPECT_EQ(status, CELLM_IO) << error.message;
  EXPECT_LT(told, 8);
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
  EXPECT_EQ(cellm_request_get_receipt(request.get(), &receipt, nullptr), CELLM_OK);
  EXPECT_EQ(receipt.finish, CELLM_FINISH_ERROR);
  request.reset();
  // No place for another journal either: the request never was.
  limit.rlim_cur = 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::vector<int32_t> before = TokensOf(session.get());
  const int32_t ids[] = {3, 4};
  cellm_request* none = nullptr;
  EXPECT_EQ(cellm_session_submit_tokens(session.get(), ids, 2, nullptr, &none, nullptr), CELLM_IO);
  EXPECT_EQ(TokensOf(session.get()), before);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  (void)::signal(SIGXFSZ, old_handler);
  request = f.Submit(session, 20, 50);
  Take(request, 2);
  const std::vector<int32_t> tokens = TokensOf(session.get());
  std::vector<Found> open;
  for (const Found& one : List(f.engine.get())) {
    if (one.status == CELLM_BUSY) open.push_back(one);
  }
  ASSERT_EQ(open.size(), 1u);
  // As another process would see it.
  const std::string copy = "00000000000000bb.cellm-journal";
  const std::string bytes =
      platform::SystemFiles().Read(f.folder + "/" + open[0].name, 1 << 20).value();
  std::FILE* const file = std::fopen((f.folder + "/" + copy).c_str(), "wb");
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fclose(file);
  SessionPtr recovered;
  RequestPtr reply;
  ASSERT_EQ(Recover(f.engine, copy, &recovered, &reply), CELLM_OK);
  EXPECT_EQ(TokensOf(recovered.get()), tokens);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(Take(reply, 5), Take(request, 5));
}

// ---- who may read ----

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST(PrivateFiles, ConversationsAreTheirOwnersWhateverTheUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{0777}}) {
    SCOPED_TRACE(mask);
    const Fixture f;
    const std::string saved = f.folder + "/saved";
    const mode_t old = ::umask(mask);
    const SessionPtr session = f.Open(0);
    Take(f.Submit(session, 10), 3);
    EXPECT_EQ(cellm_session_save(session.get(), saved.data(), saved.size(), 0, nullptr), CELLM_OK);
    const auto scratch = platform::OpenScratchFile(f.folder);
    (void)::umask(old);
    EXPECT_EQ(ModeOf(saved), mode_t{0600});
    int journals = 0;
    for (const std::string& name : f.Files()) {
      if (!name.ends_with(".cellm-journal")) continue;
      ++journals;
      EXPECT_EQ(ModeOf(f.folder + "/" + name), mode_t{0600});
    }
    EXPECT_EQ(journals, 1);
    // The swap file has no name any more; the process still sees it.
    ASSERT_TRUE(scratch.ok());
    int swap_files = 0;
    const auto descriptors = platform::SystemFiles().List("/proc/self/fd");
    ASSERT_TRUE(descriptors.ok());
    for (const std::string& fd : *descriptors) {
      char target[512] = {};
      const std::string link = "/proc/self/fd/" + fd;
      if (::readlink(link.c_str(), target, sizeof(target) - 1) < 0) continue;
      if (std::strstr(target, (f.folder + "/cellm-").c_str()) == nullptr) continue;
      struct stat info = {};
      ASSERT_EQ(::stat(link.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 07777, mode_t{0600});
      ++swap_files;
    }
    EXPECT_EQ(swap_files, 1);
  }
}

}  // namespace
}  // namespace cellm
