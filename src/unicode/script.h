#ifndef CELLM_SRC_UNICODE_SCRIPT_H_
#define CELLM_SRC_UNICODE_SCRIPT_H_

// The Script property (UAX #24) of the characters of Unicode 9.0, from scripts.inc
// (scripts/make_scripts_table.py): the version by which the UnicodeScripts pre-tokenizer cuts.

#include <cstdint>

namespace cellm::unicode {

// A script's number; 0 is Unknown. Numbers other than the named ones only compare.
using Script = uint8_t;
extern const Script kScriptUnknown;
extern const Script kScriptHan;
extern const Script kScriptHiragana;
extern const Script kScriptKatakana;

Script ScriptOf(char32_t code_point);

}  // namespace cellm::unicode

#endif  // CELLM_SRC_UNICODE_SCRIPT_H_
