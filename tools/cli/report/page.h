// The report page: its files, inside the command, whose definitions the build generates
// (CMakeLists.txt), and what they make together.
#pragma once

#include <string_view>

#include "tools/cli/report/data.h"

namespace command::report {

std::string_view page_html(); // with {{nonce}}, {{style}}, {{data}} and {{script}} to be filled in
std::string_view page_css();
std::string_view model_js(); // the scripts run one after the other, in this order
std::string_view conversation_js();
std::string_view cache_js();
std::string_view facts_js();
std::string_view parting_js();
std::string_view page_js();

// Writes the whole page piece by piece. `other` and `difference` as in write_data.
void write_page(const Shown &shown, const Shown *other, const std::string &difference,
                const Out &out);

} // namespace command::report
