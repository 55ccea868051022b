// Pools of threads that models share; see stasis_resources.h. Must not know what they compute.
#include "abi/handles.h"
#include "abi/options.h"
#include "runtime/host/threads.h"

namespace stasis::abi {

namespace {

std::shared_ptr<Threads> create_threads(const stasis_threads_options &given) {
    require_array(given.cpus, given.cpu_count, "options.cpus");
    if (given.cpu_count > Threads::kCpuMax) {
        fail(Status::invalid_argument, "options.cpus has %zu numbers: expected each CPU once",
             given.cpu_count);
    }
    if (given.name != nullptr && *given.name == '\0') {
        fail(Status::invalid_argument, "options.name is empty: expected a name, or NULL");
    }
    ThreadsPlace place;
    if (given.cpu_count != 0) {
        place.cpus.assign(given.cpus, given.cpus + given.cpu_count);
    }
    place.name = given.name != nullptr ? given.name : "";
    return std::make_shared<Threads>(given.count, place);
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_threads_options_init(stasis_threads_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_threads_create(const stasis_threads_options *options, stasis_threads **threads,
                                    stasis_error *error) {
    return enter(error, [&] {
        require(threads, "threads");
        const stasis_threads_options given = read_struct(options, "options");
        auto handle = std::make_unique<stasis_threads>();
        handle->threads = create_threads(given);
        *threads = handle.release();
    });
}

void stasis_threads_free(stasis_threads *threads) {
    enter(nullptr, [&] { delete threads; });
}
