// Failures of a device: reported clearly, and nothing is lost.
#include <atomic>
#include <functional>
#include <thread>

#include "runtime/compute/device/weights.h"
#include "tests/runtime/device_on.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr const char *kErrorsModel = "zoo/llama-gqa-untied";

bool contains(const std::string &text, const std::string &part_of_it) {
    return text.find(part_of_it) != std::string::npos;
}

} // namespace

TEST_CASE("device: what it cannot compute is refused by name") {
    ModelOptions options = on_device();
    options.kernels = "reference";
    Failure failure = failure_of([&] { open_model(directory(kErrorsModel), options); });
    CHECK(failure.status == Status::unsupported);
    CHECK(contains(failure.message, "kernels \"reference\""));
    const auto shape = [](uint32_t heads, uint32_t kv_heads, uint32_t head_dim) {
        auto opened = open_device("cuda", &host_module::table());
        Config config;
        config.heads = heads, config.kv_heads = kv_heads, config.head_dim = head_dim;
        return failure_of([&] { DeviceModel(std::move(opened), config, Weights(), Watch()); });
    };
    for (const Failure &refused : {shape(34, 2, 64), shape(4, 2, 258)}) {
        CHECK(refused.status == Status::unsupported);
        CHECK(contains(refused.message, "query heads share a KV head"));
    }
}

TEST_CASE("device: one that is not there, or of another version, is refused") {
    ModelOptions options = on_device();
    for (const char *name : {"cuda:1", "cuda:4294967296", "cuda:-1", "cuda:", "cudas", ""}) {
        options.device = name;
        const Failure failure = failure_of([&] { open_model(directory(kErrorsModel), options); });
        CHECK(failure.status == Status::device);
        CHECK(contains(failure.message, '"' + std::string(name) + '"'));
    }
    kernels::DeviceTable other = host_module::table();
    ++other.version;
    options.device = "cuda";
    options.device_module = &other;
    const Failure failure = failure_of([&] { open_model(directory(kErrorsModel), options); });
    CHECK(failure.status == Status::device);
    const std::string versions = "version " + std::to_string(other.version) +
                                 ", this library needs " + std::to_string(other.version - 1);
    CHECK(contains(failure.message, versions));
}

TEST_CASE("device: two of them hold a model each") {
    const Behaviour behaviour;
    host_module::settings().devices = 2;
    ModelOptions options = on_device();
    options.device = "cuda:1";
    const std::shared_ptr<Model> second = open_model(directory(kErrorsModel), options);
    const std::unique_ptr<Session> a = session_of(open_there(kErrorsModel)), b = session_of(second);
    const std::vector<uint32_t> tokens = tokens_for(*second, 20);
    a->append(tokens, {});
    b->append(tokens, {});
    CHECK(a->digest() == b->digest());
}

TEST_CASE("device: a model that does not fit is refused with both sizes") {
    const Behaviour behaviour;
    host_module::settings().memory_bytes = 4096;
    for (const char *name : {kErrorsModel, "quantized/llama"}) {
        const Failure failure = failure_of([&] { open_there(name); });
        CHECK(failure.status == Status::no_memory);
        CHECK(contains(failure.message, "of its 4096 are free"));
    }
}

TEST_CASE("device: every allocation of opening fails once, and nothing leaks") {
    const Behaviour behaviour;
    const uint64_t before = host_module::counts().allocated_bytes;
    for (const char *name : {kErrorsModel, "quantized/llama"}) {
        int64_t failed = 0;
        for (;; ++failed) {
            host_module::settings().fail_allocation = failed;
            const Failure failure = failure_of([&] { open_there(name); });
            CHECK(host_module::counts().allocated_bytes == before);
            if (failure.status == Status::ok) {
                break;
            }
            CHECK(failure.status == Status::no_memory);
            CHECK(contains(failure.message, "cuda:0"));
        }
        CHECK(failed > 20);
    }
}

// Everything anew for each, as memory that was taken stays taken: the call that fails may have
// grown some buffers and not others, and the next one must not think that it has them all.
TEST_CASE("device: out of its memory in an append, the session is as it was, and goes on") {
    const Behaviour behaviour;
    const std::unique_ptr<Session> plain = session_of(open(kErrorsModel));
    const std::vector<uint32_t> tokens = tokens_for(*plain->model(), 300);
    plain->append(tokens, {});
    const int64_t step = kSanitized ? 5 : 1;
    auto failed = static_cast<int64_t>(test_seed()) % step;
    for (;; failed += step) {
        const std::unique_ptr<Session> session = session_of(open_there(kErrorsModel));
        session->append(part(tokens, 0, 30), {});
        const Digest before = session->digest();
        host_module::settings().fail_allocation = failed;
        const Failure failure = failure_of([&] { session->append(part(tokens, 30, 300), {}); });
        host_module::settings().fail_allocation = -1;
        if (failure.status == Status::ok) {
            break;
        }
        CHECK(failure.status == Status::no_memory);
        CHECK(session->position() == 30);
        CHECK(session->digest() == before);
        session->append(part(tokens, 30, 300), {});
        CHECK(session->digest() == plain->digest());
    }
    CHECK(failed >= 5); // pages, buffers for more rows, the description on both sides
}

TEST_CASE("device: lost in the middle, everything says so, and the log is kept") {
    const Behaviour behaviour;
    int64_t lost = 0;
    for (int64_t at = 0;; at += 7) {
        const std::shared_ptr<Model> model = open_there(kErrorsModel);
        const std::vector<uint32_t> tokens = tokens_for(*model, 100);
        const std::unique_ptr<Session> session = session_of(model);
        session->append(part(tokens, 0, 30), {});
        const Digest before = session->digest();
        host_module::settings().fail_enqueued = at;
        const Failure failure = failure_of([&] { session->append(part(tokens, 30, 100), {}); });
        host_module::settings().fail_enqueued = -1;
        if (failure.status == Status::ok) {
            break;
        }
        ++lost;
        CHECK(failure.status == Status::device);
        CHECK(contains(failure.message, "lost"));
        CHECK(session->position() == 30);
        for (uint64_t i = 0; i < 30; ++i) {
            CHECK(session->entry(i).token == tokens[i]);
        }
        CHECK(session->digest() == before); // it had been computed, and its pages still stand
    }
    CHECK(lost >= 4);
}

TEST_CASE("device: threads work with sessions of their own on one model") {
    const std::shared_ptr<Model> model = open_there(kErrorsModel);
    const std::vector<uint32_t> tokens = tokens_for(*model, 90);
    const std::unique_ptr<Session> plain = session_of(open(kErrorsModel));
    plain->append(tokens, {});
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            const std::unique_ptr<Session> session = session_of(model);
            for (size_t at = 0; at < tokens.size(); at += 30 - i) {
                session->append(part(tokens, at, std::min(at + 30 - i, tokens.size())), {});
            }
            right += session->digest() == plain->digest() ? 1 : 0;
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(right == 4);
}
