// What values look like and are made of: truth, length, iteration, printing, attributes, items.

#include <algorithm>

#include "base/checked.h"
#include "base/utf8.h"
#include "jinja/interpreter.h"
#include "jinja/python_text.h"
#include "jinja/strings.h"

namespace cellm::jinja {

using Flavor = SequenceObject::Flavor;

namespace {
constexpr int kMaxPrintDepth = 100;  // of nested lists and dicts
}

bool Interpreter::IsTrue(const Value& value) const {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
    case Kind::kBytes:
      return !AsString(value).text.empty();
    case Kind::kSequence:
      return AsSequence(value).flavor == Flavor::kGenerator || !AsSequence(value).items.empty();
    case Kind::kRange:
      return AsRange(value).count != 0;
    case Kind::kDict:
      return AsDict(value).size() != 0;
    default:
      return true;
  }
}

Result<int64_t> Interpreter::Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return int64_t{0};
    case Kind::kString:
      return CharCount(AsString(value));
    case Kind::kBytes:
      return static_cast<int64_t>(AsString(value).text.size());
    case Kind::kSequence:
      if (AsSequence(value).flavor == Flavor::kGenerator) break;
      return static_cast<int64_t>(AsSequence(value).items.size());
    case Kind::kRange:
      return AsRange(value).count;
    case Kind::kDict:
      return static_cast<int64_t>(AsDict(value).size());
    case Kind::kLoop:
      return static_cast<int64_t>(AsLoop(value).items.size());
    default:
      break;
  }
  return Raise(ErrorKind::kTypeError, "object of type '%s' has no len()", TypeName(value));
}

Result<ItemList> Interpreter::Iterate(const Value& value) {
  ItemList list;
  list.owner = value;
  switch (value.kind()) {
    case Kind::kUndefined:
      return list;
    case Kind::kString:
      CELLM_RETURN_IF_ERROR(CheckItemCount(AsString(value).text.size()));
      list.storage = Characters(*this, AsString(value));
      break;
    case Kind::kSequence: {
      SequenceObject& sequence = AsSequence(value);
      CELLM_RETURN_IF_ERROR(ChargeItems(sequence.items.size()));
      if (sequence.flavor != Flavor::kGenerator) {
        list.items = sequence.items;
        return list;
      }
      if (!sequence.consumed) list.storage = std::move(sequence.items);
      sequence.consumed = true;
      sequence.items.clear();
      break;
    }
    case Kind::kRange: {
      const RangeObject& range = AsRange(value);
      CELLM_RETURN_IF_ERROR(CheckItemCount(static_cast<size_t>(range.count)));
      list.storage.reserve(static_cast<size_t>(range.count));
      for (int64_t i = 0; i < range.count; ++i) {
        list.storage.push_back(Value::Int(range.start + i * range.step).WithTrust(value.trusted()));
      }
      break;
    }
    case Kind::kDict:
      CELLM_RETURN_IF_ERROR(CheckItemCount(AsDict(value).size()));
      for (const DictTable::Entry& entry : AsDict(value).entries()) {
        list.storage.push_back(entry.key);
      }
      break;
    default:
      return Raise(ErrorKind::kTypeError, "'%s' object is not iterable", TypeName(value));
  }
  list.items = list.storage;
  return list;
}

// ---- Printing ----

Result<Value> Interpreter::ToStringValue(const Value& value) {
  if (value.Is(Kind::kString)) return value;
  Text text;
  CELLM_RETURN_IF_ERROR(AppendStr(value, &text));
  return NewString(std::move(text));
}

Status Interpreter::AppendStr(const Value& value, Text* out) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kMissing:
      return OkStatus();
    case Kind::kString:
      out->Append(AsString(value).text);
      return OkStatus();
    default:
      return AppendRepr(value, out);
  }
}

namespace {

const char* BracketsOf(Flavor flavor) {
  switch (flavor) {
    case Flavor::kTuple:
    case Flavor::kGroup:
      return "()";
    case Flavor::kList:
    case Flavor::kGenerator:
    case Flavor::kKeys:
    case Flavor::kValues:
    case Flavor::kItems:
      break;
  }
  return "[]";
}

}  // namespace

