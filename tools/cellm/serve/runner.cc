#include "cellm/serve/runner.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cellm/serve/http_server.h"

namespace cellm::tools::serve {
namespace {

// Tokens that wait for a connection thread. A client that does not read stops its own reply when
// these are full, and nobody else's.
constexpr size_t kMaxEvents = 64;
// When nothing can run (heat, a reply whose client does not read), look again after so long.
constexpr int64_t kIdleNs = 2'000'000;

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Reply::Outcome Reply::Next(int64_t timeout_ms, TokenEvent* event) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (events_.empty() && !ended_) platform::WaitFor(changed_, lock, timeout_ms * 1'000'000);
  if (!events_.empty()) {
    *event = std::move(events_.front());
    events_.pop_front();
    return Outcome::kToken;
  }
  return ended_ && failed_ ? Outcome::kFailed : Outcome::kNothingYet;
}

bool Reply::client_gone() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return client_gone_;
}

void Reply::PromptProgress(uint64_t* done, uint64_t* total) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  *done = prompt_done_;
  *total = prompt_total_;
}

cellm_receipt Reply::receipt() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return receipt_;
}

void Reply::Cancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (request_ != nullptr) cellm_request_cancel(request_.get());
}

void Reply::Finish(int64_t timeout_ms) {
  Cancel();
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t deadline = NowMs() + timeout_ms;
  while (!ended_ && NowMs() < deadline) {
    events_.clear();  // room, should it have stopped for lack of it
    platform::WaitFor(changed_, lock, 50'000'000);
  }
}

Result<std::unique_ptr<Runner>> Runner::Create(cellm_engine* engine) {
  std::unique_ptr<Runner> runner(new Runner(engine));
  CELLM_ASSIGN_OR_RETURN(
      runner->thread_,
      platform::Thread::Start([](void* user) { static_cast<Runner*>(user)->Run(); }, runner.get()));
  return runner;
}

Runner::~Runner() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    for (const std::shared_ptr<Reply>& reply : replies_) reply->Cancel();
  }
  changed_.notify_all();
  thread_.Join();
}

size_t Runner::active() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return replies_.size();
}

cellm_status Runner::Start(cellm_request_options options, int socket, const Submit& submit,
                           std::shared_ptr<Reply>* reply, cellm_error* error) {
  auto made = std::make_shared<Reply>();
  made->socket_ = socket;
  // Called by the engine thread, from cellm_request_poll; the reply outlives its request.
  options.progress = [](uint64_t done, uint64_t total, void* user) -> int32_t {
    Reply& mine = *static_cast<Reply*>(user);
    const std::lock_guard<std::mutex> lock(mine.mutex_);
    mine.prompt_done_ = done;
    mine.prompt_total_ = total;
    return 0;
  };
  options.progress_user = made.get();
  cellm_request* request = nullptr;
  const cellm_status status = submit(options, &request, error);
  if (status != CELLM_OK) return status;
  made->request_.reset(request);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    replies_.push_back(made);
    if (stopping_) made->Cancel();
  }
  changed_.notify_all();
  *reply = std::move(made);
  return CELLM_OK;
}

// Moves what is ready to the reply's queue. True: it has ended.
bool Runner::Collect(Reply* reply) {
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(reply->mutex_);
      if (reply->events_.size() >= kMaxEvents) return false;
    }
    cellm_token token = CELLM_TOKEN_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    int32_t ready = 0;
    // Nobody else closes it. Not under the lock: the progress hook takes it.
    const cellm_status status = cellm_request_poll(reply->request_.get(), &token, &ready, &error);
    if (status == CELLM_OK && ready == 0) return false;
    const std::lock_guard<std::mutex> lock(reply->mutex_);
    if (status != CELLM_OK) {
      reply->error_ = error;
      reply->failed_ = true;
    } else {
      TokenEvent event;
      event.token_id = token.token_id;
      event.text.assign(token.text == nullptr ? "" : token.text, token.text_bytes);
      event.finish = token.finish;
      event.logprob = token.logprob;
      event.top.assign(token.top, token.top + token.top_count);
      reply->events_.push_back(std::move(event));
    }
    reply->ended_ = status != CELLM_OK || token.finish != CELLM_FINISH_NONE;
    if (reply->ended_) {
      (void)cellm_request_get_receipt(reply->request_.get(), &reply->receipt_, nullptr);
      reply->request_.reset();  // before anybody learns of it: the session takes another request
    }
    reply->changed_.notify_all();
    if (reply->ended_) return true;
  }
}

std::shared_ptr<const Watch> Runner::WatchClient(int socket) {
  auto watch = std::make_shared<Watch>();
  watch->socket_ = socket;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    watches_.push_back(watch);
  }
  changed_.notify_all();
  return watch;
}

// Those that somebody still holds; the others are forgotten. Under mutex_.
std::vector<std::shared_ptr<Watch>> Runner::LiveWatches() {
  std::vector<std::shared_ptr<Watch>> live;
  std::erase_if(watches_, [&](const std::weak_ptr<Watch>& each) {
    std::shared_ptr<Watch> watch = each.lock();
    if (watch == nullptr) return true;
    live.push_back(std::move(watch));
    return false;
  });
  return live;
}

void Runner::Run() {
  std::vector<std::shared_ptr<Reply>> now;
  std::vector<pollfd> sockets;
  for (;;) {
    std::vector<std::shared_ptr<Watch>> watches;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      for (;;) {
        watches = LiveWatches();
        if (!replies_.empty() || !watches.empty() || stopping_) break;
        changed_.wait(lock);
      }
      if (replies_.empty() && stopping_) return;  // everything has ended
      now = replies_;
    }
    sockets.clear();
    for (const std::shared_ptr<Reply>& reply : now)
      sockets.push_back({reply->socket_, POLLRDHUP, 0});
    for (const std::shared_ptr<Watch>& watch : watches)
      sockets.push_back({watch->socket_, POLLRDHUP, 0});
    if (::poll(sockets.data(), sockets.size(), 0) > 0) {
      for (size_t i = 0; i < now.size(); ++i) {
        if (sockets[i].revents == 0) continue;
        now[i]->Cancel();
        const std::lock_guard<std::mutex> lock(now[i]->mutex_);
        now[i]->client_gone_ = true;
      }
      for (size_t i = 0; i < watches.size(); ++i) {
        if (sockets[now.size() + i].revents == 0) continue;
        __atomic_store_n(&watches[i]->gone_, 1, __ATOMIC_RELAXED);
      }
    }
    watches.clear();
    int32_t ran = 0;
    // What a step cannot do ends the request that it is about; polling says so. Without replies
    // the steps are those of the threads that are watched.
    if (!now.empty()) (void)cellm_engine_step(engine_, &ran, nullptr);
    std::vector<std::shared_ptr<Reply>> ended;
    for (const std::shared_ptr<Reply>& reply : now) {
      if (Collect(reply.get())) ended.push_back(reply);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    for (const std::shared_ptr<Reply>& reply : ended) {
      replies_.erase(std::find(replies_.begin(), replies_.end(), reply));
    }
    now.clear();
    if (ran == 0 && ended.empty() && !stopping_) platform::WaitFor(changed_, lock, kIdleNs);
  }
}

}  // namespace cellm::tools::serve
