#include "constrain/json_formats.h"

namespace cellm::constrain {
namespace {

// Years 0001 to 9999, months with their lengths, 29 February in leap years (RFC 3339).
#define CELLM_DATE                                                                              \
  "(((\\d{3}[1-9]|\\d{2}[1-9]\\d|\\d[1-9]\\d{2}|[1-9]\\d{3})-"                                  \
  "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[" \
  "0-8])))|(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define CELLM_CLOCK "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?"
#define CELLM_TIME CELLM_CLOCK "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define CELLM_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
// Labels, and a last one of letters: at most 4 * 33 + 24 bytes of the 253 that DNS allows.
#define CELLM_HOST "(" CELLM_LABEL "\\.){1,4}[A-Za-z]{2,24}"
#define CELLM_ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define CELLM_OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]\\d|\\d)"
#define CELLM_GROUP "[0-9A-Fa-f]{1,4}"
#define CELLM_PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define CELLM_NUMBER "\\d{1,9}"
#define CELLM_SECONDS CELLM_NUMBER "S"
#define CELLM_MINUTES CELLM_NUMBER "M(" CELLM_SECONDS ")?"
#define CELLM_HOURS CELLM_NUMBER "H(" CELLM_MINUTES ")?"
#define CELLM_CLOCK_PART "T(" CELLM_HOURS "|" CELLM_MINUTES "|" CELLM_SECONDS ")"
#define CELLM_DAYS CELLM_NUMBER "D"
#define CELLM_MONTHS CELLM_NUMBER "M(" CELLM_DAYS ")?"
#define CELLM_YEARS CELLM_NUMBER "Y(" CELLM_MONTHS ")?"

struct Format {
  std::string_view name;
  std::string_view regex;
};

constexpr Format kFormats[] = {
    {"date", CELLM_DATE},
    {"time", CELLM_TIME},
    {"date-time", CELLM_DATE "T" CELLM_TIME},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"ipv4", "(" CELLM_OCTET "\\.){3}" CELLM_OCTET},
    // RFC 4291, section 2.2: eight groups, or fewer around one "::".
    {"ipv6", "(" CELLM_GROUP ":){7}" CELLM_GROUP "|(" CELLM_GROUP ":){1,7}:|(" CELLM_GROUP
             ":){1,6}:" CELLM_GROUP "|(" CELLM_GROUP ":){1,5}(:" CELLM_GROUP "){1,2}|(" CELLM_GROUP
             ":){1,4}(:" CELLM_GROUP "){1,3}|(" CELLM_GROUP ":){1,3}(:" CELLM_GROUP
             "){1,4}|(" CELLM_GROUP ":){1,2}(:" CELLM_GROUP "){1,5}|" CELLM_GROUP ":(:" CELLM_GROUP
             "){1,6}|:(:" CELLM_GROUP "){1,7}|::"},
    {"email", CELLM_ATOM "(\\." CELLM_ATOM "){0,2}@" CELLM_HOST},
    {"hostname", CELLM_HOST},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" CELLM_HOST "(:[1-9]\\d{0,3})?(/" CELLM_PCHAR
            "*)*(\\?(" CELLM_PCHAR "|[/?])*)?(#(" CELLM_PCHAR "|[/?])*)?"},
    {"duration", "P((" CELLM_YEARS "|" CELLM_MONTHS "|" CELLM_DAYS ")(" CELLM_CLOCK_PART
                 ")?|" CELLM_CLOCK_PART "|" CELLM_NUMBER "W)"},
};

}  // namespace

std::string_view FormatRegex(std::string_view format) {
  for (const Format& known : kFormats) {
    if (known.name == format) return known.regex;
  }
  return {};
}

}  // namespace cellm::constrain
