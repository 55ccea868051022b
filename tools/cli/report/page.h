// The report page's files, inside the command. The build generates their definitions
// (CMakeLists.txt).
#pragma once

#include <string_view>

namespace command::report {

std::string_view page_html(); // with {{nonce}}, {{style}}, {{data}} and {{script}} to be filled in
std::string_view page_css();
std::string_view model_js(); // the scripts run one after the other, in this order
std::string_view conversation_js();
std::string_view cache_js();
std::string_view facts_js();
std::string_view parting_js();
std::string_view page_js();

} // namespace command::report
