// What every backend of a store promises, one by one, in one thread.
#include "backends.h"

#include <algorithm>
#include <atomic>
#include <thread>

using namespace stasis;
using namespace stasis::format;

namespace {

Bytes read_range(Backend &backend, const std::string &key, uint64_t offset, size_t size,
                 bool *found) {
    Bytes into(size, 0xEE);
    *found = backend.read(key, offset, into);
    return into;
}

} // namespace

TEST_CASE("Backend: an object comes back whole, whatever its size") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        uint32_t seed = 0;
        for (const size_t size : {0, 1, 2, 511, 512, 513, 4095, 4096, 4097, 65536, 100'000,
                                  1'048'576, 1'048'577, 9'000'001}) {
            CAPTURE(size);
            const std::string key = "sizes/" + std::to_string(size);
            const Bytes bytes = whole_bytes(++seed, size);
            CHECK(!backend->get(key));
            backend->put(key, bytes);
            CHECK((backend->get(key) == bytes));
            CHECK((backend->get_marked(key).value().bytes == bytes));
            bool found = false;
            CHECK((read_range(*backend, key, 0, size, &found) == bytes));
            CHECK(found);
        }
        CHECK(listed_keys(*backend, "sizes/").size() == 14);
    });
}

TEST_CASE("Backend::put: an object that is there stays") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        backend->put("a/b", text_bytes("first"));
        backend->put("a/b", text_bytes("second, and longer"));
        CHECK((backend->get("a/b") == text_bytes("first")));
        backend->put("empty", {});
        backend->put("empty", text_bytes("full"));
        CHECK((backend->get("empty") == Bytes{}));
        backend->remove("a/b");
        CHECK(!backend->get("a/b"));
        backend->put("a/b", text_bytes("third"));
        CHECK((backend->get("a/b") == text_bytes("third")));
    });
}

TEST_CASE("Backend::replace: the object is there at any moment, as it was or as it becomes") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        backend->replace("a/new", text_bytes("first"));
        CHECK((backend->get("a/new") == text_bytes("first")));
        backend->put("a/b", whole_bytes(0, 40'000));
        std::atomic<bool> ends{false};
        std::atomic<uint32_t> seen{0};
        const int failed = run_threads(2, [&](int thread) {
            if (thread == 0) {
                for (uint32_t seed = 1; seed <= 20; ++seed) {
                    backend->replace("a/b", whole_bytes(seed, 40'000 - 1000 * seed));
                }
                ends = true;
                return;
            }
            do {
                const std::optional<Bytes> bytes = backend->get("a/b");
                if (!bytes || !are_whole(*bytes)) {
                    throw Error(Status::internal, "a reader has met something else");
                }
                ++seen;
            } while (!ends);
        });
        CHECK(failed == 0);
        CHECK(seen > 0);
        CHECK((backend->get("a/b") == whole_bytes(20, 20'000)));
        CHECK((listed_keys(*backend) == std::vector<std::string>{"a/b", "a/new"}));
    });
}

TEST_CASE("Backend::read: the range asked for, or nothing") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        const size_t size = 300'000;
        const Bytes bytes = whole_bytes(7, size);
        backend->put("big", bytes);
        bool found = false;
        for (const uint64_t offset : {0, 1, 4095, 65535, 65536, 65537, 299'000, 299'999}) {
            for (const size_t count : {0, 1, 2, 1000, 70'000, 234'464}) {
                CAPTURE(offset);
                CAPTURE(count);
                const Bytes range = read_range(*backend, "big", offset, count, &found);
                REQUIRE(found == (offset + count <= size));
                CHECK((!found || std::equal(range.begin(), range.end(),
                                            bytes.begin() + static_cast<ptrdiff_t>(offset))));
            }
        }
        const auto reads = [&](uint64_t offset, size_t count) {
            read_range(*backend, "big", offset, count, &found);
            return found;
        };
        CHECK(reads(size - 1, 1));
        CHECK(!reads(size - 1, 2));
        CHECK(reads(size, 0));
        CHECK(!reads(size, 1));
        CHECK(!reads(size + 1, 0));
        CHECK(!reads(UINT64_MAX, 1));
        CHECK(!reads(UINT64_MAX, 2));
        CHECK(!reads(uint64_t{1} << 63, 1));
        CHECK(!reads((uint64_t{1} << 32) + 1, 1));
        read_range(*backend, "absent", 0, 0, &found);
        CHECK(!found);
        backend->put("none", {});
        read_range(*backend, "none", 0, 0, &found);
        CHECK(found);
        read_range(*backend, "none", 0, 1, &found);
        CHECK(!found);
    });
}

TEST_CASE("Backend: what is not there") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        backend->put("a/b/c", text_bytes("x"));
        for (const char *key : {"b", "a/c", "a/b/d", "a/b/c/d", "z/z/z", "A/b/c"}) {
            CAPTURE(key);
            CHECK(!backend->get(key));
            CHECK(!backend->get_marked(key));
            Bytes into(1);
            CHECK(!backend->read(key, 0, into));
            CHECK(!backend->remove_marked(key, mark_of(text_bytes("x"))));
            backend->remove(key);
            CHECK(!backend->swap(key, mark_of(text_bytes("x")), text_bytes("y")));
        }
        CHECK(!backend->get("a"));
        CHECK(!backend->get("a/b"));
        backend->remove("a/b");
        CHECK((listed_keys(*backend) == std::vector<std::string>{"a/b/c"}));
    });
}

