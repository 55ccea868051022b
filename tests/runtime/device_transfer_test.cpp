// Pages between a device and the host: saves and loads give what the CPU gives, whether the device
// is quick or late (host_module.h), whatever fails, and side by side.
#include <atomic>
#include <functional>
#include <thread>

#include "format/reader.h"
#include "runtime/compute/device/pages.h"
#include "runtime/kv/page_staging.h"
#include "tests/device/under_test.h"
#include "tests/runtime/device_on.h"
#include "tests/runtime/far_sessions.h"
#include "tests/runtime/model_files.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr const char *kTransferModel = "zoo/gemma3-text"; // two groups, one of them with a window

std::shared_ptr<const format::Contents>
save(Session &session, const std::string &path, format::Codec codec = format::Codec::raw,
     format::Keep keep = format::Keep::full,
     const std::shared_ptr<const format::Contents> &known = nullptr) {
    format::SaveOptions options;
    options.codec = codec;
    options.keep = keep;
    options.known = known;
    options.parallel = parallel_on(*session.model()->threads);
    return format::save(export_state(session), path, options);
}

std::unique_ptr<Session> load(const std::shared_ptr<Model> &model, const std::string &path) {
    const auto snapshot = format::Snapshot::open(path);
    const StoredPages pages{
        [&](size_t group, uint64_t index) { return snapshot->stored(group, index); },
        [&](std::span<const PageInto> into) { snapshot->read(into); }, nullptr};
    return restore_session(model, snapshot->state(), nullptr, pages, Watch());
}

} // namespace

// Sessions that the CPU has computed, taken to the device: so that little is computed by the grid.
TEST_CASE("device: files saved there are the CPU's, commit by commit, and load there and here") {
    const kernels::DeviceTable &module = under_test::each_module();
    const kernels::FloatEnvironment environment;
    for (const std::string name : {"zoo/llama-gqa-untied", kTransferModel}) {
        INFO("model: ", name);
        const TemporaryDirectory folder;
        const std::string paths[2] = {folder.file("here"), folder.file("there")};
        const std::shared_ptr<Model> here = open(name), there = open_there(name, module);
        const std::vector<uint32_t> tokens = tokens_for(*here, 260);
        std::unique_ptr<Session> session = session_of(here);
        std::shared_ptr<const format::Contents> known[2];
        const std::function<void(Session &)> stages[] = {
            [&](Session &each) { each.append(part(tokens, 0, 200), {}); },
            [&](Session &each) { each.append(part(tokens, 200, 215), {}); },
            [&](Session &each) { each.evict(3, 150); },
            [&](Session &each) { each.append(part(tokens, 0, 70), {}); },
            [&](Session &each) { each.rewind(230, true, {}); },
        };
        for (const auto &stage : stages) {
            stage(*session);
            const auto codec = session->position() < 260 ? format::Codec::raw : format::Codec::zstd;
            const auto moved = restore_session(there, export_state(*session), nullptr);
            Session *both[] = {session.get(), moved.get()};
            for (int i = 0; i < 2; ++i) {
                known[i] = save(*both[i], paths[i], codec, format::Keep::full, known[i]);
                save(*both[i], paths[i] + ".none", codec, format::Keep::none);
            }
            REQUIRE(read_bytes(paths[0]) == read_bytes(paths[1]));
            CHECK(read_bytes(paths[0] + ".none") == read_bytes(paths[1] + ".none"));
            const auto loaded = load(there, paths[0]);
            check_bits(*loaded->fork(), *load(here, paths[1]));
        }
    }
}

namespace {

std::vector<uint16_t> pattern(size_t i, size_t count) {
    std::vector<uint16_t> numbers(count);
    for (size_t at = 0; at < count; ++at) {
        numbers[at] = static_cast<uint16_t>(at * 31 + i * 977);
    }
    return numbers;
}

} // namespace

