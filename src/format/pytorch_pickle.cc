#include "format/pytorch_pickle.h"

#include <algorithm>
#include <cinttypes>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/limits.h"

namespace cellm::format {
namespace {

constexpr size_t kMaxPickleBytes = size_t{16} << 20;
constexpr size_t kMaxValues = size_t{1} << 21;

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,  // never looked at
  kText,
  kTuple,
  kList,
  kDict,  // items are keys and values in turn
  kOrderedDictMaker,
  kTensorMaker,
  kParameterMaker,
  kElementType,
  kStorage,  // number: index into storages_
  kTensor,   // number: index into tensors_
};

using Ref = uint32_t;

struct Value {
  Kind kind = Kind::kNone;
  int64_t number = 0;     // of kBool, kInt; the Format of kElementType; an index
  std::string_view text;  // of kText
};

struct Storage {
  Format format = Format::kF32;
  std::string_view key;
  uint64_t count = 0;
};

struct StorageType {
  std::string_view name;
  Format format;
};
constexpr StorageType kStorageTypes[] = {
    {"FloatStorage", Format::kF32},     {"HalfStorage", Format::kF16},
    {"BFloat16Storage", Format::kBF16}, {"DoubleStorage", Format::kF64},
    {"CharStorage", Format::kI8},       {"ByteStorage", Format::kU8},
    {"ShortStorage", Format::kI16},     {"IntStorage", Format::kI32},
    {"LongStorage", Format::kI64},      {"BoolStorage", Format::kBool},
};

class Machine {
 public:
  Machine(std::span<const uint8_t> pickle, std::string_view file_name)
      : pickle_(pickle), file_name_(file_name) {}

  Status Run();
  Result<std::vector<PickledTensor>> Tensors(int* skipped) const;

 private:
  Status Step(uint8_t opcode, bool* stop);
  Status StepText(uint8_t opcode);
  Status StepContainer(uint8_t opcode);
  Status Global(std::string_view module, std::string_view name);
  Status Reduce();
  Status Build();
  Status PersistentId();
  Status RebuildTensor(const std::vector<Ref>& arguments);
  Status TakeLine(std::string_view* out);
  Status Take(uint64_t count, const uint8_t** out);
  Status Pop(Ref* out);
  Status PopMark(std::vector<Ref>* out);
  Status Push(Value value);
  Status PushContainer(Kind kind, std::vector<Ref> items);
  Status Extend(std::vector<Ref> added, Kind kind);
  Status Shape(Ref tuple, std::vector<int64_t>* out) const;

  Status Broken(const char* what) const {
    return Corrupt("%.*s: pickle, byte %zu: %s", static_cast<int>(file_name_.size()),
                   file_name_.data(), at_, what);
  }
  const Value& Get(Ref ref) const { return values_[ref]; }
  const std::vector<Ref>& Items(Ref ref) const {
    return containers_[static_cast<size_t>(values_[ref].number)];
  }
  bool IsText(Ref ref, std::string_view text) const {
    return Get(ref).kind == Kind::kText && Get(ref).text == text;
  }

  std::span<const uint8_t> pickle_;
  std::string_view file_name_;
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<std::vector<Ref>> containers_;
  std::vector<Storage> storages_;
  std::vector<PickledTensor> tensors_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::map<uint32_t, Ref> memo_;
  Ref result_ = 0;
};

Status Machine::Take(uint64_t count, const uint8_t** out) {
  if (count > pickle_.size() - at_) return Broken("an operand reaches past the end");
  *out = pickle_.data() + at_;
  at_ += static_cast<size_t>(count);
  return OkStatus();
}

Status Machine::TakeLine(std::string_view* out) {
  const std::string_view rest(reinterpret_cast<const char*>(pickle_.data()) + at_,
                              pickle_.size() - at_);
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) return Broken("a line without an end");
  *out = rest.substr(0, end);
  at_ += end + 1;
  return OkStatus();
}

Status Machine::Push(Value value) {
  if (values_.size() >= kMaxValues) return Broken("more values than any checkpoint has");
  values_.push_back(value);
  stack_.push_back(static_cast<Ref>(values_.size() - 1));
  return OkStatus();
}

