#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/filters.h"
#include "jinja/strings.h"

namespace cellm::jinja::filters {

namespace {

using Flavor = SequenceObject::Flavor;

// "a.b.0" as a way into an object: names and, for parts that are digits, indices.
Result<std::vector<Value>> AttributePath(Interpreter& in, const Value& attribute) {
  std::vector<Value> path;
  if (attribute.missing() || attribute.Is(Kind::kNone)) return path;
  if (!attribute.Is(Kind::kString)) {
    path.push_back(attribute);
    return path;
  }
  std::string_view rest = BytesOf(attribute);
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    if (digits) {
      int64_t index = 0;
      for (const char c : part) index = index * 10 + (c - '0');
      path.push_back(Value::Int(index));
    } else {
      CELLM_ASSIGN_OR_RETURN(Value name, in.NewString(Text(std::string(part), false)));
      path.push_back(std::move(name));
    }
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

// Follows the path; `fallback` (unless missing) stands in for what is undefined on the way.
Result<Value> Follow(Interpreter& in, Value item, const std::vector<Value>& path,
                     const Value& fallback) {
  for (const Value& part : path) {
    CELLM_ASSIGN_OR_RETURN(item, in.GetItem(item, part));
    if (item.Is(Kind::kUndefined) && !fallback.missing() && !fallback.Is(Kind::kNone)) {
      item = fallback;
    }
  }
  return item;
}

Result<Value> IgnoreCase(Interpreter& in, const Value& value) {
  if (!value.Is(Kind::kString)) return value;
  return CallStringMethod(in, value, "lower", {});
}

// The values to order by: the attribute (if any) of each item, strings in lower case unless asked.
Result<std::vector<Value>> Keys(Interpreter& in, std::span<const Value> items,
                                const std::vector<Value>& path, bool case_sensitive,
                                const Value& fallback = Value()) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    CELLM_ASSIGN_OR_RETURN(Value key, Follow(in, item, path, fallback));
    if (!case_sensitive) {
      CELLM_ASSIGN_OR_RETURN(key, IgnoreCase(in, key));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// Positions of the keys in ascending (or descending) order; equal ones keep their order. A merge
// sort of our own kind of comparison: one that can fail.
Result<std::vector<size_t>> Order(Interpreter& in, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    status = in.Charge(1);
    if (!status.ok()) return false;
    const Result<int> result = in.Compare(keys[a], keys[b]);
    if (!result.ok()) status = result.status();
    return result.ok() && result.value() == (reverse ? 1 : -1);
  });
  CELLM_RETURN_IF_ERROR(std::move(status));
  return order;
}

Value Picked(Interpreter& in, std::span<const Value> items, const std::vector<size_t>& order) {
  std::vector<Value> sorted;
  sorted.reserve(order.size());
  for (const size_t at : order) sorted.push_back(items[at]);
  return in.NewList(std::move(sorted));
}

std::vector<Value> Copy(const ItemList& list) {
  return std::vector<Value>(list.items.begin(), list.items.end());
}

}  // namespace

Result<Value> Length(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "length", args, {}, 0, {}));
  CELLM_ASSIGN_OR_RETURN(const int64_t length, in.Length(value));
  return Value::Int(length);
}

Result<Value> Default(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "default", args, {"default_value", "boolean"}, 0, options));
  const bool use = value.Is(Kind::kUndefined) || (in.IsTrue(options[1]) && !in.IsTrue(value));
  if (!use) return value;
  if (options[0].missing()) return in.NewString(Text(std::string(), true));
  return options[0];
}

Result<Value> First(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "first", args, {}, 0, {}));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  if (list.items.empty()) return in.Undefined("No first item, sequence was empty.");
  return list.items.front();
}

Result<Value> Last(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "last", args, {}, 0, {}));
  if (IsSequence(value, Flavor::kGenerator)) {
    return in.Raise(ErrorKind::kTypeError, "'%s' object is not reversible", TypeName(value));
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  if (list.items.empty()) return in.Undefined("No last item, sequence was empty.");
  return list.items.back();
}

