// The cache: what it spares, what it must not answer, what becomes of damaged files, and its
// budget.
#include "modules/s3/cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "fake_s3.h"
#include "modules/s3/sign.h"
#include "tests/format/backends.h"
#include "tests/format/store_case.h"

using namespace stasis;
using namespace stasis::format;
using stasis_s3::Cache;
using stasis_s3::calls_since;
using stasis_s3::make_trouble;
using stasis_s3::open_fake;

namespace {

std::string key_of(const Bytes &bytes) {
    const std::string digits = stasis_s3::sha256_hex(bytes);
    return "objects/" + digits.substr(0, 2) + "/" + digits.substr(2);
}

std::string file_of(const std::string &folder, const Bytes &bytes) {
    return folder + key_of(bytes).substr(7);
}

stasis_s3::Settings with_cache(const char *prefix, const std::string &folder,
                               uint64_t bytes = 64'000'000) {
    stasis_s3::Settings settings = stasis_s3::fake_settings(prefix);
    settings.cache = folder;
    settings.cache_bytes = bytes;
    return settings;
}

// Bytes of the objects that a folder keeps.
uint64_t kept_bytes(const std::string &folder) {
    uint64_t total = 0;
    for (const auto &each : std::filesystem::recursive_directory_iterator(folder)) {
        total += each.is_regular_file() ? each.file_size() : 0;
    }
    return total;
}

} // namespace

TEST_CASE("Cache: what was read or put is not fetched again, by this process or another") {
    const ScratchFolder scratch;
    const std::string folder = scratch.path("cache");
    const Bytes small = whole_bytes(1, 5000), large = whole_bytes(2, 3'000'000);
    const auto plain = open_fake(stasis_s3::fake_settings("cached"));
    plain->put(key_of(small), small);
    const auto one = open_fake(with_cache("cached", folder));
    const auto other = open_fake(with_cache("cached", folder));
    make_trouble("{}");
    CHECK((one->get(key_of(small)) == small));
    CHECK(calls_since() == 1);
    one->put(key_of(large), large);
    CHECK(calls_since() == 2);
    for (const auto &backend : {one.get(), other.get()}) {
        CHECK((backend->get(key_of(small)) == small));
        CHECK((backend->get(key_of(large)) == large));
        Bytes whole(large.size()), part(1000);
        CHECK(backend->read(key_of(large), 0, whole));
        CHECK(whole == large);
        CHECK(backend->read(key_of(large), 2'000'000, part));
        CHECK(std::equal(part.begin(), part.end(), large.begin() + 2'000'000));
        CHECK(backend->read(key_of(large), 0, part));
        CHECK(std::equal(part.begin(), part.end(), large.begin()));
        CHECK(!backend->read(key_of(large), 2'999'999, part));
    }
    CHECK(calls_since() == 2);
    std::filesystem::remove_all(folder + "/" + key_of(large).substr(8, 2));
    Bytes whole(large.size()); // read without a look for its size
    CHECK(one->read(key_of(large), 0, whole));
    CHECK(calls_since() == 3);
    CHECK(other->read(key_of(large), 0, whole));
    CHECK(calls_since() == 3);
}

TEST_CASE("Cache: it makes no put count, and says of no object that it is there") {
    const ScratchFolder scratch;
    const Bytes bytes = whole_bytes(3, 5000);
    const auto backend = open_fake(with_cache("uncounted", scratch.path("cache")));
    backend->put(key_of(bytes), bytes);
    open_fake(stasis_s3::fake_settings("uncounted"))->remove(key_of(bytes));
    CHECK(!backend->read(key_of(bytes), 0, {})); // though it is kept
    make_trouble(R"({"refuse_every": 1, "status": 507})");
    CHECK(thrown_by([&] { backend->put(key_of(bytes), bytes); }) == Status::io);
    const Bytes refused = whole_bytes(4, 5000);
    CHECK(thrown_by([&] { backend->put(key_of(refused), refused); }) == Status::io);
    make_trouble("{}");
    CHECK(!backend->get(key_of(refused))); // what was refused is not kept
    backend->put(key_of(bytes), bytes);
    CHECK((open_fake(stasis_s3::fake_settings("uncounted"))->get(key_of(bytes)) == bytes));
}

