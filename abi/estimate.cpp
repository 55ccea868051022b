// Memory of sessions, and of models before they are opened; see stasis_describe.h. Must not know
// what a model's files contain.
#include "runtime/session/estimate.h"

#include "abi/handles.h"
#include "abi/model_options.h"
#include "abi/options.h"
#include "abi/run.h"

namespace stasis::abi {

namespace {

stasis_session_memory memory_of(const Footprint &from) {
    stasis_session_memory to{};
    to.page_positions = kPage;
    to.kv_bytes = from.kv_bytes;
    to.kv_most_bytes = from.kv_most_bytes;
    to.position_bytes = from.position_bytes;
    to.global_position_bytes = from.global_position_bytes;
    to.states = from.states;
    to.state_bytes = from.state_bytes;
    to.log_bytes = from.log_bytes;
    to.tracking_bytes = from.tracking_bytes;
    to.fixed_bytes = from.fixed_bytes;
    return to;
}

stasis_estimate estimate_of(const ModelEstimate &from) {
    const Config &config = from.config;
    stasis_estimate to{};
    write_field(config.architecture, to.architecture, sizeof to.architecture);
    to.layers = config.layers;
    to.hidden = config.hidden;
    to.vocabulary = config.vocabulary;
    to.context = config.context;
    to.parameters = from.weights.parameters;
    to.weight_bytes = from.weights.stored_bytes;
    to.mtp_bytes = from.weights.mtp_bytes;
    to.file_bytes = from.file_bytes;
    to.mapped_bytes = from.weights.mapped_bytes;
    to.allocated_bytes = from.weights.taken_bytes;
    to.heap_bytes = from.weights.heap_bytes;
    to.workspace_bytes = from.workspace_bytes;
    write_field(from.weights.types, to.weight_types, sizeof to.weight_types);
    return to;
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

stasis_status stasis_model_session_memory(const stasis_model *model,
                                          const stasis_session_options *options, uint64_t positions,
                                          stasis_session_memory *memory, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require_struct(memory, "memory");
        stasis::TimelineOptions given = read_session_options(options, "options");
        given.reserve = 0; // it determines when pages are taken, not how many
        const stasis::Timeline empty(*model->model, given);
        write_struct(memory_of(stasis::footprint(empty, positions)), memory, "memory");
    });
}

stasis_status stasis_model_estimate(const char *path, const stasis_model_options *options,
                                    const stasis_session_options *session_options,
                                    uint64_t positions, stasis_estimate *estimate,
                                    stasis_session_memory *session, stasis_error *error) {
    return enter(error, [&] {
        require_path(path, "path");
        require_struct(estimate, "estimate");
        if (session != nullptr) {
            require_struct(session, "session");
        }
        const stasis::ModelOptions given = read_model_options(read_struct(options, "options"));
        const stasis::ModelEstimate found = stasis::estimate_model(
            path, given, read_session_options(session_options, "session_options"), positions);
        write_struct(estimate_of(found), estimate, "estimate");
        if (session != nullptr) {
            write_struct(memory_of(found.session), session, "session");
        }
    });
}
