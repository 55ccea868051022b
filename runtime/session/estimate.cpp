// Puts a model together without its weights and counts; see estimate.h.
#include "runtime/session/estimate.h"

#include "runtime/compute/backend.h"
#include "runtime/compute/pass.h"
#include "runtime/compute/profile.h"
#include "runtime/model/model_file.h"
#include "runtime/session/origin.h"
#include "runtime/timeline/append.h"

namespace stasis {

ModelEstimate estimate_model(const std::string &path, const ModelOptions &options,
                             const TimelineOptions &session, uint64_t positions) {
    if (options.device != "cpu") {
        fail(Status::unsupported, "device \"%s\": memory is estimated for the CPU alone",
             options.device.c_str());
    }
    ModelEstimate result;
    const Memory memory; // what a pass takes of it is counted, and never touched
    Network network(memory);
    network.kernels = choose_kernels(options.kernels);
    const Origin origin(path);
    result.config = origin.config();
    network.threads = options.thread_pool != nullptr ? options.thread_pool
                                                     : std::make_shared<Threads>(options.threads);
    Checkpoint checkpoint = origin.checkpoint(result.config);
    for (const std::shared_ptr<ModelFile> &file : checkpoint.files) {
        result.file_bytes += file->size_bytes();
    }
    const bool map = !options.copy_weights, code = network.kernels->matmul_coded != nullptr;
    result.weights = measure_weights(std::move(checkpoint), result.config, map, !map && code);

    network.config = result.config;
    network.weights.groups = result.weights.groups;
    network.backend = &kCpuBackend;
    open_profile(network, options.profile); // refuses what the CPU has not
    network.describe_layers();
    check_rewinds(network);
    network.make_cache(host_pages(network.memory), UINT64_MAX, options.state_budget_bytes);
    Pass pass(network);
    pass.fit(kChunk);
    result.workspace_bytes = pass.size_bytes();
    TimelineOptions empty = session;
    empty.reserve = 0; // it determines when pages are taken, not how many
    result.session = footprint(Timeline(network, empty), positions);
    return result;
}

} // namespace stasis
