// Fuzzes the template interpreter and the fitting of a chat format: the input is a template. A
// rendering holds no more memory than its budget and the template's size allow.
#include <cstdint>
#include <ctime>
#include <string>

#include "format/error.h"
#include "runtime/jinja/jinja.h"
#include "runtime/text/chat.h"
#include "tests/fuzz/watched.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace stasis;
    const std::string source(reinterpret_cast<const char *>(data), size);
    try {
        jinja::Budget budget{20000, false};
        const fuzz::Meter meter(1024 * size + (4 << 20));
        const auto message = jinja::make_dict({{"role", "user"}, {"content", "hello"}});
        jinja::Template(source).render(
            {{"messages", jinja::make_list({message, message})}, {"bos_token", "<s>"}},
            std::time_t{0}, budget);
    } catch (const Error &error) {
        fuzz::check_refusal(error);
        return 0;
    } catch (const jinja::Refusal &) {
    }
    const auto chat = ChatTemplate::recognise_text(source, "<s>", "</s>", std::time_t{0});
    if (chat->problem().empty()) {
        const Message messages[] = {{"user", "hello"}, {"assistant", "x"}, {"user", source}};
        try {
            chat->render(messages, true);
        } catch (const Error &) { // a text that the template treats specially
        }
    }
    return 0;
}
