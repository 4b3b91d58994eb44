// Calls: global functions, methods of containers, and the sorting of arguments into parameters.

#include <algorithm>
#include <iterator>

#include "jinja/builtins.h"
#include "jinja/strings.h"

namespace cellm::jinja {

using Flavor = SequenceObject::Flavor;

Status BindArguments(Interpreter& in, std::string_view function, const Arguments& args,
                     std::initializer_list<std::string_view> names, size_t required,
                     std::span<Value> out) {
  const std::string who(function);
  if (args.positional.size() > names.size()) {
    return in.Raise(ErrorKind::kTypeError, "%s() takes at most %zu arguments (%zu given)",
                    who.c_str(), names.size(), args.positional.size());
  }
  std::copy(args.positional.begin(), args.positional.end(), out.begin());
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(names.begin(), names.end(), std::string_view(name));
    if (at == names.end()) {
      return in.Raise(ErrorKind::kTypeError, "%s() got an unexpected keyword argument '%s'",
                      who.c_str(), name.c_str());
    }
    Value& place = out[static_cast<size_t>(at - names.begin())];
    if (!place.missing()) {
      return in.Raise(ErrorKind::kTypeError, "%s() got multiple values for argument '%s'",
                      who.c_str(), name.c_str());
    }
    place = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i].missing()) {
      return in.Raise(ErrorKind::kTypeError, "%s() missing required argument: '%s'", who.c_str(),
                      std::string(names.begin()[i]).c_str());
    }
  }
  return OkStatus();
}

// ---- Methods of containers ----

