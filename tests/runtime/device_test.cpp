// Whole models on a device whose kernels are the CUDA ones' text (tests/device), and on a GPU where
// there is one: the same bits as on the CPU, whichever way sessions come there.
#include "runtime/kernels/cuda/host_grid.h"
#include "tests/device/under_test.h"
#include "tests/runtime/device_pair.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// Appends in pieces of odd sizes: one row, few, many.
void append_in_pieces(Session &session, const std::vector<uint32_t> &tokens) {
    const size_t sizes[] = {1, 3, 40, 1, 5, 17, 70};
    for (size_t at = 0, i = 0; at < tokens.size(); ++i) {
        const size_t end = std::min(at + sizes[i % 7], tokens.size());
        session.append(part(tokens, at, end), {});
        at = end;
    }
}

Sampling warm(uint64_t seed) {
    Sampling sampling;
    sampling.temperature = 0.8F;
    sampling.seed = seed;
    return sampling;
}

} // namespace

TEST_CASE("device: every bundled model gives the bits that the CPU gives") {
    const kernels::DeviceTable &module = under_test::each_module();
    std::vector<std::string> names = bundled_on_devices();
    names.insert(names.end(), {"quantized/llama", "quantized/gemma3-tied"});
    for (const std::string &name : sampled(names)) {
        INFO("model: ", name);
        const std::shared_ptr<Model> device = open_there(name, module);
        const std::vector<uint32_t> tokens = tokens_for(*device, 150);
        DevicePair pair(open(name), device);
        pair.both([&](Session &session) { append_in_pieces(session, tokens); });
        pair.both([&](Session &session) { session.set_sampling(warm(7)); });
        pair.decode(5);
        std::vector<uint16_t> keys[2], values[2];
        const Config &config = device->config;
        const size_t row = size_t{config.kv_heads} * config.head_dim;
        const uint64_t end = pair.here->position();
        for (Session *session : {pair.here.get(), pair.there.get()}) {
            std::vector<uint16_t> &k = keys[session == pair.there.get()];
            std::vector<uint16_t> &v = values[session == pair.there.get()];
            k.resize(10 * row), v.resize(10 * row);
            session->copy_kv(config.layers - 1, end - 10, end, k.data(), v.data());
        }
        CHECK(keys[0] == keys[1]);
        CHECK(values[0] == values[1]);
    }
}

TEST_CASE("device: one that decides otherwise what is tiny gives the same bits") {
    namespace grid = kernels::device::host_grid;
    for (const grid::Tiny tiny : {grid::Tiny::exact, grid::Tiny::denormal}) {
        grid::tiny = tiny;
        for (const std::string &name :
             sampled({"zoo/gemma3-softcap-linear-rope", "quantized/llama"})) {
            INFO("model: ", name);
            const std::shared_ptr<Model> device = open_there(name);
            DevicePair pair(open(name), device);
            pair.both(
                [&](Session &session) { append_in_pieces(session, tokens_for(*device, 90)); });
        }
    }
    grid::tiny = grid::Tiny::rounded;
}

TEST_CASE("device: forks, rewinds, evictions, steps of several") {
    const kernels::DeviceTable &module = under_test::each_module();
    for (const std::string &name : sampled({"zoo/gemma3-text", "zoo/mistral-window",
                                            "zoo/llama-odd-sizes-f32", "quantized/gemma3-tied"})) {
        INFO("model: ", name);
        const std::shared_ptr<Model> device = open_there(name, module);
        const std::vector<uint32_t> tokens = tokens_for(*device, 200);
        DevicePair pair(open(name), device);
        pair.both([&](Session &session) { session.append(part(tokens, 0, 100), {}); });
        DevicePair child(pair.here->fork(), pair.there->fork());
        child.both([&](Session &session) { session.append(part(tokens, 100, 130), {}); });
        pair.both([&](Session &session) { session.append(part(tokens, 130, 150), {}); });
        pair.both([&](Session &session) { session.rewind(110, true, {}); });
        pair.both([&](Session &session) { session.evict(5, 80); });
        pair.both([&](Session &session) { session.append(part(tokens, 150, 200), {}); });
        const auto step = [&](Session &a, Session &b) {
            StepItem items[] = {{&a, part(tokens, 0, 1), true}, {&b, part(tokens, 7, 30), true}};
            run_step(items, {});
            CHECK(items[0].error == nullptr);
            CHECK(items[1].error == nullptr);
        };
        for (int i = 0; i < 3; ++i) {
            step(*pair.here, *child.here);
            step(*pair.there, *child.there);
            pair.same();
            child.same();
        }
    }
}

