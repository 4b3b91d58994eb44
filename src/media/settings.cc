#include "media/settings.h"

#include <algorithm>
#include <cmath>

namespace cellm::media {
namespace {

json::Value FindIn(json::Value object, std::string_view key) {
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return object.Find(key);
  const json::Value outer = object.Find(key.substr(0, dot));
  return outer.is_object() ? outer.Find(key.substr(dot + 1)) : json::Value();
}

// Values in messages: short, and one line.
std::string Shown(json::Value value) {
  std::string text = json::Serialize(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

void Settings::AddSource(json::Value object, std::string name) {
  if (!object.has_value()) return;
  if (!object.is_object()) {
    Refuse(Corrupt("%s: an object was expected, not %s", name.c_str(), Shown(object).c_str()));
    return;
  }
  sources_.push_back({object, std::move(name)});
}

void Settings::Refuse(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

bool Settings::IsKnown(std::string_view key) const {
  return std::find(known_.begin(), known_.end(), key) != known_.end();
}

json::Value Settings::Find(std::string_view key, const char** name) {
  known_.emplace_back(key);
  const size_t dot = key.find('.');
  if (dot != std::string_view::npos) known_.emplace_back(key.substr(0, dot));
  json::Value found;
  for (const Source& source : sources_) {
    const size_t outer = dot == std::string_view::npos ? key.size() : dot;
    const json::Value parent = source.object.Find(key.substr(0, outer));
    if (dot != std::string_view::npos && parent.has_value() && !parent.is_object()) {
      Refuse(Unsupported("%s: %.*s is %s; an object with sizes was expected", source.name.c_str(),
                         static_cast<int>(outer), key.data(), Shown(parent).c_str()));
    }
    const json::Value value = FindIn(source.object, key);
    if (!value.has_value()) continue;
    if (found.exists() && json::Serialize(found) != json::Serialize(value)) {
      Refuse(Corrupt("%.*s is %s in %s and %s in %s; make them agree", static_cast<int>(key.size()),
                     key.data(), Shown(found).c_str(), *name, Shown(value).c_str(),
                     source.name.c_str()));
    }
    if (!found.exists()) {
      found = value;
      *name = source.name.c_str();
    }
  }
  return status_.ok() ? found : json::Value();
}

bool Settings::Has(std::string_view key) {
  const char* name = nullptr;
  return Find(key, &name).exists();
}

void Settings::Int(std::string_view key, int32_t low, int32_t high, int32_t* value) {
  const char* name = nullptr;
  const json::Value found = Find(key, &name);
  if (!found.exists()) return;
  int64_t number = 0;
  if (!found.GetInt64(&number) || number < low || number > high) {
    Refuse(Unsupported("%s: %.*s is %s; a whole number from %d to %d was expected", name,
                       static_cast<int>(key.size()), key.data(), Shown(found).c_str(), low, high));
    return;
  }
  *value = static_cast<int32_t>(number);
}

void Settings::Real(std::string_view key, double low, double high, double* value) {
  const char* name = nullptr;
  const json::Value found = Find(key, &name);
  if (!found.exists()) return;
  double number = 0.0;
  if (!found.GetDouble(&number) || !(number >= low && number <= high)) {
    Refuse(Unsupported("%s: %.*s is %s; a number from %g to %g was expected", name,
                       static_cast<int>(key.size()), key.data(), Shown(found).c_str(), low, high));
    return;
  }
  *value = number;
}

void Settings::Bool(std::string_view key, bool* value) {
  const char* name = nullptr;
  const json::Value found = Find(key, &name);
  if (!found.exists() || found.GetBool(value)) return;
  Refuse(Unsupported("%s: %.*s is %s; true or false was expected", name,
                     static_cast<int>(key.size()), key.data(), Shown(found).c_str()));
}

void Settings::Three(std::string_view key, double low, double high, double value[3]) {
  const char* name = nullptr;
  const json::Value found = Find(key, &name);
  if (!found.exists()) return;
  double numbers[3] = {};
  bool good = found.is_array() && found.size() == 3;
  for (size_t i = 0; i < 3 && good; ++i) {
    good = found.At(i).GetDouble(&numbers[i]) && numbers[i] >= low && numbers[i] <= high;
  }
  if (!good) {
    Refuse(Unsupported("%s: %.*s is %s; three numbers from %g to %g were expected", name,
                       static_cast<int>(key.size()), key.data(), Shown(found).c_str(), low, high));
    return;
  }
  std::copy(numbers, numbers + 3, value);
}

void Settings::Only(std::string_view key, bool only) {
  const char* name = nullptr;
  const json::Value found = Find(key, &name);
  bool value = only;
  if (!found.exists() || (found.GetBool(&value) && value == only)) return;
  Refuse(Unsupported("%s: %.*s is %s; only %s is supported", name, static_cast<int>(key.size()),
                     key.data(), Shown(found).c_str(), only ? "true" : "false"));
}

void Settings::OnlyNumber(std::string_view key, double only) {
  const char* name = nullptr;
  const json::Value found = Find(key, &name);
  double value = only;
  if (!found.exists() || (found.GetDouble(&value) && std::fabs(value - only) < 1e-9)) return;
  Refuse(Unsupported("%s: %.*s is %s; only %g is supported", name, static_cast<int>(key.size()),
                     key.data(), Shown(found).c_str(), only));
}

void Settings::OnlyNull(std::string_view key) {
  const char* name = nullptr;
  const json::Value found = Find(key, &name);
  if (!found.exists()) return;
  Refuse(Unsupported("%s: %.*s is %s; only null is supported", name, static_cast<int>(key.size()),
                     key.data(), Shown(found).c_str()));
}

void Settings::Text(std::string_view key, std::initializer_list<std::string_view> beginnings) {
  known_.emplace_back(key);
  // Each source by itself: files of one checkpoint name variants of one class.
  for (const Source& source : sources_) {
    const json::Value found = source.object.Find(key);
    if (!found.has_value()) continue;
    std::string_view text;
    bool good = false;
    if (found.GetString(&text)) {
      for (const std::string_view beginning : beginnings) good |= text.starts_with(beginning);
    }
    if (good) continue;
    Refuse(Unsupported("%s: %.*s is %s, which is not of this family; %.*s was expected",
                       source.name.c_str(), static_cast<int>(key.size()), key.data(),
                       Shown(found).c_str(), static_cast<int>(beginnings.begin()->size()),
                       beginnings.begin()->data()));
  }
}

void Settings::Ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) known_.emplace_back(key);
}

Status Settings::Finish() {
  for (const Source& source : sources_) {
    for (json::Value v = source.object.First(); v.exists(); v = source.object.Next(v)) {
      const std::string key(source.object.KeyOf(v));
      if (!IsKnown(key)) {
        Refuse(
            Unsupported("%s: the key %s is not known for this family; it may change what the "
                        "model sees, so it is not skipped",
                        source.name.c_str(), json::Quote(key).c_str()));
      }
      const bool has_members = std::any_of(known_.begin(), known_.end(), [&](const auto& known) {
        return known.starts_with(key + ".");
      });
      if (!v.is_object() || !has_members) continue;
      for (json::Value m = v.First(); m.exists(); m = v.Next(m)) {
        const std::string member = key + "." + std::string(v.KeyOf(m));
        if (!m.is_null() && !IsKnown(member)) {
          Refuse(
              Unsupported("%s: the key %s is not known for this family; it may change what the "
                          "model sees, so it is not skipped",
                          source.name.c_str(), json::Quote(member).c_str()));
        }
      }
    }
  }
  return status_;
}

}  // namespace cellm::media
