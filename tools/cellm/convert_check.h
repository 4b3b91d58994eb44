#ifndef CELLM_TOOLS_CELLM_CONVERT_CHECK_H_
#define CELLM_TOOLS_CELLM_CONVERT_CHECK_H_

#include <string>

#include "base/status.h"

namespace cellm::tools {

// Opens what was written and binds its weights, as a command that uses it would: a file that cannot
// be loaded gets no name. `user` is the source's path, which messages then name: the draft is gone.
Status CheckLoads(void* user, const std::string& draft_path);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_CONVERT_CHECK_H_
