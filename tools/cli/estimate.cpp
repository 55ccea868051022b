// Memory of models and sessions, said before it is taken; see estimate.h.
#include "tools/cli/estimate.h"

#include <cstdio>

namespace command {

namespace {

Json describe(const stasis_session_memory &memory, uint64_t positions) {
    return {{"positions", positions},
            {"kv_bytes", memory.kv_bytes},
            {"kv_most_bytes", memory.kv_most_bytes},
            {"position_bytes", memory.position_bytes},
            {"global_position_bytes", memory.global_position_bytes},
            {"states", memory.states},
            {"state_bytes", memory.state_bytes},
            {"log_bytes", memory.log_bytes},
            {"fixed_bytes", memory.fixed_bytes}};
}

} // namespace

void row(const std::string &name, const std::string &value) {
    print("  " + name + std::string(14 - name.size(), ' ') + visible(value) + "\n");
}

std::string megabytes(uint64_t bytes) {
    char text[40];
    std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
    return text;
}

Estimate estimate_of(const ModelChoice &choice, uint64_t positions) {
    auto options = sized<stasis_model_options>();
    options.threads = choice.threads;
    options.kernels = choice.kernels.empty() ? nullptr : choice.kernels.c_str();
    options.device = choice.device.empty() ? nullptr : choice.device.c_str();
    options.profile = choice.profile.empty() ? nullptr : choice.profile.c_str();
    options.copy_weights = choice.copy_weights ? 1 : 0;
    Estimate result;
    const auto ask = [&] {
        stasis_error error{};
        check(stasis_model_estimate(choice.path.c_str(), &options, nullptr, result.positions,
                                    &result.model, &result.session, &error),
              error, choice.path);
    };
    result.positions = positions;
    ask();
    if (result.positions == 0) {
        result.positions = result.model.context;
        ask();
    }
    return result;
}

Json describe(const Estimate &estimate) {
    const stasis_estimate &model = estimate.model;
    return {{"architecture", model.architecture},
            {"layers", model.layers},
            {"hidden", model.hidden},
            {"vocabulary", model.vocabulary},
            {"context", model.context},
            {"parameters", model.parameters},
            {"weights", model.weight_types},
            {"weight_bytes", model.weight_bytes},
            {"mtp_bytes", model.mtp_bytes},
            {"file_bytes", model.file_bytes},
            {"mapped_bytes", model.mapped_bytes},
            {"allocated_bytes", model.allocated_bytes},
            {"heap_bytes", model.heap_bytes},
            {"workspace_bytes", model.workspace_bytes},
            {"session", describe(estimate.session, estimate.positions)}};
}

void print_memory(const Estimate &estimate) {
    const stasis_estimate &model = estimate.model;
    const stasis_session_memory &session = estimate.session;
    row("memory", megabytes(model.mapped_bytes) + " of weights mapped, " +
                      megabytes(model.allocated_bytes + model.heap_bytes) + " copied, " +
                      megabytes(model.workspace_bytes) + " of workspace");
    std::string growth = std::to_string(session.position_bytes) + " bytes for each position";
    if (session.global_position_bytes != session.position_bytes) {
        growth += ", " + std::to_string(session.global_position_bytes) +
                  " of them in layers that see all positions";
    }
    row("session", growth);
    const uint64_t states = session.state_bytes + session.log_bytes + session.fixed_bytes;
    row("", megabytes(session.kv_bytes + states) + " at " + std::to_string(estimate.positions) +
                " positions: keys and values " + megabytes(session.kv_bytes) + ", other " +
                megabytes(states));
}

void print_estimate(const Estimate &estimate) {
    const stasis_estimate &model = estimate.model;
    row("architecture", model.architecture);
    row("layers", std::to_string(model.layers));
    row("hidden", std::to_string(model.hidden));
    row("vocabulary", std::to_string(model.vocabulary));
    row("context", std::to_string(model.context) + " positions");
    row("parameters", std::to_string(model.parameters));
    row("weights", model.weight_types);
    print_memory(estimate);
}

} // namespace command