Status Interpreter::AppendRepr(const Value& value, Text* out, int depth) {
  CELLM_RETURN_IF_ERROR(Charge(1));
  if (depth > kMaxPrintDepth) {
    return Raise(ErrorKind::kRecursionError,
                 "maximum recursion depth exceeded: a value is nested deeper than %d levels",
                 kMaxPrintDepth);
  }
  const auto append_dict = [&](const DictTable& table) -> Status {
    out->Append("{", false);
    bool first = true;
    for (const DictTable::Entry& entry : table.entries()) {
      if (!first) out->Append(", ", false);
      first = false;
      CELLM_RETURN_IF_ERROR(AppendRepr(entry.key, out, depth + 1));
      out->Append(": ", false);
      CELLM_RETURN_IF_ERROR(AppendRepr(entry.value, out, depth + 1));
    }
    out->Append("}", false);
    return OkStatus();
  };
  switch (value.kind()) {
    case Kind::kNone:
      out->Append("None", value.trusted());
      break;
    case Kind::kBool:
      out->Append(value.boolean() ? "True" : "False", value.trusted());
      break;
    case Kind::kInt:
      out->Append(std::to_string(value.integer()), value.trusted());
      break;
    case Kind::kBigInt:
      CELLM_RETURN_IF_ERROR(ChargeBytes(AsBigInt(value).BitCount() * 16));
      if (AsBigInt(value).BitCount() > 14284) {  // 4300 digits
        return RaiseMessage(ErrorKind::kValueError,
                            "Exceeds the limit (4300 digits) for integer string conversion");
      }
      out->Append(AsBigInt(value).ToString(), value.trusted());
      break;
    case Kind::kFloat:
      out->Append(FloatRepr(value.real()), value.trusted());
      break;
    case Kind::kUndefined:
    case Kind::kMissing:
      out->Append("Undefined", false);
      break;
    case Kind::kString:
      if (AsString(value).markup) out->Append("Markup(", false);
      AppendStringRepr(AsString(value).text, out);
      if (AsString(value).markup) out->Append(")", false);
      break;
    case Kind::kBytes: {
      out->Append("b'", false);
      for (const char c : AsString(value).text.bytes()) {
        const auto byte = static_cast<uint8_t>(c);
        const bool plain = byte >= 0x20 && byte < 0x7F && c != '\'' && c != '\\';
        out->Append(plain ? std::string(1, c) : StrFormat("\\x%02x", byte), false);
      }
      out->Append("'", false);
      break;
    }
    case Kind::kRange: {
      const RangeObject& range = AsRange(value);
      out->Append("range(" + std::to_string(range.start), false);
      out->Append(", " + std::to_string(range.stop), false);
      if (range.step != 1) out->Append(", " + std::to_string(range.step), false);
      out->Append(")", false);
      break;
    }
    case Kind::kDict:
      CELLM_RETURN_IF_ERROR(append_dict(AsDict(value)));
      break;
    case Kind::kNamespace:
      out->Append("<Namespace ", false);
      CELLM_RETURN_IF_ERROR(append_dict(AsNamespace(value)));
      out->Append(">", false);
      break;
    case Kind::kSequence: {
      const SequenceObject& sequence = AsSequence(value);
      if (sequence.flavor == Flavor::kGenerator) {
        out->Append("<generator object>", false);
        break;
      }
      const bool view = sequence.flavor == Flavor::kKeys || sequence.flavor == Flavor::kValues ||
                        sequence.flavor == Flavor::kItems;
      if (view) out->Append(std::string(TypeName(value)) + "(", false);
      const char* brackets = BracketsOf(sequence.flavor);
      out->Append(std::string_view(brackets, 1), false);
      for (size_t i = 0; i < sequence.items.size(); ++i) {
        if (i > 0) out->Append(", ", false);
        CELLM_RETURN_IF_ERROR(AppendRepr(sequence.items[i], out, depth + 1));
      }
      if (IsTuple(value) && sequence.items.size() == 1) out->Append(",", false);
      out->Append(std::string_view(brackets + 1, 1), false);
      if (view) out->Append(")", false);
      break;
    }
    case Kind::kLoop:
      out->Append(
          StrFormat("<LoopContext %zu/%zu>", AsLoop(value).index0 + 1, AsLoop(value).items.size()),
          false);
      break;
    default:
      out->Append(std::string("<") + TypeName(value) + ">", false);
      break;
  }
  return out->size() <= limits().max_string_bytes ? OkStatus() : CheckStringSize(out->size());
}

