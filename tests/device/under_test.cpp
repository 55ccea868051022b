// See under_test.h. Loads a module as the library would, but from the file that is named.
#include "tests/device/under_test.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "tests/data_files.h"

namespace under_test {

namespace {

constexpr const char *kVariable = "STASIS_CUDA_MODULE", *kWhich = "STASIS_DEVICE_TESTS";

// Null if the value is empty.
const char *variable(const char *name) {
    const char *value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
}

struct Loaded {
    const DeviceTable *table = nullptr;
    std::string problem;
};

Loaded load(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *why = dlerror();
        return {nullptr, why != nullptr ? why : "it cannot be loaded"};
    }
    auto *entry = reinterpret_cast<stasis::kernels::DeviceEntry *>(
        dlsym(library, stasis::kernels::kDeviceEntry));
    const DeviceTable *table = entry != nullptr ? entry() : nullptr;
    if (table == nullptr) {
        return {nullptr, std::string("it has no ") + stasis::kernels::kDeviceEntry};
    }
    if (table->version != stasis::kernels::kDeviceVersion ||
        table->size_bytes != sizeof(DeviceTable)) {
        return {nullptr, "it is of another version"};
    }
    return {table, ""};
}

} // namespace

const DeviceTable *cuda_module() {
    const char *file = variable(kVariable);
    if (file == nullptr) {
        return nullptr;
    }
    static const Loaded loaded = load(file);
    INFO(std::string(kVariable), "=", std::string(file), ": ", loaded.problem);
    REQUIRE(loaded.table != nullptr);
    return loaded.table;
}

bool module_alone() {
    const char *which = variable(kWhich);
    if (which == nullptr) {
        return false;
    }
    INFO(std::string(kWhich), "=", std::string(which), ", and a module that ",
         std::string(kVariable), " names");
    REQUIRE(std::string(which) == "module");
    REQUIRE(cuda_module() != nullptr);
    return true;
}

const DeviceTable &each_module() {
    const DeviceTable *cuda = cuda_module();
    const DeviceTable *chosen = &host_module::table();
    if (!module_alone()) {
        SUBCASE("on the host grid") {}
        SUBCASE("on the host grid, as late as can be") {
            chosen = &host_module::late_table();
        }
    }
    if (cuda != nullptr) {
        SUBCASE("on the module's device") {
            chosen = cuda;
        }
    }
    return *chosen;
}

} // namespace under_test

TEST_CASE("device: the tests of this program also run on a GPU") {
    const under_test::DeviceTable *module = under_test::cuda_module();
    if (module == nullptr) {
        STASIS_SKIP("STASIS_CUDA_MODULE names no module: they ran on the host grid alone");
    }
    const under_test::Opened opened(*module);
    std::printf("device 0 of module \"%s\": %s, compute capability %u.%u\n", module->name,
                opened.info.name, opened.info.major, opened.info.minor);
    CHECK(opened.info.memory_bytes > 0);
}