Result<Value> Random(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "random", args, {}, 0, {}));
  if (IsSequence(value, Flavor::kGenerator) || value.Is(Kind::kDict)) {
    return in.Raise(ErrorKind::kTypeError, "'%s' object is not a sequence", TypeName(value));
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  if (list.items.empty()) return in.Undefined("No random item, sequence was empty.");
  return list.items[in.rng().NextBelow(list.items.size())];
}

Result<Value> List(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "list", args, {}, 0, {}));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  CELLM_RETURN_IF_ERROR(in.CheckItemCount(list.items.size()));
  return in.NewList(Copy(list));
}

Result<Value> Items(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "items", args, {}, 0, {}));
  if (value.Is(Kind::kUndefined)) return in.NewGenerator({});
  if (!value.Is(Kind::kDict)) {
    return in.RaiseMessage(ErrorKind::kTypeError, "Can only get item pairs from a mapping.");
  }
  CELLM_RETURN_IF_ERROR(in.CheckItemCount(AsDict(value).size()));
  std::vector<Value> pairs;
  for (const DictTable::Entry& entry : AsDict(value).entries()) {
    pairs.push_back(in.NewTuple({entry.key, entry.value}));
  }
  return in.NewGenerator(std::move(pairs));
}

Result<Value> Join(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "join", args, {"d", "attribute"}, 0, options));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  std::vector<Value> items = Copy(list);
  if (!options[1].missing() && !options[1].Is(Kind::kNone)) {
    CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, options[1]));
    for (Value& item : items) {
      CELLM_ASSIGN_OR_RETURN(item, Follow(in, item, path, Value()));
    }
  }
  Text separator;
  if (!options[0].missing()) CELLM_RETURN_IF_ERROR(in.AppendStr(options[0], &separator));
  // Only where output is escaped does joining care about safe HTML.
  bool markup = IsMarkup(options[0]);
  for (const Value& item : items) markup = markup || IsMarkup(item);
  markup = markup && in.autoescape();
  if (markup && !IsMarkup(options[0])) separator = Interpreter::EscapeHtml(separator);
  CELLM_ASSIGN_OR_RETURN(Text out, jinja::Join(in, separator, items, markup));
  return in.NewString(std::move(out), markup);
}

Result<Value> Reverse(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "reverse", args, {}, 0, {}));
  if (value.Is(Kind::kString)) {
    return in.Slice(value, Value::None(), Value::None(), Value::Int(-1));
  }
  if (!value.Is(Kind::kSequence) && !value.Is(Kind::kRange) && !value.Is(Kind::kDict) &&
      !value.Is(Kind::kUndefined)) {
    return in.RaiseMessage(ErrorKind::kFilterArgumentError, "argument must be iterable");
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  std::vector<Value> items = Copy(list);
  std::reverse(items.begin(), items.end());
  return in.NewGenerator(std::move(items));
}

Result<Value> Sort(Interpreter& in, const Value& value, Arguments args) {
  Value options[3];
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "sort", args, {"reverse", "case_sensitive", "attribute"}, 0, options));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  const bool reverse = in.IsTrue(options[0]);
  const bool case_sensitive = in.IsTrue(options[1]);
  // "a,b" sorts by a, then by b.
  std::vector<std::vector<Value>> columns;
  if (options[2].Is(Kind::kString)) {
    std::string_view rest = BytesOf(options[2]);
    for (;;) {
      const size_t comma = rest.find(',');
      CELLM_ASSIGN_OR_RETURN(const Value part,
                             in.NewString(Text(std::string(rest.substr(0, comma)), false)));
      CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, part));
      CELLM_ASSIGN_OR_RETURN(std::vector<Value> keys, Keys(in, list.items, path, case_sensitive));
      columns.push_back(std::move(keys));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, options[2]));
    CELLM_ASSIGN_OR_RETURN(std::vector<Value> keys, Keys(in, list.items, path, case_sensitive));
    columns.push_back(std::move(keys));
  }
  std::vector<Value> keys;
  for (size_t i = 0; i < list.items.size(); ++i) {
    std::vector<Value> row;
    for (const std::vector<Value>& column : columns) row.push_back(column[i]);
    keys.push_back(in.NewList(std::move(row)));
  }
  CELLM_ASSIGN_OR_RETURN(const std::vector<size_t> order, Order(in, keys, reverse));
  return Picked(in, list.items, order);
}

