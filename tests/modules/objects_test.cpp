// Objects of S3 with a service in trouble: answers that are lost, refused, damaged, cut or late,
// clocks that differ, and what requests are made.
#include "modules/s3/objects.h"

#include <atomic>
#include <string>

#include "fake_s3.h"
#include "tests/format/backends.h"

using namespace stasis;
using namespace stasis::format;
using stasis_s3::calls_since;
using stasis_s3::fake_settings;
using stasis_s3::make_trouble;
using stasis_s3::open_fake;

namespace {

// A store of its own for each case; no trouble is left behind.
struct Place {
    explicit Place(const char *name) : settings(fake_settings(name)), backend(open_fake(settings)) {
        make_trouble("{}");
    }
    ~Place() { make_trouble("{}"); }

    const stasis_s3::Settings settings;
    const std::unique_ptr<Backend> backend;
};

std::string object_name(int number) {
    return "objects/00/" + std::to_string(number);
}

} // namespace

TEST_CASE("Objects: how many requests a call takes") {
    const Place place("counts");
    const auto cost = [&](const auto &call) {
        make_trouble("{}");
        call();
        return calls_since();
    };
    const Bytes small = whole_bytes(1, 100'000), large = whole_bytes(2, 17'000'000);
    CHECK(cost([&] { place.backend->put("objects/small", small); }) == 1);
    CHECK(cost([&] { place.backend->put("objects/small", small); }) == 2); // put, then touched
    CHECK(cost([&] { CHECK(place.backend->read("objects/small", 0, {})); }) == 1);
    CHECK(cost([&] { place.backend->put("objects/small", small); }) == 1); // touched at once
    CHECK(cost([&] { CHECK((place.backend->get("objects/small") == small)); }) == 1);
    CHECK(cost([&] { place.backend->put("objects/large", large); }) == 1);
    CHECK(cost([&] { CHECK((place.backend->get("objects/large") == large)); }) ==
          6); // size, 5 parts
    CHECK(cost([&] { CHECK(place.backend->swap("roots/r", {}, small)); }) == 1);
    CHECK(cost([&] { CHECK(place.backend->get_marked("roots/r")); }) == 1);
    CHECK(cost([&] { place.backend->remove("objects/small"); }) == 1);
    CHECK(cost([&] { open_fake(place.settings); }) == 1);
}

TEST_CASE("Objects::put: an age begins anew with each put") {
    const Place place("ages");
    const auto age = [&] {
        uint64_t found = UINT64_MAX;
        place.backend->list("objects/", [&](const ListedObject &each) {
            found = each.age_seconds.value();
            return true;
        });
        return found;
    };
    place.backend->put("objects/a", text_bytes("a"));
    CHECK(age() < 60);
    make_trouble(R"({"ahead": 500})");
    CHECK(age() >= 500);
    place.backend->put("objects/a", text_bytes("a"));
    CHECK(age() < 60);
    CHECK(place.backend->read("objects/a", 0, {}));
    make_trouble(R"({"ahead": 800})");
    CHECK(age() >= 300);
    place.backend->put("objects/a", text_bytes("a"));
    CHECK(age() < 60);
    // Seen, and removed by another before the put.
    CHECK(place.backend->read("objects/a", 0, {}));
    open_fake(place.settings)->remove("objects/a");
    place.backend->put("objects/a", text_bytes("a"));
    CHECK((place.backend->get("objects/a") == text_bytes("a")));
}

TEST_CASE("Objects: passing trouble is passed over") {
    const Place place("passing");
    for (const char *trouble :
         {R"({"refuse_every": 3, "status": 503, "code": "SlowDown"})",
          R"({"refuse_every": 3, "status": 500})", R"({"refuse_every": 3, "status": 429})",
          R"({"refuse_every": 3, "status": 400, "code": "RequestTimeout"})", R"({"cut_every": 3})",
          R"({"lose_every": 3})"}) {
        CAPTURE(trouble);
        make_trouble(trouble);
        for (int i = 0; i < 6; ++i) {
            const std::string key = object_name(i);
            place.backend->put(key, whole_bytes(7, 5000));
            CHECK((place.backend->get(key) == whole_bytes(7, 5000)));
            place.backend->remove(key);
            CHECK(!place.backend->get(key));
        }
        CHECK(listed_keys(*place.backend, "objects/").empty());
    }
}

TEST_CASE("Objects::swap: a lost answer is looked for, at each request") {
    const Place place("lost");
    for (int call = 1; call <= 8; ++call) {
        CAPTURE(call);
        make_trouble("{\"lose\": " + std::to_string(call) + "}");
        const std::string key = "roots/" + std::to_string(call);
        const auto first = place.backend->swap(key, {}, text_bytes("first"));
        REQUIRE(first);
        const auto second = place.backend->swap(key, first, text_bytes("second"));
        REQUIRE(second);
        CHECK(*second != *first);
        CHECK(place.backend->get_marked(key).value().mark == *second);
        CHECK(!place.backend->swap(key, first, text_bytes("third")));
        CHECK(!place.backend->swap(key, {}, text_bytes("third")));
        CHECK((place.backend->get(key) == text_bytes("second")));
        CHECK(!place.backend->remove_marked(key, *first));
        CHECK(place.backend->remove_marked(key, *second));
        CHECK(!place.backend->get(key));
    }
    // Refused and not lost: the same bytes are another's.
    make_trouble("{}");
    REQUIRE(place.backend->swap("roots/r", {}, text_bytes("equal")));
    CHECK(!place.backend->swap("roots/r", {}, text_bytes("equal")));
}

TEST_CASE("Objects::swap: a counter loses no number while each fifth answer is lost") {
    const Place place("counter");
    REQUIRE(place.backend->swap("roots/n", {}, text_bytes("0 start")));
    make_trouble(R"({"lose_every": 5})");
    const int failed = run_threads(4, [&](int thread) {
        for (int done = 0; done < 10;) {
            const Marked there = place.backend->get_marked("roots/n").value();
            const int next = std::stoi(std::string(there.bytes.begin(), there.bytes.end())) + 1;
            const std::string mine = std::to_string(next) + " " + std::to_string(thread);
            done += place.backend->swap("roots/n", there.mark, text_bytes(mine)) ? 1 : 0;
        }
    });
    make_trouble("{}");
    CHECK(failed == 0);
    const Bytes bytes = place.backend->get("roots/n").value();
    // A swap that was made, lost, and replaced at once reads as a conflict: counted, not reported.
    CHECK(std::stoi(std::string(bytes.begin(), bytes.end())) >= 40);
}

TEST_CASE("Objects: lasting trouble is IO that says what, and where") {
    const Place place("lasting");
    std::string text;
    make_trouble(R"({"refuse_every": 1, "status": 503, "code": "SlowDown"})");
    CHECK(thrown_by([&] { place.backend->put("objects/a", text_bytes("a")); }, &text) ==
          Status::io);
    CHECK(text.find("HTTP status 503: SlowDown: as the test wants it") != std::string::npos);
    CHECK(text.find("PUT ") != std::string::npos);
    CHECK(text.find("/test/lasting/objects/a") != std::string::npos);
    CHECK(text.find("c2VjcmV0") == std::string::npos);
    CHECK(calls_since() == 6); // and no more
    make_trouble(R"({"refuse_every": 1, "status": 507, "code": "Full"})");
    CHECK(thrown_by([&] { place.backend->put("objects/a", text_bytes("a")); }, &text) ==
          Status::io);
    CHECK(text.find("507: Full") != std::string::npos);
    CHECK(calls_since() == 1); // it would be full again
    make_trouble(R"({"refuse_every": 1, "status": 403, "code": "AccessDenied"})");
    for (const auto &call : std::initializer_list<std::function<void()>>{
             [&] { place.backend->get("a"); }, [&] { place.backend->get_marked("a"); },
             [&] { place.backend->swap("a", {}, text_bytes("a")); },
             [&] { place.backend->swap("a", "m", text_bytes("a")); },
             [&] { place.backend->remove("a"); }, [&] { place.backend->remove_marked("a", "m"); },
             [&] { listed_keys(*place.backend); }, [&] { place.backend->read("a", 0, {}); }}) {
        CHECK(thrown_by(call, &text) == Status::io);
        CHECK(text.find("HTTP status 403") != std::string::npos);
    }
    make_trouble("{}");
    stasis_s3::Settings settings = place.settings;
    settings.credentials.secret_key = "other";
    CHECK(thrown_by([&] { open_fake(settings); }, &text) == Status::io);
    CHECK(text.find("SignatureDoesNotMatch") != std::string::npos);
}

TEST_CASE("Objects: a clock that is wrong is put right by the service's") {
    const Place place("clocks");
    for (const int ahead : {7200, -90'000, 0}) {
        make_trouble("{\"ahead\": " + std::to_string(ahead) + "}");
        const std::string key = "objects/" + std::to_string(ahead + 100'000);
        place.backend->put(key, text_bytes("x"));
        CHECK(calls_since() == 2);
        CHECK(place.backend->get(key));
        CHECK(calls_since() == 3); // from then on
    }
}

TEST_CASE("Objects: a call that waits ends when it is cancelled or its time is over") {
    const Place place("stalled");
    make_trouble(R"({"stall_every": 1})");
    Watch watch;
    watch.deadline = Deadline::in_ms(20);
    CHECK(thrown_by([&] { place.backend->get("objects/a", watch); }) == Status::timeout);
    CHECK(thrown_by([&] { place.backend->put("objects/a", text_bytes("a"), watch); }) ==
          Status::timeout);
    std::atomic<bool> cancelled{true};
    watch = {};
    watch.cancel = &cancelled;
    CHECK(thrown_by([&] { place.backend->get("objects/a", watch); }) == Status::cancelled);
    make_trouble(R"({"refuse_every": 1, "status": 503})"); // in a pause between two tries too
    watch = {};
    watch.deadline = Deadline::in_ms(20);
    CHECK(thrown_by([&] { place.backend->get("objects/a", watch); }) == Status::timeout);
    make_trouble("{}");
    CHECK(!place.backend->get("objects/a"));
}

TEST_CASE("Objects::list: in pages, the trouble of one of which loses no key") {
    const Place place("pages");
    std::vector<std::string> keys;
    for (int i = 100; i < 120; ++i) {
        keys.push_back(object_name(i));
        place.backend->put(keys.back(), whole_bytes(1, static_cast<size_t>(i)));
    }
    for (const char *trouble : {R"({"page": 1})", R"({"page": 7})", R"({"page": 20})",
                                R"({"page": 7, "cut_every": 2, "lose_every": 3})"}) {
        make_trouble(trouble);
        CHECK((listed_keys(*place.backend, "objects/") == keys));
    }
}

TEST_CASE("Objects::open: what is no store, or no service for one") {
    make_trouble(R"({"ignores_conditions": true})");
    std::string text;
    CHECK(thrown_by([] { open_fake(fake_settings("careless")); }, &text) == Status::unsupported);
    CHECK(text.find("ignores if-none-match") != std::string::npos);
    make_trouble("{}");
    const Place place("taken");
    place.backend->put("inner/objects/a", text_bytes("a"));
    CHECK(thrown_by([] { open_fake(fake_settings("taken/inner")); }, &text) ==
          Status::invalid_argument);
    CHECK(text.find("not empty") != std::string::npos);
    stasis_s3::Settings settings = place.settings;
    settings.base_path = "/other";
    CHECK(thrown_by([&] { open_fake(settings); }, &text) == Status::io);
    CHECK(text.find("NoSuchBucket") != std::string::npos);
    stasis_s3::Objects objects(fake_settings("absent"), stasis_s3::fake_host());
    CHECK_THROWS_WITH_AS(objects.open(true), doctest::Contains("there is no store"),
                         stasis_s3::Failure);
}
