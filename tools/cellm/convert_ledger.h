#ifndef CELLM_TOOLS_CELLM_CONVERT_LEDGER_H_
#define CELLM_TOOLS_CELLM_CONVERT_LEDGER_H_

// Measurements of K/V formats in the quality ledger of a .cellm file (docs/format.md).

#include <string>

#include "base/status.h"

namespace cellm::tools {

// Whether measurements can be kept in the file at `path`. InvalidArgument: it is no .cellm file of
// ours; errors of reading it. To be asked before hours are spent on measuring.
Status CheckLedger(const std::string& path);

// Writes the file anew with `measurement`, a JSON object, as what the K/V format `kv` (a name as
// KvTypesName() gives it) costs; everything else of the file stays, but its identity changes.
// Before it gets its name it is opened and bound. The errors of that.
Status StoreKvMeasurement(const std::string& path, const std::string& kv,
                          const std::string& measurement);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_CONVERT_LEDGER_H_
