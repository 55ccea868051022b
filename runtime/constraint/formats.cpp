// The list of formats; see formats.h. February has 29 days, a minute may have 61 seconds.
#include "runtime/constraint/formats.h"

namespace stasis::constraint {

namespace {

#define STASIS_DATE                                                                                \
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"       \
    "02-(0[1-9]|[12][0-9]))"
#define STASIS_TIME                                                                                \
    "([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]{1,9})?"                                \
    "(Z|[+\\-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define STASIS_LABEL "[0-9A-Za-z]([0-9A-Za-z\\-]{0,61}[0-9A-Za-z])?"
#define STASIS_HOST STASIS_LABEL "(\\." STASIS_LABEL "){0,16}"

constexpr struct {
    std::string_view name, expression;
} kFormats[] = {
    {"date", "^" STASIS_DATE "$"},
    {"time", "^" STASIS_TIME "$"},
    {"date-time", "^" STASIS_DATE "T" STASIS_TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}"
             "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])$"},
    {"hostname", "^" STASIS_HOST "$"},
    {"email", "^[0-9A-Za-z!#$%&'*+/=?\\^_`{|}~\\-]+(\\.[0-9A-Za-z!#$%&'*+/=?\\^_`{|}~\\-]+)*"
              "@" STASIS_HOST "$"},
};

#undef STASIS_DATE
#undef STASIS_TIME
#undef STASIS_LABEL
#undef STASIS_HOST

} // namespace

std::optional<std::string_view> format_expression(std::string_view format) {
    for (const auto &each : kFormats) {
        if (each.name == format) {
            return each.expression;
        }
    }
    return std::nullopt;
}

} // namespace stasis::constraint