TEST_CASE("device: sessions cross to the CPU and back in the middle of a conversation") {
    const kernels::DeviceTable &module = under_test::each_module();
    for (const std::string &name :
         sampled({"recall-gemma3", "zoo/llama-gqa-untied", "quantized/llama"})) {
        INFO("model: ", name);
        const std::shared_ptr<Model> device = open_there(name, module), cpu = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*device, 120);
        DevicePair pair(cpu, device);
        pair.both([&](Session &session) { session.append(tokens, {}); });
        for (int turn = 0; turn < 3; ++turn) { // each continues where the other one was
            const State here = export_state(*pair.here), there = export_state(*pair.there);
            DevicePair crossed(restore_session(cpu, there, nullptr),
                               restore_session(device, here, nullptr));
            crossed.same();
            crossed.both([&](Session &session) { session.set_sampling(warm(uint64_t(turn))); });
            crossed.decode(20);
            crossed.both([&](Session &session) { session.append(part(tokens, 3, 40), {}); });
            std::swap(pair.here, crossed.here);
            std::swap(pair.there, crossed.there);
        }
    }
}

TEST_CASE("device: tokens drawn there in runs are those that the host draws") {
    const kernels::DeviceTable &module = under_test::each_module();
    for (const std::string &name : sampled(
             {"recall-gemma3", "zoo/mistral-window", "zoo/llama-gqa-untied", "quantized/llama"})) {
        INFO("model: ", name);
        const std::shared_ptr<Model> device = open_there(name, module);
        DevicePair pair(open(name), device);
        pair.both([&](Session &session) { session.append(tokens_for(*device, 40), {}); });
        Sampling settings[5] = {warm(1), warm(2), warm(3), {}, warm(4)};
        settings[1].top_k = 5;
        settings[2].top_p = 0.7F;
        settings[2].min_p = 0.01F;
        settings[4].repetition_penalty = 1.3F; // looks at the history: drawn on the host
        const size_t step = whole_sweeps() ? 1 : 3;
        for (size_t i = test_seed() % step; i < 5; i += step) {
            const Sampling &sampling = settings[i];
            const uint64_t begin = pair.here->position();
            pair.both([&](Session &session) { session.set_sampling(sampling); });
            pair.both([&](Session &session) {
                const GenerateResult result = generate(session, 29);
                CHECK(result.count == 29);
                CHECK(result.passes == 29);
            });
            // Ends in the middle of a run: what was computed beyond leaves no trace.
            const uint32_t stop = pair.here->entry(begin + 3).token;
            pair.both([&](Session &session) { session.rewind(begin, true, {}); });
            pair.both([&](Session &session) { generate(session, 29, {stop}); });
            pair.both([&](Session &session) { session.append(tokens_for(*device, 9, 5), {}); });
        }
    }
}

TEST_CASE("device: runs go on past the end of the tables of angles") {
    const kernels::DeviceTable &module = under_test::each_module();
    const std::string name = "zoo/llama-gqa-untied";
    const std::shared_ptr<Model> device = open_there(name, module);
    DevicePair pair(open(name), device); // the first tables hold 256 positions
    pair.both([&](Session &session) { session.append(tokens_for(*device, 245), {}); });
    pair.both([&](Session &session) { CHECK(generate(session, 40).count == 40); });
}

TEST_CASE("device: a decode takes no more memory for the rows of the prompt before it") {
    const std::shared_ptr<Model> device = open_there("zoo/llama-gqa-untied");
    const std::unique_ptr<Session> session = session_of(device);
    session->append(tokens_for(*device, 300), {});
    const uint64_t before = host_module::counts().allocated_bytes;
    session->decode();
    CHECK(host_module::counts().allocated_bytes - before < 64 * 1024); // of the prompt: 1 MB
}

TEST_CASE("device: a run ends where a plain decode would fail") {
    const std::string name = "zoo/llama-gqa-untied";
    const std::shared_ptr<Model> device = open_there(name);
    TimelineOptions options;
    options.capacity = 30;
    DevicePair pair(std::make_unique<Session>(open(name), options),
                    std::make_unique<Session>(device, options));
    pair.both([&](Session &session) { session.append(tokens_for(*device, 10), {}); });
    pair.both([&](Session &session) { CHECK(generate(session, 100).count == 20); });
    CHECK(pair.there->position() == 30);
}

TEST_CASE("device: a decode of one token a session is recorded once and played again") {
    const std::shared_ptr<Model> device = open_there("zoo/llama-gqa-untied");
    const std::unique_ptr<Session> session = session_of(device);
    session->append(tokens_for(*device, 10), {});
    session->decode();
    const uint64_t launches = host_module::counts().launches;
    const uint64_t plays = host_module::counts().plays;
    for (int i = 0; i < 20; ++i) {
        session->decode();
    }
    CHECK(host_module::counts().plays == plays + 20);
    CHECK(host_module::counts().launches > launches);
}