TEST_CASE("Cache: what it alone answered for is put whatever the service holds") {
    const ScratchFolder scratch;
    const auto plain = open_fake(stasis_s3::fake_settings("mended"));
    const auto backend = open_fake(with_cache("mended", scratch.path("cache")));
    for (const size_t size : {5000U, 3'000'000U}) { // which comes with its size, or does not
        const Bytes bytes = whole_bytes(6, size);
        backend->put(key_of(bytes), bytes);
        Bytes damaged = bytes;
        damaged[size / 2] ^= 1;
        plain->replace(key_of(bytes), damaged);
        CHECK(backend->read(key_of(bytes), 0, {}));    // looked for long before, and not put
        CHECK((backend->get(key_of(bytes)) == bytes)); // as a repair asks for it
        backend->put(key_of(bytes), bytes);
        CHECK((plain->get(key_of(bytes)) == bytes));
        make_trouble("{}");
        backend->put(key_of(bytes), bytes); // now it is there: refused, and touched
        CHECK(calls_since() == 2);
    }
}

TEST_CASE("Cache: a repair mends what the service holds, whatever is kept") {
    const ScratchFolder scratch;
    const State state = sample_state(large_pages(150));
    const std::shared_ptr<Backend> plain = open_fake(stasis_s3::fake_settings("repaired"));
    const Store store(open_fake(with_cache("repaired", scratch.path("cache"))));
    store.put(state, "s", {});
    const std::vector<std::string> keys = keys_of(*plain, kObjectPrefix);
    REQUIRE(keys.size() > 3);
    for (const std::string &key : keys) {
        Bytes damaged = plain->get(key).value();
        damaged[damaged.size() / 2] ^= 1;
        plain->replace(key, damaged);
    }
    check_same(state, whole(store, "s")); // from the cache
    CHECK(error_of([&] { whole(Store(plain), "s"); }).substr(0, 2) == "6 ");
    StorePutOptions options;
    options.overwrite = options.repair = true;
    store.put(state, "s", options);
    check_same(state, whole(Store(plain), "s"));
}

TEST_CASE("Cache: roots, and objects whose names are no digests, are not kept") {
    const ScratchFolder scratch;
    const std::string folder = scratch.path("cache");
    const auto backend = open_fake(with_cache("roots", folder));
    REQUIRE(backend->swap("roots/r", {}, text_bytes("1")));
    backend->put("objects/ab/named", text_bytes("2"));
    CHECK(backend->get_marked("roots/r"));
    CHECK(backend->get("roots/r"));
    CHECK(backend->get("objects/ab/named"));
    CHECK(kept_bytes(folder) == 0);
}

TEST_CASE("Cache: a damaged file is found out and fetched anew; a damaged answer is not kept") {
    const ScratchFolder scratch;
    const std::string folder = scratch.path("cache");
    const Bytes bytes = whole_bytes(5, 5000);
    const std::string file = file_of(folder, bytes);
    const auto backend = open_fake(with_cache("damaged", folder));
    backend->put(key_of(bytes), bytes);
    Bytes flipped = bytes, longer = bytes;
    flipped[4000] ^= 1;
    longer.push_back(0);
    for (const Bytes &damaged :
         {flipped, Bytes(bytes.begin(), bytes.begin() + 4999), longer, Bytes()}) {
        write_bytes(file, damaged);
        make_trouble("{}");
        CHECK((backend->get(key_of(bytes)) == bytes));
        CHECK(calls_since() == 1);
        CHECK((read_bytes(file) == bytes));
    }
    std::filesystem::remove(file);
    make_trouble(R"({"damage_every": 1})");
    CHECK((backend->get(key_of(bytes)).value() != bytes)); // which the store finds out
    CHECK(!std::filesystem::exists(file));
    make_trouble("{}");
    // What cannot be kept is fetched: a link is not followed, a file is where a folder should be.
    std::filesystem::create_symlink("/dev/zero", file);
    CHECK((backend->get(key_of(bytes)) == bytes));
    std::filesystem::remove_all(folder);
    CHECK((backend->get(key_of(bytes)) == bytes));
    write_bytes(folder, text_bytes("a file"));
    CHECK((backend->get(key_of(bytes)) == bytes));
    CHECK_THROWS_WITH_AS(open_fake(with_cache("damaged", folder)),
                         doctest::Contains("cannot make the cache's folder"), stasis_s3::Failure);
}

