#ifndef CELLM_SRC_JINJA_BUILTINS_H_
#define CELLM_SRC_JINJA_BUILTINS_H_

// The names that templates may use without defining them. Parser and interpreter share these
// tables: what is not here is refused when the template is loaded.

#include <string_view>

namespace cellm::jinja {

// Number of the filter, test or global function, or -1. `*_known` is true for names that the
// reference has and this engine refuses (urlize, xmlattr, pprint).
int FindFilter(std::string_view name);
int FindTest(std::string_view name);
int FindGlobal(std::string_view name);
bool IsRefusedFilter(std::string_view name);

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_BUILTINS_H_
