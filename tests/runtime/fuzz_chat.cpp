// Fuzzes the fitting of a chat format: the input is a template. A template that is recognised
// renders.
#include <cstdint>
#include <ctime>
#include <string>

#include "format/state/error.h"
#include "runtime/text/chat.h"
#include "tests/fuzz/watched.h"
#include "tests/runtime/jinja_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace stasis;
    const std::string source(reinterpret_cast<const char *>(data), size);
    const auto chat = ChatTemplate::recognise_text(source, "<s>", "</s>", std::time_t{0});
    if (!chat->problem().empty()) {
        return 0;
    }
    const Message messages[] = {{"user", "hello"}, {"assistant", "x"}, {"user", source}};
    try {
        chat->render(messages, true);
    } catch (const Error &error) { // a text that the template treats specially
        fuzz::expect(error.what()[0] != '\0', "an error without a message");
    }
    return 0;
}