TEST_CASE("Backend: what is no key is refused, by each function") {
    const std::string part(200, 'p');
    std::string longest = part + "/" + part;
    longest += "/" + std::string(512 - longest.size() - 1, 'q');
    with_backends([&](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        for (const std::string &key :
             {std::string(),           std::string("/"),       std::string("/a"),
              std::string("a/"),       std::string("a//b"),    std::string("."),
              std::string(".."),       std::string("../a"),    std::string("a/../b"),
              std::string("a/.b"),     std::string(".a"),      std::string("a b"),
              std::string("a\\b"),     std::string("a*"),      std::string("a\nb"),
              std::string("\xC3\xA4"), std::string("a\0b", 3), part + "p",
              longest + "q",           std::string("a:b"),     std::string("a%"),
              std::string("a+"),       std::string("a/...")}) {
            CAPTURE(key);
            Bytes into(1);
            const Bytes bytes = text_bytes("x");
            const Status bad = Status::invalid_argument;
            CHECK(thrown_by([&] { backend->get(key); }) == bad);
            CHECK(thrown_by([&] { backend->get_marked(key); }) == bad);
            CHECK(thrown_by([&] { backend->read(key, 0, into); }) == bad);
            CHECK(thrown_by([&] { backend->put(key, bytes); }) == bad);
            CHECK(thrown_by([&] { backend->replace(key, bytes); }) == bad);
            CHECK(thrown_by([&] { backend->swap(key, {}, bytes); }) == bad);
            CHECK(thrown_by([&] { backend->swap(key, "m", bytes); }) == bad);
            CHECK(thrown_by([&] { backend->remove(key); }) == bad);
            CHECK(thrown_by([&] { backend->remove_marked(key, "m"); }) == bad);
        }
        for (const char *prefix : {"/", "a//", "..", "../", "a/.", ".n", "a b", "%", "a*"}) {
            CAPTURE(prefix);
            CHECK(thrown_by([&] { listed_keys(*backend, prefix); }) == Status::invalid_argument);
        }
        CHECK(listed_keys(*backend).empty());
        for (const std::string &key : {longest, "s" + part.substr(1), std::string("a._-Z9")}) {
            backend->put(key, text_bytes(key));
            CHECK((backend->get(key) == text_bytes(key)));
        }
        CHECK(listed_keys(*backend).size() == 3);
    });
}

TEST_CASE("Backend::list: keys in the order of bytes, from a prefix on") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        CHECK(listed_keys(*backend).empty());
        // A directory's own order would be another one: 'a-b' and 'a.b' come before 'a/...'.
        const std::vector<std::string> keys = {
            "A/x", "B",  "a-b",      "a.b/c",  "a/b", "a/b.c",    "a/b0",    "a/ba/x", "a0/x",
            "a_",  "aa", "ab/c/d/e", "ab/c/e", "b",   "roots/10", "roots/2", "z"};
        REQUIRE(std::is_sorted(keys.begin(), keys.end()));
        for (size_t i = 0; i < keys.size(); ++i) {
            backend->put(keys[i * 7 % keys.size()], Bytes(i * 7 % keys.size(), 1));
        }
        CHECK((listed_keys(*backend) == keys));
        for (const char *prefix :
             {"", "a", "a/", "a/b", "a/b.", "ab/c", "ab/c/", "ab/c/d", "roots/", "roots/1", "c",
              "a/c", "zz", "z", "a/b/", "A", "a_", "Z"}) {
            CAPTURE(prefix);
            std::vector<std::string> expected;
            std::copy_if(keys.begin(), keys.end(), std::back_inserter(expected),
                         [&](const std::string &key) { return key.rfind(prefix, 0) == 0; });
            CHECK((listed_keys(*backend, prefix) == expected));
        }
        size_t at = 0;
        backend->list("", [&](const ListedObject &each) {
            CHECK(each.key == keys[at]);
            CHECK(each.bytes == at);
            CHECK(each.age_seconds.has_value() == !kind.locks);
            return ++at < 5;
        });
        CHECK(at == 5);
        // The visitor may call all functions.
        backend->list("a/", [&](const ListedObject &each) {
            CHECK(backend->get(each.key));
            backend->remove(each.key);
            backend->put("new/" + each.key, {});
            return true;
        });
        CHECK(listed_keys(*backend, "a/").empty());
        CHECK(listed_keys(*backend, "new/").size() == 4);
    });
}

