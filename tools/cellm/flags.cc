#include "cellm/flags.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace cellm::tools {
namespace {

constexpr Flag kHelpFlag = {"help", FlagKind::kSwitch, "", "", "", "", 'h'};

// Calls visit(flag) for every flag of the command until it returns true.
template <typename Visit>
const Flag* FindFlag(const Command& command, const Visit& visit) {
  for (const FlagGroup& group : command.groups) {
    for (const Flag& flag : group.flags) {
      if (visit(flag)) return &flag;
    }
  }
  return visit(kHelpFlag) ? &kHelpFlag : nullptr;
}

bool InWords(std::string_view words, std::string_view word, char separator) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(separator), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

const Flag* FindByName(const Command& command, std::string_view name) {
  return FindFlag(command, [&](const Flag& flag) {
    return flag.name == name || InWords(flag.aliases, name, ' ');
  });
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

Status UnknownFlag(const Command& command, std::string_view name) {
  std::string_view nearest;
  size_t best = std::min<size_t>(3, name.size());
  (void)FindFlag(command, [&](const Flag& flag) {
    const size_t distance = EditDistance(name, flag.name);
    if (distance < best) {
      best = distance;
      nearest = flag.name;
    }
    return false;
  });
  const std::string shown(name);
  if (nearest.empty()) return InvalidArgument("unknown option --%s", shown.c_str());
  return InvalidArgument("unknown option --%s (did you mean --%s?)", shown.c_str(),
                         std::string(nearest).c_str());
}

Status CheckValue(const Flag& flag, const std::string& value) {
  const std::string name(flag.name);
  int64_t integer = 0;
  double number = 0;
  switch (flag.kind) {
    case FlagKind::kInteger:
      if (ParseInteger(value, &integer)) return OkStatus();
      return InvalidArgument("--%s: '%s' is not an integer", name.c_str(), value.c_str());
    case FlagKind::kNumber:
      if (ParseNumber(value, &number)) return OkStatus();
      return InvalidArgument("--%s: '%s' is not a number", name.c_str(), value.c_str());
    case FlagKind::kChoice:
      if (flag.check != nullptr) {
        const Status status = flag.check(value);
        return status.ok() ? status
                           : InvalidArgument("--%s: %s", name.c_str(), status.message().c_str());
      }
      if (InWords(flag.value_name, value, '|')) return OkStatus();
      return InvalidArgument("--%s: '%s' is not one of %s", name.c_str(), value.c_str(),
                             std::string(flag.value_name).c_str());
    case FlagKind::kFile:
      // An unset variable of a script, which must not mean the default.
      if (!value.empty()) return OkStatus();
      return InvalidArgument("--%s: the path is empty", name.c_str());
    case FlagKind::kSwitch:
    case FlagKind::kText:
      return OkStatus();
  }
  return OkStatus();
}

}  // namespace

bool ParseInteger(std::string_view text, int64_t* out) {
  const std::string copy(text);
  if (copy.empty() || copy.find_first_not_of("+-0123456789") != std::string::npos) return false;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(copy.c_str(), &end, 10);
  if (errno != 0 || *end != '\0' || end == copy.c_str()) return false;
  *out = value;
  return true;
}

bool ParseNumber(std::string_view text, double* out) {
  const std::string copy(text);
  if (copy.empty() || (copy[0] >= '\t' && copy[0] <= ' ')) return false;
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (*end != '\0' || end == copy.c_str()) return false;
  *out = value;
  return true;
}

Result<Arguments> Arguments::Parse(const Command& command,
                                   std::span<const std::string_view> words) {
  Arguments result;
  result.command_ = &command;
  bool flags_over = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (flags_over || word.size() < 2 || word[0] != '-') {
      result.positional_.emplace_back(word);
      continue;
    }
    if (word == "--") {
      flags_over = true;
      continue;
    }
    const Flag* flag = nullptr;
    std::string value;
    bool has_value = false;
    bool negated = false;
    if (word[1] != '-') {
      flag = FindFlag(command, [&](const Flag& f) { return f.short_name == word[1]; });
      if (flag == nullptr || (word.size() > 2 && flag->kind == FlagKind::kSwitch)) {
        return InvalidArgument("unknown option %s", std::string(word).c_str());
      }
      if (word.size() > 2) {
        value = word.substr(2);
        has_value = true;
      }
    } else {
      const size_t equals = word.find('=');
      std::string name(word.substr(2, equals == std::string_view::npos ? equals : equals - 2));
      std::replace(name.begin(), name.end(), '_', '-');
      if (equals != std::string_view::npos) {
        value = word.substr(equals + 1);
        has_value = true;
      }
      flag = FindByName(command, name);
      if (flag == nullptr && name.starts_with("no-")) {
        flag = FindByName(command, std::string_view(name).substr(3));
        if (flag != nullptr && flag->kind != FlagKind::kSwitch) flag = nullptr;
        negated = flag != nullptr;
      }
      if (flag == nullptr) return UnknownFlag(command, name);
    }
    const std::string name(flag->name);
    if (flag->kind == FlagKind::kSwitch) {
      if (has_value && value != "true" && value != "false") {
        return InvalidArgument("--%s takes no value", name.c_str());
      }
      if (flag == &kHelpFlag) {
        result.help_asked_ = true;
        continue;
      }
      const bool on = (value != "false") != negated;
      result.values_[name] = {on ? "true" : "false"};  // the last one counts
      continue;
    }
    int64_t number = 0;
    if (!has_value && !flag->implied.empty() &&
        (i + 1 >= words.size() || !ParseInteger(words[i + 1], &number))) {
      value = flag->implied;
      has_value = true;
    }
    if (!has_value) {
      if (i + 1 >= words.size()) {
        return InvalidArgument("--%s needs a value (%s)", name.c_str(),
                               std::string(flag->value_name).c_str());
      }
      value = words[++i];
    }
    CELLM_RETURN_IF_ERROR(CheckValue(*flag, value));
    std::vector<std::string>& values = result.values_[name];
    if (!values.empty() && !flag->repeatable) {
      return InvalidArgument("--%s is given twice", name.c_str());
    }
    values.push_back(std::move(value));
  }
  if (!result.positional_.empty() && command.positional.empty() && !result.help_asked_) {
    return InvalidArgument("unexpected argument '%s'", result.positional_[0].c_str());
  }
  return result;
}