namespace {

constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kDictUnsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kListUnsafe[] = {"append", "clear",  "extend",  "insert",
                                            "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"changed", "cycle"};
constexpr std::string_view kCyclerMethods[] = {"next", "reset"};
constexpr std::string_view kFloatMethods[] = {"is_integer"};
constexpr std::string_view kStringUnsafe[] = {"format_map"};

std::string_view FindIn(std::span<const std::string_view> names, std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() ? std::string_view() : *at;
}

}  // namespace

std::string_view FindMethod(const Value& object, std::string_view name, bool* unsafe) {
  std::span<const std::string_view> safe;
  std::span<const std::string_view> refused;
  switch (object.kind()) {
    case Kind::kString:
      *unsafe = !FindIn(kStringUnsafe, name).empty();
      return FindStringMethod(name);
    case Kind::kDict:
      safe = kDictMethods;
      refused = kDictUnsafe;
      break;
    case Kind::kSequence:
      if (IsList(object)) {
        safe = kListMethods;
        refused = kListUnsafe;
      } else if (IsTuple(object)) {
        safe = kTupleMethods;
      }
      break;
    case Kind::kLoop:
      safe = kLoopMethods;
      break;
    case Kind::kCycler:
      safe = kCyclerMethods;
      break;
    case Kind::kFloat:
      safe = kFloatMethods;
      break;
    default:
      break;
  }
  *unsafe = !FindIn(refused, name).empty();
  return FindIn(safe, name);
}

Value NextOfCycler(const Value& cycler_value) {
  auto& cycler = *static_cast<CyclerObject*>(cycler_value.object());
  Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}

namespace {

Value DictView(Interpreter& in, const Value& dict, Flavor flavor) {
  std::vector<Value> items;
  items.reserve(AsDict(dict).size());
  for (const DictTable::Entry& entry : AsDict(dict).entries()) {
    if (flavor == Flavor::kKeys) {
      items.push_back(entry.key);
    } else if (flavor == Flavor::kValues) {
      items.push_back(entry.value);
    } else {
      items.push_back(in.NewTuple({entry.key, entry.value}));
    }
  }
  return MakeSequence(flavor, std::move(items), in.budget());
}

Result<Value> CallDictMethod(Interpreter& in, const Value& self, std::string_view name,
                             const Arguments& args) {
  CELLM_RETURN_IF_ERROR(in.ChargeItems(AsDict(self).size()));
  if (name == "get") {
    Value found[2];
    CELLM_RETURN_IF_ERROR(BindArguments(in, name, args, {"key", "default"}, 1, found));
    if (!IsHashable(found[0])) {
      return in.Raise(ErrorKind::kTypeError, "unhashable type: '%s'", TypeName(found[0]));
    }
    const Value* member = AsDict(self).Find(found[0]);
    if (member != nullptr) return *member;
    return found[1].missing() ? Value::None() : found[1];
  }
  CELLM_RETURN_IF_ERROR(BindArguments(in, name, args, {}, 0, {}));
  CELLM_RETURN_IF_ERROR(in.CheckItemCount(AsDict(self).size()));
  if (name == "items") return DictView(in, self, Flavor::kItems);
  if (name == "keys") return DictView(in, self, Flavor::kKeys);
  if (name == "values") return DictView(in, self, Flavor::kValues);
  return MakeDict(AsDict(self), in.budget());  // copy
}

Result<Value> CallSequenceMethod(Interpreter& in, const Value& self, std::string_view name,
                                 const Arguments& args) {
  const std::vector<Value>& items = AsSequence(self).items;
  CELLM_RETURN_IF_ERROR(in.ChargeItems(items.size()));
  if (name == "copy") {
    CELLM_RETURN_IF_ERROR(BindArguments(in, name, args, {}, 0, {}));
    return in.NewList(items);
  }
  Value wanted;
  CELLM_RETURN_IF_ERROR(BindArguments(in, name, args, {"value"}, 1, std::span<Value>(&wanted, 1)));
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    CELLM_ASSIGN_OR_RETURN(const bool equal, in.IsEqual(items[i], wanted));
    if (equal && name == "index") return Value::Int(static_cast<int64_t>(i));
    if (equal) ++count;
  }
  if (name == "count") return Value::Int(count);
  Text repr;
  CELLM_RETURN_IF_ERROR(in.AppendRepr(wanted, &repr));
  return in.RaiseMessage(ErrorKind::kValueError, repr.bytes() + " is not in list");
}

Result<Value> CallLoopMethod(Interpreter& in, const Value& self, std::string_view name,
                             Arguments args) {
  LoopObject& loop = AsLoop(self);
  if (!args.named.empty()) {
    return in.RaiseMessage(ErrorKind::kTypeError, "loop methods take no keyword arguments");
  }
  if (name == "cycle") {
    if (args.positional.empty()) {
      return in.RaiseMessage(ErrorKind::kTypeError, "no items for cycling given");
    }
    return args.positional[loop.index0 % args.positional.size()];
  }
  Value now = in.NewTuple(std::move(args.positional));
  bool changed = true;
  if (!loop.changed.missing()) {
    CELLM_ASSIGN_OR_RETURN(const bool equal, in.IsEqual(loop.changed, now));
    changed = !equal;
  }
  loop.changed = std::move(now);
  return Value::Bool(changed);
}

}  // namespace

Result<Value> CallMethod(Interpreter& in, const MethodObject& method, Arguments args) {
  const Value& self = method.self;
  switch (self.kind()) {
    case Kind::kString:
      return CallStringMethod(in, self, method.name, args);
    case Kind::kDict:
      return CallDictMethod(in, self, method.name, args);
    case Kind::kSequence:
      return CallSequenceMethod(in, self, method.name, args);
    case Kind::kLoop:
      return CallLoopMethod(in, self, method.name, std::move(args));
    case Kind::kCycler:
      if (method.name == "next") return NextOfCycler(self);
      static_cast<CyclerObject*>(self.object())->position = 0;
      return Value::None();
    case Kind::kFloat: {
      const double real = self.real();
      return Value::Bool(real - real == 0 && real == static_cast<double>(__builtin_trunc(real)));
    }
    default:
      return Internal("a method of a value that has none");
  }
}

// ---- Global functions ----