Result<Value> DictSort(Interpreter& in, const Value& value, Arguments args) {
  Value options[3];
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "dictsort", args, {"case_sensitive", "by", "reverse"}, 0, options));
  if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
  if (!value.Is(Kind::kDict)) {
    return in.Raise(ErrorKind::kTypeError, "'%s' object has no attribute 'items'", TypeName(value));
  }
  const std::string_view by =
      options[1].Is(Kind::kString) ? BytesOf(options[1]) : std::string_view("key");
  if (by != "key" && by != "value") {
    return in.RaiseMessage(ErrorKind::kFilterArgumentError,
                           "You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> pairs;
  std::vector<Value> sort_by;
  for (const DictTable::Entry& entry : AsDict(value).entries()) {
    pairs.push_back(in.NewTuple({entry.key, entry.value}));
    sort_by.push_back(by == "key" ? entry.key : entry.value);
  }
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                         Keys(in, sort_by, {}, in.IsTrue(options[0])));
  CELLM_ASSIGN_OR_RETURN(const std::vector<size_t> order, Order(in, keys, in.IsTrue(options[2])));
  return Picked(in, pairs, order);
}

Result<Value> GroupBy(Interpreter& in, const Value& value, Arguments args) {
  Value options[3];
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "groupby", args, {"attribute", "default", "case_sensitive"}, 1, options));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, options[0]));
  const bool case_sensitive = in.IsTrue(options[2]);
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                         Keys(in, list.items, path, case_sensitive, options[1]));
  CELLM_ASSIGN_OR_RETURN(const std::vector<size_t> order, Order(in, keys, false));
  std::vector<Value> groups;
  for (size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const size_t first = order[i];
    for (; i < order.size(); ++i) {
      CELLM_ASSIGN_OR_RETURN(const bool same, in.IsEqual(keys[first], keys[order[i]]));
      if (!same) break;
      members.push_back(list.items[order[i]]);
    }
    // The key as the first member spells it.
    CELLM_ASSIGN_OR_RETURN(Value key, Follow(in, list.items[first], path, options[1]));
    groups.push_back(MakeSequence(Flavor::kGroup, {std::move(key), in.NewList(std::move(members))},
                                  in.budget()));
  }
  return in.NewList(std::move(groups));
}

Result<Value> Unique(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "unique", args, {"case_sensitive", "attribute"}, 0, options));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, options[1]));
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                         Keys(in, list.items, path, in.IsTrue(options[0])));
  DictTable seen;
  std::vector<Value> kept;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!IsHashable(keys[i])) {
      return in.Raise(ErrorKind::kTypeError, "unhashable type: '%s'", TypeName(keys[i]));
    }
    if (seen.Find(keys[i]) != nullptr) continue;
    seen.Set(keys[i], Value::None());
    kept.push_back(list.items[i]);
  }
  return in.NewGenerator(std::move(kept));
}

namespace {

Result<Value> Extreme(Interpreter& in, const char* name, const Value& value, const Arguments& args,
                      int wanted) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(BindArguments(in, name, args, {"case_sensitive", "attribute"}, 0, options));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  if (list.items.empty()) return in.Undefined("No aggregated item, sequence was empty.");
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, options[1]));
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                         Keys(in, list.items, path, in.IsTrue(options[0])));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    CELLM_ASSIGN_OR_RETURN(const int order,
                           in.Compare(keys[i], keys[best], wanted < 0 ? "<" : ">"));
    if (order == wanted) best = i;
  }
  return list.items[best];
}

}  // namespace

