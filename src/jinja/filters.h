#ifndef CELLM_SRC_JINJA_FILTERS_H_
#define CELLM_SRC_JINJA_FILTERS_H_

// The filters, by what they work on. Each gets the value left of the "|" and the arguments.
// Internal to src/jinja; the table is in builtins.cc.

#include "jinja/interpreter.h"

namespace cellm::jinja::filters {

using Filter = Result<Value>(Interpreter& in, const Value& value, Arguments args);

// filters_text.cc
Filter Capitalize, Center, Escape, FileSizeFormat, ForceEscape, Format, Indent, Lower, Replace,
    Safe, String, StripTags, Title, Trim, Truncate, Upper, UrlEncode, WordCount, WordWrap;
// filters_list.cc
Filter Attr, Batch, Default, DictSort, First, GroupBy, Items, Join, Last, Length, List, Map, Max,
    Min, Random, Reject, RejectAttr, Reverse, Select, SelectAttr, Slice, Sort, Sum, Unique;
// filters_number.cc
Filter Abs, Float, Int, Round;

}  // namespace cellm::jinja::filters

#endif  // CELLM_SRC_JINJA_FILTERS_H_
