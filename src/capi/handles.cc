#include "capi/handles.h"

#include "capi/generation.h"

namespace cellm::capi {
namespace {

constinit ModelTable models;
constinit EngineTable engines;
constinit SessionTable sessions;
constinit RequestTable requests;

}  // namespace

ModelTable& Models() { return models; }
EngineTable& Engines() { return engines; }
SessionTable& Sessions() { return sessions; }
RequestTable& Requests() { return requests; }

std::shared_ptr<ModelState> Find(const cellm_model* model) { return models.Get(model); }
std::shared_ptr<EngineState> Find(const cellm_engine* engine) { return engines.Get(engine); }
std::shared_ptr<SessionState> Find(const cellm_session* session) { return sessions.Get(session); }
std::shared_ptr<RequestState> Find(const cellm_request* request) { return requests.Get(request); }

Status NotOpen(const char* what, const void* handle) {
  if (handle == nullptr) return InvalidArgument("%s is null", what);
  return InvalidArgument("the %s handle is not open: it was closed, or never was one", what);
}

PrivatePasts::~PrivatePasts() {
  Serving::Lock lock = engine->serving->Acquire();
  engine->serving->ForgetPasts(lock, share_key);
}

}  // namespace cellm::capi