Text Interpreter::EscapeHtml(const Text& text) {
  Text out;
  const std::string_view bytes = text.bytes();
  text.ForEachRun(0, bytes.size(), [&](size_t begin, size_t end, bool trusted) {
    for (size_t i = begin; i < end; ++i) {
      switch (bytes[i]) {
        case '&':
          out.Append("&amp;", trusted);
          break;
        case '<':
          out.Append("&lt;", trusted);
          break;
        case '>':
          out.Append("&gt;", trusted);
          break;
        case '"':
          out.Append("&#34;", trusted);
          break;
        case '\'':
          out.Append("&#39;", trusted);
          break;
        default:
          out.Append(bytes.substr(i, 1), trusted);
      }
    }
  });
  return out;
}

// ---- Characters ----

size_t ByteOffset(const StringObject& string, int64_t char_index) {
  const std::string_view bytes = string.text.bytes();
  if (CharCount(string) == static_cast<int64_t>(bytes.size())) {
    return static_cast<size_t>(char_index);
  }
  size_t at = 0;
  for (; char_index > 0 && at < bytes.size(); --char_index) {
    at += DecodeUtf8(bytes.substr(at)).byte_count;
  }
  return at;
}

int64_t CharIndex(const StringObject& string, size_t byte_offset) {
  const std::string_view bytes = string.text.bytes();
  if (CharCount(string) == static_cast<int64_t>(bytes.size())) {
    return static_cast<int64_t>(byte_offset);
  }
  int64_t count = 0;
  for (size_t i = 0; i < byte_offset; ++i) count += (static_cast<uint8_t>(bytes[i]) & 0xC0) != 0x80;
  return count;
}

std::vector<Value> Characters(Interpreter& in, const StringObject& string) {
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(CharCount(string)));
  const std::string_view bytes = string.text.bytes();
  string.text.ForEachRun(0, bytes.size(), [&](size_t begin, size_t end, bool trusted) {
    while (begin < end) {
      const size_t size = DecodeUtf8(bytes.substr(begin)).byte_count;
      out.push_back(MakeString(Text(std::string(bytes.substr(begin, size)), trusted), in.budget()));
      begin += size;
    }
  });
  return out;
}

// ---- Attributes and items ----

namespace {

// "dict object" as the reference's messages call it; none is "None".
std::string ObjectTypeName(const Value& value) {
  if (value.Is(Kind::kNone)) return "None";
  return std::string(TypeName(value)) + " object";
}

Value LoopAttribute(const LoopObject& loop, std::string_view name) {
  const auto count = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index0);
  // Counters are the template's own doing.
  const auto integer = [](int64_t value) { return Value::Int(value).WithTrust(true); };
  if (name == "index") return integer(index + 1);
  if (name == "index0") return integer(index);
  if (name == "revindex") return integer(count - index);
  if (name == "revindex0") return integer(count - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == count);
  if (name == "length") return integer(count);
  if (name == "depth") return integer(loop.depth0 + 1);
  if (name == "depth0") return integer(loop.depth0);
  return Value();
}

}  // namespace

