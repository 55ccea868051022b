// Fills the page's template with the data of data.cpp. Must not know how the page shows them.
#include "tools/cli/report/page.h"

namespace command::report {

namespace {

// Returns JSON that may be put into a script element: without "<", so that no text can end the
// element or open a comment in it (HTML, "Restrictions for contents of script elements").
std::string inert(std::string_view json) {
    std::string text;
    for (const char byte : json) {
        text += byte == '<' ? "\\u003c" : std::string(1, byte);
    }
    return text;
}

std::string script() {
    std::string text;
    for (const std::string_view part :
         {model_js(), conversation_js(), cache_js(), facts_js(), parting_js(), page_js()}) {
        text += part;
    }
    return text;
}

} // namespace

// In one pass: inserted text is not searched for marks.
void write_page(const Shown &shown, const Shown *other, const std::string &difference,
                const Out &out) {
    const std::string_view whole = page_html();
    size_t at = 0;
    for (size_t mark; (mark = whole.find("{{", at)) != std::string_view::npos;) {
        const size_t end = whole.find("}}", mark);
        const std::string_view name = whole.substr(mark + 2, end - mark - 2);
        out(whole.substr(at, mark - at));
        if (name == "data") {
            write_data(shown, other, difference, [&](std::string_view json) { out(inert(json)); });
        } else {
            // The root digest is the nonce that scripts need to run. A text in the file cannot
            // contain it, because the digest covers the text.
            out(name == "style"    ? std::string(page_css())
                : name == "script" ? script()
                                   : shown.root);
        }
        at = end + 2;
    }
    out(whole.substr(at));
}

} // namespace command::report
