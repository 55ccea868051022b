// Fuzzes the template interpreter: the input is a template. A rendering holds no more memory than
// its budget and the template's size allow. fuzz_chat.cpp fuzzes the use of templates.
#include <cstdint>
#include <ctime>
#include <string>

#include "format/state/error.h"
#include "runtime/text/jinja/jinja.h"
#include "tests/fuzz/watched.h"
#include "tests/runtime/jinja_mutator.h"

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
    } catch (const jinja::Refusal &) {
    }
    return 0;
}