Result<Value> Interpreter::GetAttribute(const Value& object, const Value& name_value) {
  const std::string_view name = BytesOf(name_value);
  if (object.Is(Kind::kUndefined)) return RaiseUndefined(object);
  Value found;
  if (object.Is(Kind::kLoop)) {
    const LoopObject& loop = AsLoop(object);
    found = LoopAttribute(loop, name);
    if (!found.missing()) return found;
    const bool has_previous = loop.index0 > 0;
    const bool has_next = loop.index0 + 1 < loop.items.size();
    if (name == "previtem") {
      return has_previous ? loop.items[loop.index0 - 1] : Undefined("there is no previous item");
    }
    if (name == "nextitem") {
      return has_next ? loop.items[loop.index0 + 1] : Undefined("there is no next item");
    }
  } else if (object.Is(Kind::kNamespace)) {
    const Value* member = AsNamespace(object).Find(name);
    if (member != nullptr) return *member;
  } else if (object.Is(Kind::kMacro)) {
    const Stmt& node = *static_cast<const MacroObject*>(object.object())->node;
    if (name == "name") return NewString(Text(parsed_.symbols[node.symbol], true));
    if (name == "catch_kwargs") return Value::Bool(node.uses_kwargs);
    if (name == "catch_varargs") return Value::Bool(node.uses_varargs);
    if (name == "caller") return Value::Bool(node.uses_caller);
    if (name == "arguments") {
      std::vector<Value> names;
      for (const uint32_t symbol : node.parameters) {
        CELLM_ASSIGN_OR_RETURN(Value text, NewString(Text(parsed_.symbols[symbol], true)));
        names.push_back(std::move(text));
      }
      return NewTuple(std::move(names));
    }
  } else if (object.Is(Kind::kCycler) && name == "current") {
    const auto& cycler = *static_cast<const CyclerObject*>(object.object());
    return cycler.items[cycler.position];
  } else if (IsSequence(object, Flavor::kGroup) && (name == "grouper" || name == "list")) {
    return AsSequence(object).items[name == "list" ? 1 : 0];
  } else if (object.Is(Kind::kRange) && (name == "start" || name == "stop" || name == "step")) {
    const RangeObject& range = AsRange(object);
    return Value::Int(name == "start" ? range.start : (name == "stop" ? range.stop : range.step));
  }
  if (IsNumber(object) && name == "real") {
    return object.Is(Kind::kBool) ? Value::Int(object.boolean() ? 1 : 0) : object;
  }
  bool unsafe = false;
  const std::string_view method = FindMethod(object, name, &unsafe);
  if (unsafe || name.substr(0, 2) == "__") {
    return MakeUndefined("access to attribute '" + std::string(name) + "' of '" + TypeName(object) +
                             "' object is unsafe.",
                         &budget_, true);
  }
  if (!method.empty()) {
    auto* bound = new MethodObject;
    bound->Charge(&budget_, sizeof(MethodObject));
    bound->self = object;
    bound->name = method;
    return Value::Adopt(Kind::kMethod, bound);
  }
  if (object.Is(Kind::kDict)) {
    const Value* member = AsDict(object).Find(name);
    if (member != nullptr) return *member;
  }
  return Undefined(StrFormat("'%s' has no attribute '%s'", ObjectTypeName(object).c_str(),
                             std::string(name).c_str()));
}

Result<Value> Interpreter::GetItem(const Value& object, const Value& key) {
  if (object.Is(Kind::kUndefined)) return RaiseUndefined(object);
  if (object.Is(Kind::kDict)) {
    if (IsHashable(key)) {
      const Value* member =
          key.Is(Kind::kString) ? AsDict(object).Find(BytesOf(key)) : AsDict(object).Find(key);
      if (member != nullptr) return *member;
    }
  } else {
    int64_t index = 0;
    const bool indexed = object.Is(Kind::kString) || object.Is(Kind::kBytes) ||
                         object.Is(Kind::kRange) || IsList(object) || IsTuple(object);
    if (indexed && GetInt64(key, &index)) {
      CELLM_ASSIGN_OR_RETURN(const int64_t length, Length(object));
      if (index < 0) index += length;
      if (index >= 0 && index < length) {
        if (object.Is(Kind::kSequence)) return AsSequence(object).items[static_cast<size_t>(index)];
        if (object.Is(Kind::kRange)) {
          return Value::Int(AsRange(object).start + index * AsRange(object).step);
        }
        const StringObject& string = AsString(object);
        CELLM_RETURN_IF_ERROR(ChargeBytes(string.text.size()));
        if (object.Is(Kind::kBytes)) {
          return Value::Int(static_cast<uint8_t>(string.text.bytes()[static_cast<size_t>(index)]));
        }
        const size_t begin = ByteOffset(string, index);
        const size_t size =
            DecodeUtf8(std::string_view(string.text.bytes()).substr(begin)).byte_count;
        return NewString(string.text.Slice(begin, begin + size), string.markup);
      }
    }
  }
  if (key.Is(Kind::kString)) return GetAttribute(object, key);
  Text repr;
  CELLM_RETURN_IF_ERROR(AppendRepr(key, &repr));
  return Undefined(ObjectTypeName(object) + " has no element " + repr.bytes());
}