TEST_CASE("Backend::list: more objects than one look takes") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        std::vector<std::string> keys;
        for (int i = 0; i < 700; ++i) {
            keys.push_back("n/" + std::to_string(i));
            backend->put(keys.back(), {});
        }
        std::sort(keys.begin(), keys.end());
        CHECK((listed_keys(*backend) == keys));
        size_t seen = 0; // and all can be removed while they are listed
        backend->list("n/", [&](const ListedObject &each) {
            ++seen;
            backend->remove(each.key);
            return true;
        });
        CHECK(seen == 700);
        CHECK(listed_keys(*backend).empty());
    });
}

TEST_CASE("Backend::swap: in the place of the bytes that have the mark, or of none") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        const auto first = backend->swap("roots/r", {}, text_bytes("1"));
        REQUIRE(first);
        CHECK(!first->empty());
        CHECK(!backend->swap("roots/r", {}, text_bytes("2")));
        CHECK(!backend->swap("roots/r", "other", text_bytes("2")));
        CHECK(!backend->swap("roots/r", "", text_bytes("2")));
        CHECK((backend->get_marked("roots/r").value().bytes == text_bytes("1")));
        CHECK(backend->get_marked("roots/r").value().mark == *first);
        const auto second = backend->swap("roots/r", first, text_bytes("22"));
        REQUIRE(second);
        CHECK(*second != *first);
        CHECK(!backend->swap("roots/r", first, text_bytes("3")));
        CHECK((backend->get("roots/r") == text_bytes("22")));
        CHECK(backend->get_marked("roots/r").value().mark == *second);
        const auto empty = backend->swap("roots/r", second, {}); // there, with no bytes
        REQUIRE(empty);
        CHECK(!empty->empty());
        CHECK(!backend->swap("roots/r", {}, text_bytes("4")));
        CHECK((backend->get("roots/r") == Bytes{}));
        REQUIRE(backend->swap("roots/r", empty, text_bytes("5")));
        CHECK(!backend->swap("roots/none", first, text_bytes("1")));
        CHECK(!backend->get("roots/none"));
        // The same bytes have the same mark, or another one: either is compared rightly.
        const auto same = backend->swap("roots/s", {}, text_bytes("5"));
        REQUIRE(same);
        CHECK(backend->swap("roots/s", same, text_bytes("5")));
        // A put takes part: the key is taken.
        backend->put("roots/p", text_bytes("put"));
        CHECK(!backend->swap("roots/p", {}, text_bytes("6")));
        const auto marked = backend->get_marked("roots/p");
        REQUIRE(marked);
        CHECK(backend->swap("roots/p", marked->mark, text_bytes("7")));
        CHECK((listed_keys(*backend) == std::vector<std::string>{"roots/p", "roots/r", "roots/s"}));
    });
}

TEST_CASE("Backend::remove_marked: what has the mark, and nothing else") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        const auto first = backend->swap("r", {}, text_bytes("1"));
        CHECK(!backend->remove_marked("r", "other"));
        CHECK(!backend->remove_marked("r", ""));
        const auto second = backend->swap("r", first, text_bytes("2"));
        CHECK(!backend->remove_marked("r", *first));
        CHECK((backend->get("r") == text_bytes("2")));
        CHECK(backend->remove_marked("r", *second));
        CHECK(!backend->get("r"));
        CHECK(!backend->remove_marked("r", *second));
        CHECK(!backend->swap("r", second, text_bytes("3")));
        CHECK(backend->swap("r", {}, text_bytes("3")));
        backend->remove("r");
        CHECK(!backend->get_marked("r"));
    });
}

TEST_CASE("Backend: another one of the same path has the same objects") {
    with_backends(
        [](const BackendKind &kind, const std::string &path) {
            std::string mark;
            {
                const auto backend = kind.open(path);
                backend->put("a/b", whole_bytes(1, 200'000));
                mark = backend->swap("roots/r", {}, text_bytes("1")).value();
                const auto other = kind.open(path); // both at once
                CHECK((other->get("a/b") == whole_bytes(1, 200'000)));
                const auto second = other->swap("roots/r", mark, text_bytes("2"));
                REQUIRE(second);
                CHECK(!backend->swap("roots/r", mark, text_bytes("3")));
                CHECK(backend->get_marked("roots/r").value().mark == *second);
                mark = *second;
                other->remove("a/b");
                CHECK(!backend->get("a/b"));
                backend->put("c", text_bytes("c"));
            }
            const auto later = kind.open(path);
            CHECK((listed_keys(*later) == std::vector<std::string>{"c", "roots/r"}));
            CHECK(later->swap("roots/r", mark, text_bytes("4")));
        },
        true);
}
