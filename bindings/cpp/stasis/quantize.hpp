// Stasis for C++20: a model directory written as a GGUF file. Included by stasis.hpp.
#pragma once

#include <filesystem>

#include "stasis/options.hpp"

namespace stasis {

using QuantizeReport = stasis_quantize_report;

struct QuantizeOptions {
    std::string type = {}; // "Q4_K_M", ... (stasis_quantize.h); empty: Q8_0
    std::uint32_t threads = 0;
    bool replace = false; // a GGUF file that exists
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {};              // bytes of weights
};

// Writes the model directory `path` as the GGUF file `out`, whole or not at all. Thread-safe.
inline QuantizeReport quantize(const std::filesystem::path &path, const std::filesystem::path &out,
                               const QuantizeOptions &options = {}) {
    detail::CallWith<QuantizeOptions, stasis_quantize_options> call(options);
    call.raw.flags = options.replace ? STASIS_QUANTIZE_REPLACE : 0;
    call.raw.type = detail::c_option(options.type, "the type");
    call.raw.threads = options.threads;
    auto report = detail::sized<QuantizeReport>();
    call.check(stasis_model_quantize(detail::c_text(path.native(), "the path"),
                                     detail::c_text(out.native(), "out"), &call.raw, &report,
                                     call.error()));
    return report;
}

} // namespace stasis