namespace {

constexpr int64_t kMaxRange = 100000;                 // the reference's sandbox has the same
constexpr int64_t kMaxRangeBound = int64_t{1} << 53;  // sums and products of bounds stay exact

Result<Value> RangeFunction(Interpreter& in, Arguments args) {
  if (!args.named.empty()) {
    return in.RaiseMessage(ErrorKind::kTypeError, "range() takes no keyword arguments");
  }
  if (args.positional.empty() || args.positional.size() > 3) {
    return in.Raise(ErrorKind::kTypeError, "range expected 1 to 3 arguments, got %zu",
                    args.positional.size());
  }
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < args.positional.size(); ++i) {
    const Value& value = args.positional[i];
    const size_t at = args.positional.size() == 1 ? 1 : i;
    if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
    if (!IsInteger(value)) {
      return in.Raise(ErrorKind::kTypeError, "'%s' object cannot be interpreted as an integer",
                      TypeName(value));
    }
    if (!GetInt64(value, &bounds[at]) || bounds[at] > kMaxRangeBound ||
        bounds[at] < -kMaxRangeBound) {
      return in.RaiseMessage(ErrorKind::kOverflowError, "range() argument is too large");
    }
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) {
    return in.RaiseMessage(ErrorKind::kValueError, "range() arg 3 must not be zero");
  }
  __int128 count = 0;
  const __int128 distance = static_cast<__int128>(stop) - start;
  if (step > 0 && distance > 0) count = (distance - 1) / step + 1;
  if (step < 0 && distance < 0) count = (distance + 1) / step + 1;
  if (count > kMaxRange) {
    return in.Raise(ErrorKind::kOverflowError,
                    "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                    static_cast<int>(kMaxRange));
  }
  auto* range = new RangeObject;
  range->Charge(in.budget(), sizeof(RangeObject));
  range->start = start;
  range->stop = stop;
  range->step = step;
  range->count = static_cast<int64_t>(count);
  bool trusted = true;
  for (const Value& value : args.positional) trusted = trusted && value.trusted();
  return Value::Adopt(Kind::kRange, range).WithTrust(trusted);
}

// dict(mapping or pairs, name=value ...), and namespace(), which takes the same.
Status FillTable(Interpreter& in, const char* who, const Arguments& args, DictTable* table) {
  if (args.positional.size() > 1) {
    return in.Raise(ErrorKind::kTypeError, "%s expected at most 1 argument, got %zu", who,
                    args.positional.size());
  }
  if (!args.positional.empty() && args.positional[0].Is(Kind::kDict)) {
    *table = AsDict(args.positional[0]);
  } else if (!args.positional.empty()) {
    CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(args.positional[0]));
    for (const Value& pair : list.items) {
      CELLM_ASSIGN_OR_RETURN(const ItemList parts, in.Iterate(pair));
      if (parts.items.size() != 2) {
        return in.RaiseMessage(ErrorKind::kValueError,
                               "dictionary update sequence element has not length 2");
      }
      if (!IsHashable(parts.items[0])) {
        return in.Raise(ErrorKind::kTypeError, "unhashable type: '%s'", TypeName(parts.items[0]));
      }
      table->Set(parts.items[0], parts.items[1]);
    }
  }
  for (const auto& [name, value] : args.named) {
    CELLM_ASSIGN_OR_RETURN(Value key, in.NewString(Text(name, true)));
    table->Set(std::move(key), value);
  }
  return in.ChargeItems(table->size());
}

Result<Value> DictFunction(Interpreter& in, Arguments args) {
  DictTable table;
  CELLM_RETURN_IF_ERROR(FillTable(in, "dict", args, &table));
  return MakeDict(std::move(table), in.budget());
}

Result<Value> NamespaceFunction(Interpreter& in, Arguments args) {
  auto* space = new NamespaceObject;
  Value value = Value::Adopt(Kind::kNamespace, space);
  CELLM_RETURN_IF_ERROR(FillTable(in, "namespace", args, &space->table));
  space->Charge(in.budget(), sizeof(NamespaceObject) + space->table.HeapBytes());
  in.RegisterForCleanup(value);
  return value;
}