bool Arguments::Has(std::string_view name) const { return values_.find(name) != values_.end(); }

bool Arguments::Knows(std::string_view name) const {
  return FindByName(*command_, name) != nullptr;
}

const std::vector<std::string>& Arguments::All(std::string_view name) const {
  static const std::vector<std::string> none;
  CELLM_DCHECK(FindByName(*command_, name) != nullptr, "a flag that is not in the table");
  const auto found = values_.find(name);
  return found == values_.end() ? none : found->second;
}

bool Arguments::Switch(std::string_view name, bool otherwise) const {
  const std::vector<std::string>& values = All(name);
  return values.empty() ? otherwise : values[0] == "true";
}

std::string Arguments::Text(std::string_view name, std::string_view otherwise) const {
  const std::vector<std::string>& values = All(name);
  return values.empty() ? std::string(otherwise) : values[0];
}

int64_t Arguments::Integer(std::string_view name, int64_t otherwise) const {
  const std::vector<std::string>& values = All(name);
  if (!values.empty()) (void)ParseInteger(values[0], &otherwise);
  return otherwise;
}

double Arguments::Number(std::string_view name, double otherwise) const {
  const std::vector<std::string>& values = All(name);
  if (!values.empty()) (void)ParseNumber(values[0], &otherwise);
  return otherwise;
}

}  // namespace cellm::tools
