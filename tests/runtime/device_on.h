// Models opened on the device of the tests (tests/device).
#pragma once

#include "tests/device/host_module.h"
#include "tests/runtime/failure.h"
#include "tests/runtime/models.h"

namespace stasis::test {

inline ModelOptions on_device(const kernels::DeviceTable &module = host_module::table()) {
    ModelOptions options;
    options.threads = 2;
    options.device = "cuda";
    options.device_module = &module;
    return options;
}

// Puts back how the device behaves.
struct Behaviour {
    ~Behaviour() { host_module::settings() = {}; }
};

inline std::shared_ptr<Model>
open_there(const std::string &name, const kernels::DeviceTable &module = host_module::table()) {
    return open_model(directory(name), on_device(module));
}

inline std::unique_ptr<Session> session_of(const std::shared_ptr<Model> &model) {
    TimelineOptions options;
    options.capacity = std::min<uint64_t>(1024, model->config.context);
    return std::make_unique<Session>(model, options);
}

inline std::span<const uint32_t> part(const std::vector<uint32_t> &tokens, size_t begin,
                                      size_t end) {
    return std::span(tokens).subspan(begin, end - begin);
}

} // namespace stasis::test
