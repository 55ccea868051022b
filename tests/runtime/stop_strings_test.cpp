// Stop strings: what is shown and what is held back, and that it never depends on how the text was
// cut into pieces.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "format/state/error.h"
#include "runtime/text/stop_strings.h"

using namespace stasis;

namespace {

struct Verdict {
    size_t shown = 0;
    bool stopped = false;
    bool operator==(const Verdict &) const = default;
};

// The definition, read off the whole text: the first byte that completes a string ends it, the
// longest string completed there is cut off; else the longest end that begins a string is held.
Verdict expected(const std::vector<std::string> &strings, const std::string &text) {
    for (size_t end = 1; end <= text.size(); ++end) {
        size_t longest = 0;
        for (const std::string &string : strings) {
            if (text.substr(0, end).ends_with(string)) {
                longest = std::max(longest, string.size());
            }
        }
        if (longest > 0) {
            return {end - longest, true};
        }
    }
    for (size_t begin = 0; begin < text.size(); ++begin) {
        for (const std::string &string : strings) {
            if (string.starts_with(text.substr(begin))) {
                return {begin, false};
            }
        }
    }
    return {text.size(), false};
}

// Adds text in the pieces that end where a bit of `cuts` is set, checking every step.
Verdict run(const std::vector<std::string> &strings, const std::string &text, uint64_t cuts) {
    StopStrings stop(strings);
    size_t shown = 0, begin = 0;
    for (size_t end = 1; end <= text.size(); ++end) {
        if (end == text.size() || (cuts >> (end - 1) & 1) != 0) {
            const size_t now = stop.add(std::string_view(text).substr(begin, end - begin));
            const Verdict verdict{now, stop.stopped()};
            REQUIRE(verdict == expected(strings, text.substr(0, end)));
            REQUIRE(now >= shown);
            shown = now;
            begin = end;
        }
    }
    return {shown, stop.stopped()};
}

} // namespace

TEST_CASE("StopStrings: a stop string is found wherever the text is cut") {
    const std::vector<std::string> strings{"END", "\n\nUser:"};
    const std::string text = "some EN text\n\nUser: no";
    const size_t at = text.find("\n\nUser:");
    for (size_t first = 0; first < text.size(); ++first) {
        for (size_t second = first; second < text.size(); ++second) {
            CHECK(run(strings, text, uint64_t{1} << first | uint64_t{1} << second) ==
                  Verdict{at, true});
        }
    }
    CHECK(run(strings, text, UINT64_MAX) == Verdict{at, true});
}

TEST_CASE(
    "StopStrings: the longest possible beginning is held back, and given free when it fails") {
    StopStrings stop({"abcd", "cdx"});
    CHECK(stop.add("zab") == 1);
    CHECK(stop.add("c") == 1);
    CHECK(stop.add("") == 1);
    CHECK(stop.add("c") == 4);
    CHECK_FALSE(stop.stopped());
    CHECK(stop.add("abc") == 5);
    CHECK(stop.add("d") == 5);
    CHECK(stop.stopped());
    CHECK(stop.add("more") == 5);
    CHECK(stop.finish() == 5);
}

TEST_CASE("StopStrings: finish shows what was held back") {
    StopStrings stop({"stop"});
    CHECK(stop.add("please sto") == 7);
    CHECK(stop.finish() == 10);
    CHECK_FALSE(stop.stopped());
    StopStrings none({});
    CHECK(none.add("anything") == 8);
    CHECK(none.finish() == 8);
}

TEST_CASE("StopStrings: the first byte that completes a string decides, there the longest string") {
    CHECK(run({"abcd", "c"}, "xabcd", 0) == Verdict{3, true});
    CHECK(run({"c", "bc", "xbc"}, "abcd", 0) == Verdict{1, true});
    CHECK(run({"xbc", "bc", "c"}, "abcd", 0) == Verdict{1, true});
    CHECK(run({"aab"}, "aaaab", 0) == Verdict{2, true});
    CHECK(run({"abab"}, "abaabab", UINT64_MAX) == Verdict{3, true});
    CHECK(run({"a", "a"}, "ba", 0) == Verdict{1, true});
}

TEST_CASE(
    "StopStrings: UTF-8: a stop string split inside a character, and characters that share bytes") {
    const std::string text = "Gr\u00FC\u00DFe \u20AC\u20AD!";
    CHECK(run({"\u20AD"}, text, UINT64_MAX) == Verdict{text.find("\u20AD"), true});
    CHECK(run({"\u00DF"}, text, 0b101010101) == Verdict{4, true});
    StopStrings stop({"\u20AD"});
    CHECK(stop.add("x\xE2\x82") == 1); // the first bytes of both signs
    CHECK(stop.add("\xAC") == 4);
    CHECK(stop.finish() == 4);
}

TEST_CASE("StopStrings: an empty stop string is refused by its index") {
    try {
        StopStrings({"a", "", "b"});
        FAIL("no error");
    } catch (const Error &error) {
        CHECK(error.status() == Status::invalid_argument);
        CHECK(std::string(error.what()).find("stop string 1 is empty") != std::string::npos);
    }
}

TEST_CASE("StopStrings: every short text in every cut agrees with the definition") {
    const std::vector<std::vector<std::string>> sets{
        {"aab", "ba"}, {"abaab"}, {"aaaa", "bb"}, {"bab", "abba", "b"}, {"abb", "bba", "aabb"}};
    std::mt19937_64 generator(1);
    for (const auto &strings : sets) {
        for (size_t length = 1; length <= 9; ++length) {
            for (uint64_t letters = 0; letters < uint64_t{1} << length; ++letters) {
                std::string text;
                for (size_t i = 0; i < length; ++i) {
                    text.push_back((letters >> i & 1) != 0 ? 'b' : 'a');
                }
                const Verdict whole = run(strings, text, 0);
                for (const uint64_t cuts : {UINT64_MAX, generator(), generator()}) {
                    REQUIRE(run(strings, text, cuts) == whole);
                }
            }
        }
    }
}

TEST_CASE("StopStrings: the cost of a byte stays small when everything looks like a beginning") {
    // Quadratic work on these 4 MB would take minutes.
    StopStrings stop({std::string(4000, 'a') + "b", "aab" + std::string(4000, 'a')});
    const std::string piece(4096, 'a');
    for (int i = 0; i < 1024; ++i) {
        stop.add(piece);
    }
    CHECK(stop.add("c") == 1024 * 4096 + 1);
}
