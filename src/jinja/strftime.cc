// strftime in the C locale, with the flags of glibc ("%-d", "%_d", "%0e", "%^a", "%#b").

#include "base/status.h"
#include "jinja/strings.h"

namespace cellm::jinja {

namespace {

constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};
constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int DayOfYear(const CivilTime& t) {  // from 0
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return kBefore[t.month - 1] + t.day - 1 + (t.month > 2 && IsLeap(t.year) ? 1 : 0);
}

// Days since 1970-01-01 (Howard Hinnant's civil calendar arithmetic).
int64_t DaysFromCivil(const CivilTime& t) {
  const int64_t y = t.year - (t.month <= 2 ? 1 : 0);
  const int64_t era = (y >= 0 ? y : y - 399) / 400;
  const int64_t yoe = y - era * 400;
  const int64_t doy = (153 * (t.month + (t.month > 2 ? -3 : 9)) + 2) / 5 + t.day - 1;
  return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

int Weekday(const CivilTime& t) {  // Sunday is 0
  const int64_t day = (DaysFromCivil(t) + 4) % 7;
  return static_cast<int>(day < 0 ? day + 7 : day);
}

// ISO 8601 week and the year that it belongs to.
void IsoWeek(const CivilTime& t, int* year, int* week) {
  const int monday_based = (Weekday(t) + 6) % 7;
  *year = t.year;
  *week = (DayOfYear(t) - monday_based + 10) / 7;
  const auto weeks_in = [](int y) {
    const int jan1 = Weekday({y, 1, 1, 0, 0, 0});
    return jan1 == 4 || (jan1 == 3 && IsLeap(y)) ? 53 : 52;
  };
  if (*week < 1) {
    --*year;
    *week = weeks_in(*year);
  } else if (*week > weeks_in(t.year)) {
    ++*year;
    *week = 1;
  }
}

class Formatter {
 public:
  explicit Formatter(const CivilTime& time) : t_(time) {}

  std::string Run(std::string_view format) {
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 >= format.size()) {
        out_.push_back(format[i]);
        continue;
      }
      const size_t begin = i++;
      flag_ = '\0';
      while (i + 1 < format.size() &&
             std::string_view("-_0^#").find(format[i]) != std::string_view::npos) {
        flag_ = format[i++];
      }
      // What is no field is printed as it stands.
      if (!Field(format[i])) out_.append(format.substr(begin, i - begin + 1));
    }
    return std::move(out_);
  }

 private:
  bool Number(int value, int width, char pad = '0') {
    if (flag_ == '-') width = 0;
    if (flag_ == '_') pad = ' ';
    if (flag_ == '0') pad = '0';
    std::string digits = std::to_string(value);
    while (static_cast<int>(digits.size()) < width) digits.insert(digits.begin(), pad);
    out_ += digits;
    return true;
  }
  bool Name(std::string text) {
    if (flag_ == '^' || flag_ == '#') {
      for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    }
    out_ += text;
    return true;
  }
  bool Expand(std::string_view format) {
    out_ += Formatter(t_).Run(format);
    return true;
  }

  bool Field(char field) {
    const int hour12 = t_.hour % 12 == 0 ? 12 : t_.hour % 12;
    const int weekday = Weekday(t_);
    int iso_year = 0;
    int iso_week = 0;
    IsoWeek(t_, &iso_year, &iso_week);
    switch (field) {
      case 'Y':
        return Number(t_.year, flag_ == '_' ? 4 : 0);
      case 'C':
        return Number(t_.year / 100, 2);
      case 'y':
        return Number(t_.year % 100, 2);
      case 'G':
        return Number(iso_year, 0);
      case 'g':
        return Number(iso_year % 100, 2);
      case 'm':
        return Number(t_.month, 2);
      case 'd':
        return Number(t_.day, 2);
      case 'e':
        return Number(t_.day, 2, ' ');
      case 'H':
        return Number(t_.hour, 2);
      case 'k':
        return Number(t_.hour, 2, ' ');
      case 'I':
        return Number(hour12, 2);
      case 'l':
        return Number(hour12, 2, ' ');
      case 'M':
        return Number(t_.minute, 2);
      case 'S':
        return Number(t_.second, 2);
      case 'f':
        return Number(0, 6);
      case 'j':
        return Number(DayOfYear(t_) + 1, 3);
      case 'u':
        return Number(weekday == 0 ? 7 : weekday, 1);
      case 'w':
        return Number(weekday, 1);
      case 'U':
        return Number((DayOfYear(t_) + 7 - weekday) / 7, 2);
      case 'W':
        return Number((DayOfYear(t_) + 7 - (weekday + 6) % 7) / 7, 2);
      case 'V':
        return Number(iso_week, 2);
      case 'a':
        return Name(std::string(kDays[weekday]).substr(0, 3));
      case 'A':
        return Name(kDays[weekday]);
      case 'b':
      case 'h':
        return Name(std::string(kMonths[t_.month - 1]).substr(0, 3));
      case 'B':
        return Name(kMonths[t_.month - 1]);
      case 'p':
        if (flag_ == '#') return Expand(t_.hour < 12 ? "am" : "pm");
        return Name(t_.hour < 12 ? "AM" : "PM");
      case 'P':
        return Name(t_.hour < 12 ? "am" : "pm");
      case 'c':
        return Expand("%a %b %e %H:%M:%S %Y");
      case 'x':
      case 'D':
        return Expand("%m/%d/%y");
      case 'X':
      case 'T':
        return Expand("%H:%M:%S");
      case 'F':
        return Expand("%Y-%m-%d");
      case 'R':
        return Expand("%H:%M");
      case 'r':
        return Expand("%I:%M:%S %p");
      case 's': {
        out_ +=
            std::to_string(DaysFromCivil(t_) * 86400 + t_.hour * 3600 + t_.minute * 60 + t_.second);
        return true;
      }
      case 'n':
        out_ += '\n';
        return true;
      case 't':
        out_ += '\t';
        return true;
      case '%':
        out_ += '%';
        return true;
      case 'z':
      case 'Z':
        return true;  // a time without zone has none
      default:
        return false;
    }
  }

  const CivilTime& t_;
  std::string out_;
  char flag_ = '\0';
};

}  // namespace

std::string FormatTime(const CivilTime& time, std::string_view format) {
  const bool valid = time.month >= 1 && time.month <= 12 && time.day >= 1 && time.day <= 31;
  return valid ? Formatter(time).Run(format) : std::string();
}

}  // namespace cellm::jinja