Result<Value> Min(Interpreter& in, const Value& value, Arguments args) {
  return Extreme(in, "min", value, args, -1);
}
Result<Value> Max(Interpreter& in, const Value& value, Arguments args) {
  return Extreme(in, "max", value, args, 1);
}

Result<Value> Sum(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "sum", args, {"attribute", "start"}, 0, options));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, options[0]));
  Value total = options[1].missing() ? Value::Int(0).WithTrust(true) : options[1];
  if (total.Is(Kind::kString)) {
    return in.RaiseMessage(ErrorKind::kTypeError,
                           "sum() can't sum strings [use ''.join(seq) instead]");
  }
  for (const Value& item : list.items) {
    CELLM_ASSIGN_OR_RETURN(const Value part, Follow(in, item, path, Value()));
    CELLM_ASSIGN_OR_RETURN(total, in.Binary(Op::kAdd, total, part));
  }
  return total;
}

Result<Value> Batch(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "batch", args, {"linecount", "fill_with"}, 1, options));
  int64_t size = 0;
  if (!GetInt64(options[0], &size)) {
    return in.Raise(ErrorKind::kTypeError, "batch needs a whole number, not '%s'",
                    TypeName(options[0]));
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : list.items) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(in.NewList(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (!options[1].missing() && !options[1].Is(Kind::kNone) &&
        size > static_cast<int64_t>(row.size())) {
      CELLM_RETURN_IF_ERROR(in.CheckItemCount(static_cast<size_t>(size)));
      row.resize(static_cast<size_t>(size), options[1]);
    }
    rows.push_back(in.NewList(std::move(row)));
  }
  return in.NewGenerator(std::move(rows));
}

Result<Value> Slice(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "slice", args, {"slices", "fill_with"}, 1, options));
  int64_t count = 0;
  if (!GetInt64(options[0], &count)) {
    return in.Raise(ErrorKind::kTypeError, "slice needs a whole number, not '%s'",
                    TypeName(options[0]));
  }
  if (count == 0) {
    return in.RaiseMessage(ErrorKind::kZeroDivisionError, "integer division or modulo by zero");
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  if (count < 0) return in.NewGenerator({});
  CELLM_RETURN_IF_ERROR(in.CheckItemCount(static_cast<size_t>(count)));
  const auto slices = static_cast<size_t>(count);
  const size_t each = list.items.size() / slices;
  const size_t extra = list.items.size() % slices;
  const bool fill = !options[1].missing() && !options[1].Is(Kind::kNone);
  std::vector<Value> rows;
  size_t at = 0;
  for (size_t i = 0; i < slices; ++i) {
    CELLM_RETURN_IF_ERROR(in.Charge(1));
    const size_t size = each + (i < extra ? 1 : 0);
    std::vector<Value> row(list.items.begin() + static_cast<ptrdiff_t>(at),
                           list.items.begin() + static_cast<ptrdiff_t>(at + size));
    at += size;
    if (fill && i >= extra) row.push_back(options[1]);
    rows.push_back(in.NewList(std::move(row)));
  }
  return in.NewGenerator(std::move(rows));
}

Result<Value> Attr(Interpreter& in, const Value& value, Arguments args) {
  Value name;
  CELLM_RETURN_IF_ERROR(BindArguments(in, "attr", args, {"name"}, 1, std::span<Value>(&name, 1)));
  if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
  CELLM_ASSIGN_OR_RETURN(const Value text, in.ToStringValue(name));
  // Members of a dict are items, not attributes.
  bool unsafe = false;
  if (value.Is(Kind::kDict) && FindMethod(value, BytesOf(text), &unsafe).empty() && !unsafe) {
    return in.Undefined("'dict object' has no attribute '" + std::string(BytesOf(text)) + "'");
  }
  return in.GetAttribute(value, text);
}