TEST_CASE("device: many pages go there and back in batches") {
    const kernels::DeviceTable &module = under_test::each_module();
    const std::unique_ptr<OpenDevice> device = open_device("cuda", &module);
    {
        DevicePageMemory there(*device);
        PageMemory memory = there.memory();
        CHECK(memory.batch_bytes == size_t{32} << 20);
        memory.batch_bytes = 100000; // a few pages
        PagePool pool(memory, UINT64_MAX, {{2, 2, 16}, {3, 2, 16}});
        Threads threads(3);
        std::vector<PageRef> pages;
        std::vector<const PageRef *> all;
        for (uint32_t i = 0; i < 60; ++i) {
            pages.push_back(pool.take(i % 2));
        }
        PageStaging stagings[2] = {PageStaging(pool), PageStaging(pool)};
        for (size_t i = 0; i < pages.size(); i += 3) {
            PageStaging &staging = stagings[i / 3 % 2];
            staging.fit(3 * pool.shape(1).bytes());
            for (size_t k = i; k < i + 3; ++k) {
                uint16_t *to = staging.place(pages[k]);
                std::ranges::copy(pattern(k, pool.shape_of(pages[k]).elements()), to);
                staging.write(pages[k], to);
            }
        }
        stagings[0].finish();
        stagings[1].finish();
        std::atomic<size_t> right{0};
        for (const PageRef &page : pages) {
            all.push_back(&page);
        }
        for_each_page(pool, threads, all, [&](size_t i, const uint16_t *numbers) {
            const std::vector<uint16_t> expected = pattern(i, pool.shape_of(pages[i]).elements());
            right += std::memcmp(numbers, expected.data(), expected.size() * 2) == 0 ? 1 : 0;
        });
        CHECK(right == pages.size());
    }
}

TEST_CASE("device: a save that fails on the way leaves the file, and the session goes on") {
    const Behaviour behaviour;
    const kernels::DeviceTable &module = under_test::each_module();
    if (&module != &host_module::table() && &module != &host_module::late_table()) {
        return; // cannot be told to fail
    }
    const TemporaryDirectory folder;
    const std::string path = folder.file("session"), expected = folder.file("expected");
    const std::shared_ptr<Model> model = open_there(kTransferModel, module);
    const std::vector<uint32_t> tokens = tokens_for(*model, 260);
    const std::unique_ptr<Session> host = session_of(open(kTransferModel));
    std::unique_ptr<Session> session;
    for (const size_t begin : {0, 200}) {
        const std::string before = begin == 0 ? "" : read_bytes(path);
        host->append(part(tokens, begin, begin == 0 ? 200 : 260), {});
        session = restore_session(model, export_state(*host), nullptr);
        int64_t n = 0;
        session->digest(); // so that the save's own copies fail
        session->logits();
        for (;; ++n) {
            host_module::settings().failure = kernels::DeviceError::failed;
            host_module::settings().fail_enqueued = n;
            const Failure failure = failure_of([&] { save(*session, path); });
            host_module::settings().fail_enqueued = -1;
            if (failure.status == Status::ok) {
                break;
            }
            CHECK(failure.status == Status::device);
            CHECK(failure.message.find("copying pages: it failed") != std::string::npos);
            CHECK(std::filesystem::exists(path) == (begin != 0));
            CHECK((begin == 0 || read_bytes(path) == before));
        }
        CHECK(n >= 2);
        save(*host, expected);
        CHECK(read_bytes(path) == read_bytes(expected));
    }
    session->decode();
    host->decode();
    CHECK(session->digest() == host->digest());
    host_module::settings().failure = kernels::DeviceError::lost;
    host_module::settings().fail_enqueued = 0;
    const Failure failure = failure_of([&] { save(*session, folder.file("lost")); });
    CHECK(failure.status == Status::device);
    CHECK(!std::filesystem::exists(folder.file("lost")));
}