Status Machine::PushContainer(Kind kind, std::vector<Ref> items) {
  const int64_t index = static_cast<int64_t>(containers_.size());
  containers_.push_back(std::move(items));
  return Push({kind, index, {}});
}

Status Machine::Pop(Ref* out) {
  if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back())) {
    return Broken("the stack is empty");
  }
  *out = stack_.back();
  stack_.pop_back();
  return OkStatus();
}

Status Machine::PopMark(std::vector<Ref>* out) {
  if (marks_.empty()) return Broken("no mark on the stack");
  out->assign(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return OkStatus();
}

// Adds items to the list or dictionary on top of the stack, which stays there.
Status Machine::Extend(std::vector<Ref> added, Kind kind) {
  Ref target = 0;
  CELLM_RETURN_IF_ERROR(Pop(&target));
  if (Get(target).kind != kind) return Broken("items for something that takes none");
  if (kind == Kind::kDict && added.size() % 2 != 0) return Broken("a key without a value");
  std::vector<Ref>& items = containers_[static_cast<size_t>(Get(target).number)];
  items.insert(items.end(), added.begin(), added.end());
  stack_.push_back(target);
  return OkStatus();
}

Status Machine::Global(std::string_view module, std::string_view name) {
  if (module == "collections" && name == "OrderedDict")
    return Push({Kind::kOrderedDictMaker, 0, {}});
  if (module == "torch._utils" && name == "_rebuild_tensor_v2") {
    return Push({Kind::kTensorMaker, 0, {}});
  }
  if (module == "torch._utils" && name == "_rebuild_parameter") {
    return Push({Kind::kParameterMaker, 0, {}});
  }
  if (module == "torch") {
    for (const StorageType& type : kStorageTypes) {
      if (type.name == name)
        return Push({Kind::kElementType, static_cast<int64_t>(type.format), {}});
    }
  }
  return Unsupported(
      "%.*s: the pickle asks for \"%.*s.%.*s\", which is not one of the few things that are built "
      "here (nothing was executed)",
      static_cast<int>(file_name_.size()), file_name_.data(),
      static_cast<int>(std::min<size_t>(module.size(), 100)), module.data(),
      static_cast<int>(std::min<size_t>(name.size(), 100)), name.data());
}

// ("storage", element type, key, device, count)
Status Machine::PersistentId() {
  Ref id = 0;
  CELLM_RETURN_IF_ERROR(Pop(&id));
  if (Get(id).kind != Kind::kTuple || Items(id).size() != 5) return Broken("an unknown outer id");
  const std::vector<Ref>& parts = Items(id);
  if (!IsText(parts[0], "storage") || Get(parts[1]).kind != Kind::kElementType ||
      Get(parts[2]).kind != Kind::kText || Get(parts[4]).kind != Kind::kInt ||
      Get(parts[4]).number < 0) {
    return Broken("an unknown outer id");
  }
  storages_.push_back({static_cast<Format>(Get(parts[1]).number), Get(parts[2]).text,
                       static_cast<uint64_t>(Get(parts[4]).number)});
  return Push({Kind::kStorage, static_cast<int64_t>(storages_.size() - 1), {}});
}

Status Machine::Shape(Ref tuple, std::vector<int64_t>* out) const {
  if (Get(tuple).kind != Kind::kTuple ||
      Items(tuple).size() > static_cast<size_t>(limits::kMaxTensorRank)) {
    return Broken("a shape that is no short tuple");
  }
  for (const Ref item : Items(tuple)) {
    if (Get(item).kind != Kind::kInt || Get(item).number < 0) return Broken("a negative dimension");
    out->push_back(Get(item).number);
  }
  return OkStatus();
}

// (storage, offset, shape, stride, requires_grad, hooks[, metadata])
Status Machine::RebuildTensor(const std::vector<Ref>& arguments) {
  if (arguments.size() < 6 || arguments.size() > 7 || Get(arguments[0]).kind != Kind::kStorage ||
      Get(arguments[1]).kind != Kind::kInt || Get(arguments[1]).number < 0) {
    return Broken("a tensor made of the wrong things");
  }
  const Storage& storage = storages_[static_cast<size_t>(Get(arguments[0]).number)];
  PickledTensor tensor;
  tensor.format = storage.format;
  tensor.storage = storage.key;
  tensor.storage_count = storage.count;
  tensor.storage_offset = static_cast<uint64_t>(Get(arguments[1]).number);
  CELLM_RETURN_IF_ERROR(Shape(arguments[2], &tensor.shape));
  CELLM_RETURN_IF_ERROR(Shape(arguments[3], &tensor.stride));
  if (tensor.shape.size() != tensor.stride.size()) return Broken("a shape without its strides");
  if (tensors_.size() >= limits::kMaxTensors) return Broken("more tensors than any checkpoint has");
  tensors_.push_back(std::move(tensor));
  return Push({Kind::kTensor, static_cast<int64_t>(tensors_.size() - 1), {}});
}

Status Machine::Reduce() {
  Ref arguments = 0;
  Ref maker = 0;
  CELLM_RETURN_IF_ERROR(Pop(&arguments));
  CELLM_RETURN_IF_ERROR(Pop(&maker));
  if (Get(arguments).kind != Kind::kTuple) return Broken("arguments that are no tuple");
  switch (Get(maker).kind) {
    case Kind::kOrderedDictMaker:
      if (!Items(arguments).empty()) return Broken("an OrderedDict made of something");
      return PushContainer(Kind::kDict, {});
    case Kind::kTensorMaker: {
      const std::vector<Ref> items = Items(arguments);
      return RebuildTensor(items);
    }
    case Kind::kParameterMaker: {
      if (Items(arguments).empty() || Get(Items(arguments)[0]).kind != Kind::kTensor) {
        return Broken("a parameter that is no tensor");
      }
      stack_.push_back(Items(arguments)[0]);
      return OkStatus();
    }
    default:
      return Broken("a call of something that cannot be called");
  }
}

// State dictionaries carry attributes (versions of modules), which nothing here needs.
Status Machine::Build() {
  Ref state = 0;
  Ref target = 0;
  CELLM_RETURN_IF_ERROR(Pop(&state));
  CELLM_RETURN_IF_ERROR(Pop(&target));
  if (Get(target).kind != Kind::kDict) return Broken("attributes for something that has none");
  stack_.push_back(target);
  return OkStatus();
}

Status Machine::StepText(uint8_t opcode) {
  const uint8_t* bytes = nullptr;
  uint64_t length = 0;
  switch (opcode) {
    case 'X':  // BINUNICODE
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
      CELLM_RETURN_IF_ERROR(Take(4, &bytes));
      length = LoadLe32(bytes);
      break;
    case 0x8D:  // BINUNICODE8
      CELLM_RETURN_IF_ERROR(Take(8, &bytes));
      length = LoadLe64(bytes);
      break;
    default:  // SHORT_BINUNICODE, SHORT_BINSTRING, SHORT_BINBYTES
      CELLM_RETURN_IF_ERROR(Take(1, &bytes));
      length = bytes[0];
      break;
  }
  CELLM_RETURN_IF_ERROR(Take(length, &bytes));
  return Push(
      {Kind::kText, 0, {reinterpret_cast<const char*>(bytes), static_cast<size_t>(length)}});
}

Status Machine::StepContainer(uint8_t opcode) {
  std::vector<Ref> items;
  switch (opcode) {
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return OkStatus();
    case ')':  // EMPTY_TUPLE
      return PushContainer(Kind::kTuple, {});
    case ']':  // EMPTY_LIST
      return PushContainer(Kind::kList, {});
    case '}':  // EMPTY_DICT
      return PushContainer(Kind::kDict, {});
    case 't':  // TUPLE
      CELLM_RETURN_IF_ERROR(PopMark(&items));
      return PushContainer(Kind::kTuple, std::move(items));
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      items.resize(opcode - 0x84u);
      for (size_t i = items.size(); i > 0; --i) CELLM_RETURN_IF_ERROR(Pop(&items[i - 1]));
      return PushContainer(Kind::kTuple, std::move(items));
    case 'a':  // APPEND
      items.resize(1);
      CELLM_RETURN_IF_ERROR(Pop(&items[0]));
      return Extend(std::move(items), Kind::kList);
    case 'e':  // APPENDS
      CELLM_RETURN_IF_ERROR(PopMark(&items));
      return Extend(std::move(items), Kind::kList);
    case 's':  // SETITEM
      items.resize(2);
      CELLM_RETURN_IF_ERROR(Pop(&items[1]));
      CELLM_RETURN_IF_ERROR(Pop(&items[0]));
      return Extend(std::move(items), Kind::kDict);
    default:  // SETITEMS
      CELLM_RETURN_IF_ERROR(PopMark(&items));
      return Extend(std::move(items), Kind::kDict);
  }
}

Status Machine::Step(uint8_t opcode, bool* stop) {
  const uint8_t* bytes = nullptr;
  switch (opcode) {
    case 0x80:  // PROTO
      CELLM_RETURN_IF_ERROR(Take(1, &bytes));
      if (bytes[0] >= 2 && bytes[0] <= 5) return OkStatus();
      return Unsupported("%.*s: pickle protocol %d, expected 2 to 5",
                         static_cast<int>(file_name_.size()), file_name_.data(), bytes[0]);
    case 0x95:  // FRAME
      return Take(8, &bytes);
    case 'N':
      return Push({Kind::kNone, 0, {}});
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return Push({Kind::kBool, opcode == 0x88, {}});
    case 'K':  // BININT1
      CELLM_RETURN_IF_ERROR(Take(1, &bytes));
      return Push({Kind::kInt, bytes[0], {}});
    case 'M':  // BININT2
      CELLM_RETURN_IF_ERROR(Take(2, &bytes));
      return Push({Kind::kInt, LoadLe16(bytes), {}});
    case 'J':  // BININT
      CELLM_RETURN_IF_ERROR(Take(4, &bytes));
      return Push({Kind::kInt, LoadLe<int32_t>(bytes), {}});
    case 0x8A: {  // LONG1: little-endian two's complement of a stated length
      CELLM_RETURN_IF_ERROR(Take(1, &bytes));
      const uint8_t length = bytes[0];
      if (length > 8) return Broken("an integer wider than 64 bits");
      CELLM_RETURN_IF_ERROR(Take(length, &bytes));
      uint64_t number = length > 0 && (bytes[length - 1] & 0x80) != 0 ? UINT64_MAX : 0;
      for (size_t i = length; i > 0; --i) number = (number << 8) | bytes[i - 1];
      return Push({Kind::kInt, static_cast<int64_t>(number), {}});
    }
    case 'G':  // BINFLOAT
      CELLM_RETURN_IF_ERROR(Take(8, &bytes));
      return Push({Kind::kFloat, 0, {}});
    case 'X':
    case 'T':
    case 'U':
    case 'B':
    case 'C':
    case 0x8C:
    case 0x8D:
      return StepText(opcode);
    case '(':
    case ')':
    case ']':
    case '}':
    case 't':
    case 0x85:
    case 0x86:
    case 0x87:
    case 'a':
    case 'e':
    case 's':
    case 'u':
      return StepContainer(opcode);
    case 'c': {  // GLOBAL
      std::string_view module;
      std::string_view name;
      CELLM_RETURN_IF_ERROR(TakeLine(&module));
      CELLM_RETURN_IF_ERROR(TakeLine(&name));
      return Global(module, name);
    }
    case 0x93: {  // STACK_GLOBAL
      Ref name = 0;
      Ref module = 0;
      CELLM_RETURN_IF_ERROR(Pop(&name));
      CELLM_RETURN_IF_ERROR(Pop(&module));
      if (Get(name).kind != Kind::kText || Get(module).kind != Kind::kText) {
        return Broken("a callable whose name is no text");
      }
      return Global(Get(module).text, Get(name).text);
    }
    case 'Q':  // BINPERSID
      return PersistentId();
    case 'R':
      return Reduce();
    case 'b':
      return Build();
    case 'q':     // BINPUT
    case 'r':     // LONG_BINPUT
    case 0x94: {  // MEMOIZE
      uint32_t index = static_cast<uint32_t>(memo_.size());
      if (opcode != 0x94) {
        CELLM_RETURN_IF_ERROR(Take(opcode == 'q' ? 1 : 4, &bytes));
        index = opcode == 'q' ? bytes[0] : LoadLe32(bytes);
      }
      if (stack_.empty()) return Broken("nothing to remember");
      if (memo_.size() >= kMaxValues) return Broken("more values than any checkpoint has");
      memo_[index] = stack_.back();
      return OkStatus();
    }
    case 'h':    // BINGET
    case 'j': {  // LONG_BINGET
      CELLM_RETURN_IF_ERROR(Take(opcode == 'h' ? 1 : 4, &bytes));
      const auto found = memo_.find(opcode == 'h' ? bytes[0] : LoadLe32(bytes));
      if (found == memo_.end()) return Broken("nothing was remembered under this number");
      stack_.push_back(found->second);
      return OkStatus();
    }
    case '.':
      *stop = true;
      return Pop(&result_);
    default:
      return Unsupported("%.*s: the pickle has opcode 0x%02X at byte %zu, which is not known here",
                         static_cast<int>(file_name_.size()), file_name_.data(), opcode, at_ - 1);
  }
}

Status Machine::Run() {
  if (pickle_.size() > kMaxPickleBytes) {
    return Broken("larger than any checkpoint's list of tensors");
  }
  bool stop = false;
  while (!stop) {
    const uint8_t* opcode = nullptr;
    CELLM_RETURN_IF_ERROR(Take(1, &opcode));
    CELLM_RETURN_IF_ERROR(Step(*opcode, &stop));
    // Values without memory of their own may be pushed again and again.
    if (stack_.size() > kMaxValues || marks_.size() > kMaxValues) {
      return Broken("more values than any checkpoint has");
    }
  }
  return OkStatus();
}

Result<std::vector<PickledTensor>> Machine::Tensors(int* skipped) const {
  Ref dict = result_;
  if (Get(dict).kind != Kind::kDict) {
    return Unsupported("%.*s: the pickle is no dictionary of tensors",
                       static_cast<int>(file_name_.size()), file_name_.data());
  }
  for (const std::string_view wrapper : {"state_dict", "model"}) {
    const std::vector<Ref>& items = Items(dict);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!IsText(items[i], wrapper) || Get(items[i + 1]).kind != Kind::kDict) continue;
      dict = items[i + 1];
      break;
    }
  }
  std::vector<PickledTensor> tensors;
  const std::vector<Ref>& items = Items(dict);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const Value& key = Get(items[i]);
    const Value& value = Get(items[i + 1]);
    if (key.kind != Kind::kText || value.kind != Kind::kTensor) {
      ++*skipped;
      continue;
    }
    if (key.text.empty() || key.text.size() > limits::kMaxTensorNameBytes) {
      return Corrupt("%.*s: a tensor name of %zu bytes", static_cast<int>(file_name_.size()),
                     file_name_.data(), key.text.size());
    }
    if (tensors.size() >= limits::kMaxTensors) {
      return Corrupt("%.*s: more tensors than any checkpoint has",
                     static_cast<int>(file_name_.size()), file_name_.data());
    }
    tensors.push_back(tensors_[static_cast<size_t>(value.number)]);
    tensors.back().name = key.text;
  }
  if (tensors.empty()) {
    return Unsupported("%.*s: the pickle holds no tensors under names",
                       static_cast<int>(file_name_.size()), file_name_.data());
  }
  return tensors;
}

}  // namespace

Result<std::vector<PickledTensor>> ReadPickledTensors(std::span<const uint8_t> pickle,
                                                      std::string_view file_name, int* skipped) {
  Machine machine(pickle, file_name);
  CELLM_RETURN_IF_ERROR(machine.Run());
  return machine.Tensors(skipped);
}

}  // namespace cellm::format