Result<Value> Map(Interpreter& in, const Value& value, Arguments args) {
  if (!in.IsTrue(value)) return in.NewGenerator({});
  std::vector<Value> results;
  if (args.positional.empty()) {
    Value options[2];
    bool has_attribute = false;
    for (const auto& [name, unused] : args.named)
      has_attribute = has_attribute || name == "attribute";
    if (!has_attribute) {
      return in.RaiseMessage(ErrorKind::kFilterArgumentError, "map requires a filter argument");
    }
    CELLM_RETURN_IF_ERROR(BindArguments(in, "map", args, {"attribute", "default"}, 1, options));
    CELLM_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(in, options[0]));
    CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
    for (const Value& item : list.items) {
      CELLM_RETURN_IF_ERROR(in.Charge(1));
      CELLM_ASSIGN_OR_RETURN(Value result, Follow(in, item, path, options[1]));
      results.push_back(std::move(result));
    }
    return in.NewGenerator(std::move(results));
  }
  const Value& name = args.positional[0];
  const int filter = name.Is(Kind::kString) ? FindFilter(BytesOf(name)) : -1;
  if (filter < 0) {
    Text text;
    CELLM_RETURN_IF_ERROR(in.AppendRepr(name, &text));
    return in.RaiseMessage(ErrorKind::kTemplateRuntimeError,
                           "No filter named " + text.bytes() + ".");
  }
  Arguments rest;
  rest.positional.assign(args.positional.begin() + 1, args.positional.end());
  rest.named = args.named;
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  for (const Value& item : list.items) {
    CELLM_RETURN_IF_ERROR(in.Charge(1));
    CELLM_ASSIGN_OR_RETURN(Value result, in.ApplyFilter(filter, item, rest));
    results.push_back(std::move(result));
  }
  return in.NewGenerator(std::move(results));
}

namespace {

// select, reject and their forms that look at an attribute first.
Result<Value> Choose(Interpreter& in, const Value& value, const Arguments& args, bool by_attribute,
                     bool keep_when) {
  if (!in.IsTrue(value)) return in.NewGenerator({});
  size_t next = 0;
  std::vector<Value> path;
  if (by_attribute) {
    if (args.positional.empty()) {
      return in.RaiseMessage(ErrorKind::kFilterArgumentError,
                             "Missing parameter for attribute name");
    }
    CELLM_ASSIGN_OR_RETURN(path, AttributePath(in, args.positional[0]));
    next = 1;
  }
  int test = -1;
  Arguments rest;
  if (next < args.positional.size()) {
    const Value& name = args.positional[next];
    test = name.Is(Kind::kString) ? FindTest(BytesOf(name)) : -1;
    if (test < 0) {
      Text text;
      CELLM_RETURN_IF_ERROR(in.AppendRepr(name, &text));
      return in.RaiseMessage(ErrorKind::kTemplateRuntimeError,
                             "No test named " + text.bytes() + ".");
    }
    rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(next) + 1,
                           args.positional.end());
    rest.named = args.named;
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(value));
  std::vector<Value> kept;
  for (const Value& item : list.items) {
    CELLM_RETURN_IF_ERROR(in.Charge(1));
    CELLM_ASSIGN_OR_RETURN(const Value looked_at, Follow(in, item, path, Value()));
    bool holds = false;
    if (test >= 0) {
      CELLM_ASSIGN_OR_RETURN(holds, in.ApplyTest(test, looked_at, rest));
    } else {
      holds = in.IsTrue(looked_at);
    }
    if (holds == keep_when) kept.push_back(item);
  }
  return in.NewGenerator(std::move(kept));
}

}  // namespace

Result<Value> Select(Interpreter& in, const Value& value, Arguments args) {
  return Choose(in, value, args, false, true);
}
Result<Value> Reject(Interpreter& in, const Value& value, Arguments args) {
  return Choose(in, value, args, false, false);
}
Result<Value> SelectAttr(Interpreter& in, const Value& value, Arguments args) {
  return Choose(in, value, args, true, true);
}
Result<Value> RejectAttr(Interpreter& in, const Value& value, Arguments args) {
  return Choose(in, value, args, true, false);
}

}  // namespace cellm::jinja::filters