namespace {

// Python's slice arithmetic: clamps the bounds and gives the indices start, start + step, ...
struct SliceRange {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t count;
};

SliceRange ResolveSlice(int64_t length, const int64_t* from, const int64_t* to, int64_t step) {
  const auto clamp = [&](int64_t at) {
    if (at < 0) at = at < -length ? -1 : at + length;
    if (at < 0) return step < 0 ? int64_t{-1} : int64_t{0};
    if (at >= length) return step < 0 ? length - 1 : length;
    return at;
  };
  const int64_t start = from != nullptr ? clamp(*from) : (step < 0 ? length - 1 : 0);
  const int64_t stop = to != nullptr ? clamp(*to) : (step < 0 ? -1 : length);
  int64_t count = 0;
  if (step > 0 && stop > start) count = (stop - start - 1) / step + 1;
  if (step < 0 && stop < start) count = (start - stop - 1) / -step + 1;
  return {start, stop, step, count};
}

}  // namespace

Result<Value> Interpreter::Slice(const Value& object, const Value& from, const Value& to,
                                 const Value& step_value) {
  if (object.Is(Kind::kUndefined)) return RaiseUndefined(object);
  if (object.Is(Kind::kDict))
    return RaiseMessage(ErrorKind::kTypeError, "unhashable type: 'slice'");
  const bool sliceable = object.Is(Kind::kString) || object.Is(Kind::kBytes) || IsList(object) ||
                         IsTuple(object) || object.Is(Kind::kRange);
  if (!sliceable) {
    return Raise(ErrorKind::kTypeError, "'%s' object is not subscriptable", TypeName(object));
  }
  int64_t bounds[3] = {0, 0, 1};
  const Value* values[3] = {&from, &to, &step_value};
  for (size_t i = 0; i < 3; ++i) {
    if (values[i]->Is(Kind::kNone)) continue;
    if (values[i]->Is(Kind::kBigInt)) {  // beyond any length: the largest will do
      bounds[i] = AsBigInt(*values[i]).negative() ? -INT64_MAX : INT64_MAX;
    } else if (!GetInt64(*values[i], &bounds[i])) {
      return RaiseMessage(ErrorKind::kTypeError,
                          "slice indices must be integers or None or have an __index__ method");
    }
  }
  if (bounds[2] == 0) return RaiseMessage(ErrorKind::kValueError, "slice step cannot be zero");
  bounds[2] = std::max(bounds[2], -INT64_MAX);
  CELLM_ASSIGN_OR_RETURN(const int64_t length, Length(object));
  const SliceRange range = ResolveSlice(length, from.Is(Kind::kNone) ? nullptr : &bounds[0],
                                        to.Is(Kind::kNone) ? nullptr : &bounds[1], bounds[2]);
  if (object.Is(Kind::kSequence)) {
    CELLM_RETURN_IF_ERROR(CheckItemCount(static_cast<size_t>(range.count)));
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(range.count));
    for (int64_t i = 0; i < range.count; ++i) {
      items.push_back(AsSequence(object).items[static_cast<size_t>(range.start + i * range.step)]);
    }
    return IsList(object) ? NewList(std::move(items)) : NewTuple(std::move(items));
  }
  if (object.Is(Kind::kRange)) {
    const RangeObject& source = AsRange(object);
    auto* result = new RangeObject;
    result->Charge(&budget_, sizeof(RangeObject));
    result->count = range.count;
    result->start = source.start + range.start * source.step;
    // A step too large for 64 bits passes the last item at once, as any other would.
    if (!CheckedMul(source.step, range.step, &result->step)) result->step = source.step;
    result->stop = source.start + range.stop * source.step;
    return Value::Adopt(Kind::kRange, result);
  }
  const StringObject& string = AsString(object);
  CELLM_RETURN_IF_ERROR(ChargeBytes(string.text.size()));
  if (object.Is(Kind::kBytes)) {
    return RaiseMessage(ErrorKind::kTypeError, "slices of bytes are not supported");
  }
  if (range.step == 1) {
    const size_t begin = ByteOffset(string, range.start);
    const size_t end = ByteOffset(string, range.start + range.count);
    return NewString(string.text.Slice(begin, end), string.markup);
  }
  std::vector<size_t> offsets;  // of every character
  const std::string_view bytes = string.text.bytes();
  for (size_t at = 0; at < bytes.size(); at += DecodeUtf8(bytes.substr(at)).byte_count) {
    offsets.push_back(at);
  }
  offsets.push_back(bytes.size());
  Text out;
  for (int64_t i = 0; i < range.count; ++i) {
    const auto at = static_cast<size_t>(range.start + i * range.step);
    out.AppendSlice(string.text, offsets[at], offsets[at + 1]);
  }
  return NewString(std::move(out), string.markup);
}

}  // namespace cellm::jinja
