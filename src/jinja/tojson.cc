// tojson: Python's json.dumps with ensure_ascii=False unless asked. Strings keep their marks of
// origin; brackets, commas and quotes are the engine's own and count as untrusted.

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "jinja/python_text.h"
#include "jinja/strings.h"

namespace cellm::jinja {

namespace {

constexpr int kMaxDepth = 100;

class JsonWriter {
 public:
  JsonWriter(Interpreter& in, Text* out) : in_(in), out_(out) {}

  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // an indent was given
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";

  Status Write(const Value& value, int depth) {
    CELLM_RETURN_IF_ERROR(in_.Charge(1));
    if (depth > kMaxDepth) {
      return in_.Raise(ErrorKind::kRecursionError,
                       "maximum recursion depth exceeded: tojson of a value nested deeper than %d",
                       kMaxDepth);
    }
    if (out_->size() > in_.limits().max_string_bytes) return in_.CheckStringSize(out_->size());
    switch (value.kind()) {
      case Kind::kNone:
        Put("null", value.trusted());
        return OkStatus();
      case Kind::kBool:
        Put(value.boolean() ? "true" : "false", value.trusted());
        return OkStatus();
      case Kind::kInt:
      case Kind::kBigInt:
        return in_.AppendRepr(value, out_);
      case Kind::kFloat:
        PutFloat(value.real(), value.trusted());
        return OkStatus();
      case Kind::kString:
        CELLM_RETURN_IF_ERROR(in_.ChargeBytes(TextOf(value).size() * 4));
        WriteString(TextOf(value));
        return OkStatus();
      case Kind::kDict:
        return WriteDict(AsDict(value), depth);
      case Kind::kSequence:
        if (IsList(value) || IsTuple(value)) return WriteList(AsSequence(value).items, depth);
        break;
      default:
        break;
    }
    return in_.Raise(ErrorKind::kTypeError, "Object of type %s is not JSON serializable",
                     TypeName(value));
  }

 private:
  void Put(std::string_view text, bool trusted = false) { out_->Append(text, trusted); }

  void PutFloat(double value, bool trusted) {
    if (std::isnan(value)) return Put("NaN", trusted);
    if (std::isinf(value)) return Put(value > 0 ? "Infinity" : "-Infinity", trusted);
    Put(FloatRepr(value), trusted);
  }

  void NewLine(int depth) {
    if (!pretty) return;
    Put("\n");
    for (int i = 0; i < depth; ++i) Put(indent);
  }

  Status WriteList(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      Put("[]");
      return OkStatus();
    }
    Put("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Put(item_separator);
      NewLine(depth + 1);
      CELLM_RETURN_IF_ERROR(Write(items[i], depth + 1));
    }
    NewLine(depth);
    Put("]");
    return OkStatus();
  }

  Status WriteDict(const DictTable& table, int depth) {
    if (table.size() == 0) {
      Put("{}");
      return OkStatus();
    }
    std::vector<const DictTable::Entry*> entries;
    for (const DictTable::Entry& entry : table.entries()) entries.push_back(&entry);
    if (sort_keys) {
      Status status;
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        if (!status.ok()) return false;
        const Result<int> order = in_.Compare(a->key, b->key);
        if (!order.ok()) status = order.status();
        return order.ok() && order.value() == -1;
      });
      CELLM_RETURN_IF_ERROR(std::move(status));
    }
    Put("{");
    bool first = true;
    for (const DictTable::Entry* entry : entries) {
      if (!first) Put(item_separator);
      first = false;
      NewLine(depth + 1);
      CELLM_RETURN_IF_ERROR(WriteKey(entry->key));
      Put(key_separator);
      CELLM_RETURN_IF_ERROR(Write(entry->value, depth + 1));
    }
    NewLine(depth);
    Put("}");
    return OkStatus();
  }

  Status WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        WriteString(TextOf(key));
        return OkStatus();
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat: {
        Put("\"");
        CELLM_RETURN_IF_ERROR(Write(key, 0));
        Put("\"");
        return OkStatus();
      }
      default:
        return in_.Raise(ErrorKind::kTypeError,
                         "keys must be str, int, float, bool or None, not %s", TypeName(key));
    }
  }

  void WriteString(const Text& text) {
    Put("\"");
    const std::string_view bytes = text.bytes();
    std::string piece;
    text.ForEachRun(0, bytes.size(), [&](size_t begin, size_t end, bool trusted) {
      piece.clear();
      while (begin < end) {
        const Utf8Char c = DecodeUtf8(bytes.substr(begin));
        AppendEscaped(c.code_point, bytes.substr(begin, c.byte_count), &piece);
        begin += c.byte_count;
      }
      Put(piece, trusted);
    });
    Put("\"");
  }

  void AppendEscaped(char32_t c, std::string_view bytes, std::string* out) const {
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kTo = "\"\\nrtfb";
    if (c < 0x80) {
      const size_t at = kFrom.find(static_cast<char>(c));
      if (at != std::string_view::npos) {
        out->push_back('\\');
        out->push_back(kTo[at]);
        return;
      }
    }
    if (c < 0x20 || (ensure_ascii && c > 0x7E)) {
      if (c >= 0x10000) {
        const auto pair = static_cast<unsigned>(c - 0x10000);
        *out += StrFormat("\\u%04x\\u%04x", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
      } else {
        *out += StrFormat("\\u%04x", static_cast<unsigned>(c));
      }
      return;
    }
    out->append(bytes);
  }

  Interpreter& in_;
  Text* out_;
};

}  // namespace

Result<Value> ToJson(Interpreter& in, const Value& value, const Arguments& args) {
  Value options[4];
  CELLM_RETURN_IF_ERROR(BindArguments(
      in, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, options));
  Text out;
  JsonWriter writer(in, &out);
  writer.ensure_ascii = in.IsTrue(options[0]);
  writer.sort_keys = in.IsTrue(options[3]);
  const Value& indent = options[1];
  if (!indent.missing() && !indent.Is(Kind::kNone)) {
    writer.pretty = true;
    writer.item_separator.pop_back();  // no blank before a line end
    int64_t width = 0;
    if (indent.Is(Kind::kString)) {
      writer.indent = BytesOf(indent);
    } else if (GetInt64(indent, &width)) {
      if (width > 1000) {
        return in.RaiseMessage(ErrorKind::kLimit, "tojson: an indent above 1000 is refused");
      }
      writer.indent = std::string(static_cast<size_t>(width > 0 ? width : 0), ' ');
    } else {
      return in.Raise(ErrorKind::kTypeError, "can't multiply sequence by non-int of type '%s'",
                      TypeName(indent));
    }
  }
  const Value& separators = options[2];
  if (!separators.missing() && !separators.Is(Kind::kNone)) {
    CELLM_ASSIGN_OR_RETURN(const ItemList list, in.Iterate(separators));
    if (list.items.size() != 2 || !list.items[0].Is(Kind::kString) ||
        !list.items[1].Is(Kind::kString)) {
      return in.RaiseMessage(ErrorKind::kTypeError, "tojson: separators must be two strings");
    }
    writer.item_separator = BytesOf(list.items[0]);
    writer.key_separator = BytesOf(list.items[1]);
  }
  CELLM_RETURN_IF_ERROR(writer.Write(value, 0));
  return in.NewString(std::move(out));
}

}  // namespace cellm::jinja