TEST_CASE("device: a load that fails on the way says so, and leaves nothing") {
    const Behaviour behaviour;
    const kernels::DeviceTable &module = under_test::each_module();
    if (&module != &host_module::table() && &module != &host_module::late_table()) {
        return;
    }
    const TemporaryDirectory folder;
    const std::string path = folder.file("session");
    const std::unique_ptr<Session> host = session_of(open(kTransferModel));
    host->append(tokens_for(*host->model(), 260), {});
    save(*host, path);
    const uint64_t before = host_module::counts().allocated_bytes;
    for (const bool memory : {false, true}) {
        int64_t n = 0;
        for (;; ++n) {
            const std::shared_ptr<Model> model = open_there(kTransferModel, module);
            host_module::settings().failure = kernels::DeviceError::failed;
            (memory ? host_module::settings().fail_allocation
                    : host_module::settings().fail_enqueued) = n;
            const Failure failure = failure_of([&] { load(model, path); });
            host_module::settings() = {};
            CHECK(model->pool->used_bytes() == 0);
            if (failure.status == Status::ok) {
                break;
            }
            CHECK(failure.status == (memory ? Status::no_memory : Status::device));
            CHECK(failure.message.find("cuda:0") != std::string::npos);
            CHECK(load(model, path)->digest() == host->digest());
        }
        CHECK(n >= 5); // pages, and room on their way
        CHECK(host_module::counts().allocated_bytes == before);
    }
}

TEST_CASE("device: sessions are saved while another one generates") {
    const Behaviour behaviour;
    const kernels::DeviceTable &module = under_test::each_module();
    host_module::settings().guarded = false; // else one thread at a time
    const TemporaryDirectory folder;
    const std::shared_ptr<Model> model = open_there(kTransferModel, module),
                                 near = open(kTransferModel);
    const std::vector<uint32_t> tokens = tokens_for(*model, 210);
    const auto grown = [&](const std::shared_ptr<Model> &on, size_t i) {
        const std::unique_ptr<Session> session = session_of(near);
        session->append(part(tokens, i, 200 + i), {});
        return restore_session(on, export_state(*session), nullptr);
    };
    const std::unique_ptr<Session> sessions[3] = {grown(model, 0), grown(model, 1),
                                                  grown(model, 2)};
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i) {
        threads.emplace_back([&, i] {
            const kernels::FloatEnvironment environment;
            const std::string expected = streamed(*grown(near, i));
            for (int k = 0; k < 6; ++k) {
                right += streamed(*sessions[i]) == expected ? 1 : 0;
            }
        });
    }
    for (int k = 0; k < 10; ++k) {
        sessions[2]->decode();
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(right == 12);
    const std::unique_ptr<Session> alone = grown(near, 2);
    for (int k = 0; k < 10; ++k) {
        alone->decode();
    }
    CHECK(sessions[2]->digest() == alone->digest());
}

TEST_CASE("device: memory of free pages gives way to what needs it") {
    const Behaviour behaviour;
    host_module::settings().memory_bytes = uint64_t{4} << 20;
    const std::unique_ptr<Session> host = session_of(open(kTransferModel));
    host->append(tokens_for(*host->model(), 250), {});
    const State state = export_state(*host);
    const std::vector<uint32_t> more = tokens_for(*host->model(), 90, 5);
    host->append(more, {});
    for (const bool known : {false, true}) {
        INFO("their contents known: ", known);
        const std::shared_ptr<Model> model = open_there(kTransferModel);
        TimelineOptions options;
        options.capacity = 1024;
        std::vector<std::unique_ptr<Session>> sessions; // as many as there is memory for
        const auto load_one = [&] {
            options.domain = known ? sessions.size() : TimelineOptions::kPrivate;
            options.trusted = known;
            return failure_of([&] { sessions.push_back(restore_session(model, state, &options)); });
        };
        Failure failure;
        while (failure.status == Status::ok) {
            failure = load_one();
        }
        CHECK(failure.status == Status::no_memory);
        REQUIRE(sessions.size() > 4);
        CHECK(failure_of([&] { sessions[0]->append(more, {}); }).status == Status::no_memory);
        sessions.resize(1);
        const uint64_t kept = model->pool->cached_bytes(), idle = model->pool->idle_bytes();
        CHECK((idle > 0) == known);
        CHECK(kept > 0);
        sessions[0]->append(more, {}); // buffers, and pages where the other group's are free
        CHECK(sessions[0]->digest() == host->digest());
        CHECK(model->pool->cached_bytes() < kept);
        CHECK(model->pool->cached_bytes() > 0); // no more than was needed
    }
}