Result<Value> CyclerFunction(Interpreter& in, Arguments args) {
  if (args.positional.empty() || !args.named.empty()) {
    return in.RaiseMessage(ErrorKind::kRuntimeError, "at least one item has to be provided");
  }
  auto* cycler = new CyclerObject;
  cycler->items = std::move(args.positional);
  cycler->Charge(in.budget(), sizeof(CyclerObject) + cycler->items.size() * sizeof(Value));
  return Value::Adopt(Kind::kCycler, cycler);
}

Result<Value> JoinerFunction(Interpreter& in, Arguments args) {
  Value separator;
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "joiner", args, {"sep"}, 0, std::span<Value>(&separator, 1)));
  if (separator.missing()) {
    CELLM_ASSIGN_OR_RETURN(separator, in.NewString(Text(", ", true)));
  }
  auto* joiner = new JoinerObject;
  joiner->Charge(in.budget(), sizeof(JoinerObject));
  joiner->separator = std::move(separator);
  return Value::Adopt(Kind::kJoiner, joiner);
}

Result<Value> CallJoiner(Interpreter& in, JoinerObject* joiner) {
  if (joiner->used) return joiner->separator;
  joiner->used = true;
  return in.NewString(Text(std::string(), true));
}

Result<Value> RaiseFunction(Interpreter& in, Arguments args) {
  Value message;
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "raise_exception", args, {"message"}, 1, std::span<Value>(&message, 1)));
  Text text;
  CELLM_RETURN_IF_ERROR(in.AppendStr(message, &text));
  return in.RaiseMessage(ErrorKind::kTemplateError, text.bytes());
}

Result<Value> StrftimeFunction(Interpreter& in, Arguments args) {
  Value format;
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "strftime_now", args, {"format"}, 1, std::span<Value>(&format, 1)));
  if (!format.Is(Kind::kString)) {
    return in.Raise(ErrorKind::kTypeError, "strftime() argument 1 must be str, not %s",
                    TypeName(format));
  }
  if (!in.options().now.has_value()) {
    return in.RaiseMessage(ErrorKind::kTemplateRuntimeError,
                           "strftime_now: the caller gave no current time");
  }
  // A field gives at most a few dozen characters.
  CELLM_RETURN_IF_ERROR(in.CheckStringSize(TextOf(format).size() * 32));
  return in.NewString(
      Text(FormatTime(*in.options().now, BytesOf(format)), TextOf(format).all_trusted()));
}

Result<Value> LipsumFunction(Interpreter& in, Arguments args) {
  static_cast<void>(args);
  return in.RaiseMessage(ErrorKind::kTemplateRuntimeError, "lipsum() is not supported");
}

struct GlobalFunction {
  std::string_view name;
  Result<Value> (*run)(Interpreter&, Arguments);
};

constexpr GlobalFunction kGlobals[] = {
    {"range", RangeFunction},           {"dict", DictFunction},
    {"lipsum", LipsumFunction},         {"cycler", CyclerFunction},
    {"joiner", JoinerFunction},         {"namespace", NamespaceFunction},
    {"raise_exception", RaiseFunction}, {"strftime_now", StrftimeFunction},
};

}  // namespace

int FindGlobal(std::string_view name) {
  for (size_t i = 0; i < std::size(kGlobals); ++i) {
    if (kGlobals[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Result<Value> CallFunction(Interpreter& in, int function, Arguments args) {
  return kGlobals[static_cast<size_t>(function)].run(in, std::move(args));
}

Result<Value> Interpreter::Call(const Value& callee, Arguments args) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      return RaiseUndefined(callee);
    case Kind::kFunction:
      return CallFunction(*this, static_cast<int>(callee.integer()), std::move(args));
    case Kind::kMethod:
      return CallMethod(*this, *static_cast<const MethodObject*>(callee.object()), std::move(args));
    case Kind::kMacro:
      return CallMacro(*static_cast<const MacroObject*>(callee.object()), std::move(args));
    case Kind::kLoop:
      return CallLoop(AsLoop(callee), args);
    case Kind::kJoiner:
      return CallJoiner(*this, static_cast<JoinerObject*>(callee.object()));
    default:
      return Raise(ErrorKind::kTypeError, "'%s' object is not callable", TypeName(callee));
  }
}

}  // namespace cellm::jinja
