#include "cellm/convert_ledger.h"

#include <memory>
#include <string_view>

#include "cellm/common.h"
#include "cellm/convert_check.h"
#include "format/convert.h"
#include "json/json.h"
#include "platform/file.h"

namespace cellm::tools {
namespace {

// The object `text` (empty: none) with member `key` set to `value`; other members stay in order.
Result<std::string> WithMember(std::string_view text, std::string_view key,
                               std::string_view value) {
  JsonObject out;
  if (!text.empty()) {
    CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> document,
                           json::Document::Parse(text, "cellm_quality"));
    const json::Value object = document->root();
    if (!object.is_object()) return Corrupt("cellm_quality is no object");
    for (json::Value m = object.First(); m.exists(); m = object.Next(m)) {
      if (object.KeyOf(m) != key) out.AddRaw(object.KeyOf(m), json::Serialize(m));
    }
  }
  return out.AddRaw(key, value).Finish();
}

// The member "kv" of a ledger as text; empty when there is none.
Result<std::string> KvMember(std::string_view ledger) {
  if (ledger.empty()) return std::string();
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> document,
                         json::Document::Parse(ledger, "cellm_quality"));
  const json::Value kv = document->root().Find("kv");
  return kv.is_object() ? json::Serialize(kv) : std::string();
}

}  // namespace

Status CheckLedger(const std::string& path) {
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<format::ModelFile> file,
                         format::OpenModelFile(platform::SystemFiles(), path));
  if (!file->identity.empty()) return OkStatus();
  return InvalidArgument(
      "--store: %s is no .cellm file of this version; make one with 'cellm convert' first",
      path.c_str());
}

Status StoreKvMeasurement(const std::string& path, const std::string& kv,
                          const std::string& measurement) {
  platform::FileSystem& files = platform::SystemFiles();
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<format::ModelFile> file,
                         format::OpenModelFile(files, path));
  CELLM_ASSIGN_OR_RETURN(const std::string before, KvMember(file->quality_json));
  CELLM_ASSIGN_OR_RETURN(const std::string formats, WithMember(before, kv, measurement));
  CELLM_ASSIGN_OR_RETURN(std::string ledger, WithMember(file->quality_json, "kv", formats));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> writer, files.Create(path));
  std::string source = path;
  return format::RewriteWithQuality(*file, std::string("cellm ") + cellm_version_string(),
                                    std::move(ledger), {CheckLoads, &source}, writer.get())
      .status();
}

}  // namespace cellm::tools