TEST_CASE("Cache: over its budget what was not used for longest goes") {
    const ScratchFolder scratch;
    const std::string folder = scratch.path("cache");
    constexpr uint64_t kMax = 1 << 20, kObject = 60'000;
    Cache cache(folder, kMax);
    const auto object = [](uint32_t seed) { return whole_bytes(seed, kObject); };
    const auto keep = [&](uint32_t seed, time_t used) { // times as the test says, not the clock's
        cache.put(key_of(object(seed)), object(seed));
        const timespec times[2] = {{used, 0}, {used, 0}};
        utimensat(AT_FDCWD, file_of(folder, object(seed)).c_str(), times, 0);
    };
    for (uint32_t seed = 1; seed <= 16; ++seed) {
        keep(seed, 1000 + static_cast<time_t>(seed));
    }
    CHECK(kept_bytes(folder) == 16 * kObject);
    CHECK(cache.get(key_of(object(1)))); // which is used now
    for (uint32_t seed = 17; seed <= 40; ++seed) {
        keep(seed, 1000 + static_cast<time_t>(seed));
        CHECK(kept_bytes(folder) <= kMax);
    }
    CHECK(cache.get(key_of(object(1))));
    CHECK(!cache.get(key_of(object(2))));
    CHECK(cache.get(key_of(object(40))));
    // One that is a large part of the budget is not kept.
    const Bytes large = whole_bytes(41, kMax / 16 + 1);
    cache.put(key_of(large), large);
    CHECK(!cache.get(key_of(large)));
    // What a killed writer has left goes too, once it is old.
    write_bytes(folder + "/.new/1-1", text_bytes("old"));
    write_bytes(folder + "/.new/1-2", text_bytes("new"));
    const timespec times[2] = {{1000, 0}, {1000, 0}};
    utimensat(AT_FDCWD, (folder + "/.new/1-1").c_str(), times, 0);
    keep(42, 2000);
    keep(43, 2000);
    CHECK(!std::filesystem::exists(folder + "/.new/1-1"));
    CHECK(std::filesystem::exists(folder + "/.new/1-2"));
}

TEST_CASE("Cache: threads of several stores share a folder at the same time") {
    const ScratchFolder scratch;
    const std::string folder = scratch.path("cache");
    std::vector<std::unique_ptr<Cache>> caches;
    for (int i = 0; i < 3; ++i) {
        caches.push_back(std::make_unique<Cache>(folder, uint64_t{1} << 20));
    }
    std::atomic<int> wrong{0}, found{0};
    const int failed = run_threads(12, [&](int thread) {
        Cache &cache = *caches[static_cast<size_t>(thread) % 3];
        for (uint32_t step = 0; step < 60; ++step) {
            const Bytes bytes =
                whole_bytes((static_cast<uint32_t>(thread) * 7 + step) % 40, 50'000);
            cache.put(key_of(bytes), bytes);
            if (const auto there = cache.get(key_of(bytes))) {
                ++found;
                wrong += *there == bytes ? 0 : 1;
            }
        }
    });
    CHECK(failed == 0);
    CHECK(wrong == 0);
    CHECK(found > 0);
}
