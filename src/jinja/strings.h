#ifndef CELLM_SRC_JINJA_STRINGS_H_
#define CELLM_SRC_JINJA_STRINGS_H_

// Strings by character, and the entry points of the files that hold methods and formatting.
// Internal to src/jinja.

#include <span>
#include <string_view>

#include "jinja/interpreter.h"

namespace cellm::jinja {

// Byte offset of a character; index 0..CharCount.
size_t ByteOffset(const StringObject& string, int64_t char_index);
// Character index of a byte offset.
int64_t CharIndex(const StringObject& string, size_t byte_offset);
// Where `needle` first (or last) occurs in haystack[from, ...); npos when it does not. Linear time
// also for hostile inputs.
size_t FindBytes(std::string_view haystack, std::string_view needle, size_t from = 0);
size_t FindLastBytes(std::string_view haystack, std::string_view needle);
// The string cut into characters, each with its mark.
std::vector<Value> Characters(Interpreter& in, const StringObject& string);

// The name of a method of `object` in a static table, or empty. *unsafe: the reference has it, and
// its sandbox refuses it.
std::string_view FindMethod(const Value& object, std::string_view name, bool* unsafe);
Result<Value> CallMethod(Interpreter& in, const MethodObject& method, Arguments args);
std::string_view FindStringMethod(std::string_view name);
Result<Value> CallStringMethod(Interpreter& in, const Value& self, std::string_view name,
                               const Arguments& args);
Result<Value> CallFunction(Interpreter& in, int function, Arguments args);
Value NextOfCycler(const Value& cycler);

// ---- Shared by filters and methods ----
// str.replace(); count < 0 is "all".
Result<Text> Replace(Interpreter& in, const Text& text, const Text& from, const Text& to,
                     int64_t count);
// str.strip() and its one-sided forms; `characters` null strips blanks.
Text Strip(const Text& text, const Text* characters, bool left, bool right);
// Both in characters. `fill` is one character.
Result<Text> Pad(Interpreter& in, const Value& string, int64_t left, int64_t right,
                 const Text& fill);
Result<Text> Center(Interpreter& in, const Value& string, int64_t width, const Text& fill);
// The lines without their ends (str.splitlines()).
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
// "separator".join(items) over str(item); markup escapes items that are not.
Result<Text> Join(Interpreter& in, const Text& separator, std::span<const Value> items,
                  bool markup);

// "format % args".
Result<Value> PercentFormat(Interpreter& in, const Value& format, const Value& args);
// str.format(*args, **kwargs), with the sandbox's attribute rules.
Result<Value> BraceFormat(Interpreter& in, const Value& format, const Arguments& args);
// tojson(value, ...).
Result<Value> ToJson(Interpreter& in, const Value& value, const Arguments& args);
// strftime over the C locale.
std::string FormatTime(const CivilTime& time, std::string_view format);

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_STRINGS_H_
