// Time of everything that a text goes through before it is tokens, over shapes and sizes: it grows
// with the text and no faster. And what is not done at all: a text that cannot fit, a pattern that
// takes too long, a call that was cancelled.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <pcre2.h>
#include <random>
#include <utf8proc.h>

#include "runtime/session/session.h"
#include "runtime/text/normal_form.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/stop_strings.h"
#include "runtime/text/tokenizer.h"
#include "tests/data_files.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/models.h"
#include "tests/runtime/random_text.h"
#include "tests/share.h"

namespace stasis {

namespace {

constexpr bool kSlow = test::kSanitized;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string repeated(const std::string &unit, size_t size_bytes) {
    std::string out;
    while (out.size() < size_bytes) {
        out += unit;
    }
    return out;
}

// Texts of one kind, as long as wanted.
using Shape = std::function<std::string(size_t size_bytes)>;

std::map<std::string, Shape> shapes() {
    std::map<std::string, Shape> out;
    const auto add = [&](const std::string &head, const std::vector<std::string> &units) {
        std::string name = head;
        for (const std::string &unit : units) {
            name += "+" + unit;
        }
        out[name] = [=](size_t size_bytes) {
            std::string text = head;
            for (const std::string &unit : units) {
                text += repeated(unit, size_bytes / units.size());
            }
            return text;
        };
    };
    add("a", {"\u0301", "\u0323"}); // marks in the wrong order
    add("a", {"\u0301\u0323"});
    add("", {"\u0F73"}); // no mark, but becomes two
    add("", {"\u0F81\u0F71"});
    add("a", {"\u0344", "\u0323"});
    add("\u1100", {"\u1161\u11A8"});
    for (const char *unit : {"a", "ab", "z", "7", "!", " ", "\n", " \n", "\t x", "'ll", "\u8A00",
                             "\u00E9", "e\u0301", "\U0001F468\u200D", "\u2581", "<", "</s", "a "}) {
        add("", {unit});
    }
    add("", {"a", " "});
    add("", {" ", "a"});
    add("", {" ", "\n"});
    add("", {"a", "7", "!"});
    return out;
}

// Four times the text takes about four times as long: a quadratic step would take sixteen. Other
// guests of the machine only add to a time, as a first call does, so each size has the least of two
// rounds, and of more where those do not suffice.
void check_linear(const std::string &what, const std::function<void(const std::string &)> &run,
                  const Shape &shape) {
    constexpr int kRounds = 2, kMostRounds = 12;
    const size_t size_bytes = kSlow ? 1 << 13 : 1 << 15;
    const std::string text = shape(size_bytes), longer = shape(4 * size_bytes);
    const auto seconds = [&](const std::string &of) {
        const double begin = cpu_seconds();
        run(of);
        return cpu_seconds() - begin;
    };
    constexpr double kNone = std::numeric_limits<double>::infinity();
    double once = kNone, fourfold = kNone;
    for (int round = 0; round < kRounds || (round < kMostRounds && fourfold >= 9 * once); ++round) {
        once = std::min(once, std::max(seconds(text), 0.002));
        fourfold = std::min(fourfold, seconds(longer));
    }
    CHECK_MESSAGE(fourfold < 9 * once, what, ": ", once, " s, four times the text ", fourfold);
}

std::string utf8proc_form(const std::string &text) {
    utf8proc_uint8_t *out =
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t *>(text.c_str())); // no zero in it
    REQUIRE(out != nullptr);
    std::string form(reinterpret_cast<const char *>(out));
    std::free(out);
    return form;
}

void append_point(std::string &text, uint32_t point) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<int32_t>(point), bytes);
    text.append(reinterpret_cast<const char *>(bytes), static_cast<size_t>(size));
}

// The words by searches of the whole text.
std::vector<std::string_view> whole_search(const std::string &pattern, std::string_view text) {
    int error = 0;
    size_t offset = 0;
    const auto pointer = [](std::string_view bytes) {
        return reinterpret_cast<PCRE2_SPTR>(bytes.data());
    };
    pcre2_code *code = pcre2_compile(pointer(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                     &error, &offset, nullptr);
    REQUIRE(code != nullptr);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, nullptr);
    const size_t *found = pcre2_get_ovector_pointer(match);
    std::vector<std::string_view> out;
    for (size_t at = 0; at < text.size();) {
        const bool none = pcre2_match(code, pointer(text), text.size(), at, 0, match, nullptr) < 0;
        const size_t begin = none ? text.size() : found[0], end = none ? text.size() : found[1];
        for (const auto &[from, to] : {std::pair(at, begin), std::pair(begin, end)}) {
            if (from < to) {
                out.push_back(text.substr(from, to - from));
            }
        }
        at = end;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return out;
}

bool is_surrogate(uint32_t point) {
    return point >= 0xD800 && point < 0xE000;
}

} // namespace

TEST_CASE(
    "Tokenizer: text time: form C is that of utf8proc, for every character and for random ones") {
    std::vector<uint32_t> marks, changed; // that are reordered or composed
    for (uint32_t point = 1; point < 0x110000; ++point) {
        if (is_surrogate(point)) {
            continue;
        }
        std::string text;
        append_point(text, point);
        const std::string form = utf8proc_form(text);
        if (compose(text).text != form) {
            CHECK_MESSAGE(false, point);
        }
        // The bound that tokens_min relies on.
        if (form.size() * kComposedFromMax < text.size()) {
            CHECK_MESSAGE(false, point);
        }
        if (utf8proc_get_property(static_cast<int32_t>(point))->combining_class != 0) {
            marks.push_back(point);
        } else if (form != text || point % 997 == 0 || (point >= 0x1100 && point < 0x1200)) {
            changed.push_back(point);
        }
    }
    std::mt19937 random(7);
    for (int i = 0; i < (kSlow ? 3000 : 30000); ++i) {
        std::string text;
        for (uint32_t n = random() % 24; n > 0; --n) {
            const uint32_t kind = random() % 8;
            append_point(text, kind < 5   ? marks[random() % marks.size()]
                               : kind < 7 ? changed[random() % changed.size()]
                                          : 'a' + random() % 26);
        }
        const std::string form = utf8proc_form(text);
        CHECK_MESSAGE(compose(text).text == form, i);
        CHECK(form.size() * kComposedFromMax >= text.size());
    }
}

TEST_CASE("Tokenizer: text time: normal form, patterns, merges and stop strings take time in "
          "proportion") {
    for (const auto &[name, shape] : shapes()) {
        check_linear(
            "form C of " + name, [](const std::string &text) { compose(text); }, shape);
        for (const char *layout : {"qwen2", "deepseek-coder"}) {
            const auto tokenizer = Tokenizer::open(test_data(std::string("byte-bpe/") + layout),
                                                   610, std::vector<uint32_t>{600}, {});
            check_linear(
                std::string(layout) + " of " + name,
                [&](const std::string &text) { tokenizer->encode(text, false, false); }, shape);
        }
        check_linear(
            "stop strings in " + name,
            [](const std::string &text) {
                StopStrings stops({text.substr(0, text.size() / 2) + "\x01", "a b", "\n\n"});
                stops.add(text);
            },
            shape);
    }
}

TEST_CASE("Tokenizer: text time: sentencepiece takes time in proportion") {
    for (const char *model : {"recall-gemma3", "recall-llama"}) {
        const auto tokenizer = Tokenizer::open(test_data(model), 1024, {}, {});
        for (const auto &[name, shape] : shapes()) {
            check_linear(
                std::string(model) + " of " + name,
                [&](const std::string &text) { tokenizer->encode(text, false, false); }, shape);
        }
    }
}

TEST_CASE(
    "Tokenizer: text time: published patterns cut any text; others may not take what they like") {
    for (const char *name : {"default", "gpt-2", "llama-bpe", "smollm", "qwen2", "qwen35", "gpt-4o",
                             "starcoder", "deepseek-coder"}) {
        const Pretokenizer words(pretokenizer_patterns(name, "f"), "f");
        for (const auto &[key, shape] : shapes()) {
            const std::string kind = key; // what a macro may capture
            CAPTURE(name);
            CAPTURE(kind);
            check_linear(
                std::string(name) + " of " + kind,
                [&](const std::string &text) { words.split(text); }, shape);
        }
    }
    const std::string letters(400000, 'a');
    const std::vector<std::string> patterns{"[a-z]*[0-9]|[a-z ]",
                                            "[a-z]*[0-9]",
                                            "(?:a+)+[bc]|a",
                                            "a*a*a*b|a",
                                            R"((?:a|aa)+b|a)",
                                            R"(\w+\d|\w)",
                                            R"((?:a|aa)+$|a(?=a*b)|a)",
                                            ".*b|."};
    for (const std::string &pattern : patterns) {
        CAPTURE(pattern);
        const Pretokenizer words({pattern}, "f");
        const double begin = cpu_seconds();
        expect_error(Status::unsupported, {pattern, "on this text"}, [&] { words.split(letters); });
        CHECK(cpu_seconds() - begin < (kSlow ? 60 : 5));
    }
}

TEST_CASE("Tokenizer: text time: a search by parts finds what a search of the whole finds") {
    std::mt19937 random(3);
    const std::vector<std::string> patterns = {
        "[a-z]+7|[a-z]", R"(\s+(?!\S)|\s+)", R"((?<=a)b+)", R"(a{70,}b|ab?)",
        "(?i:x?y+)z*",   R"(\p{L}+|\p{N})",  "^a+|b+$",     R"(b+\n?\Z|c)",
        "(?im)^a+|b+$",  "a+(?=b)|b+",       R"(\ba+\b)",   "[ab]{1,100}c|a"};
    for (int i = 0; i < (kSlow ? 200 : 2000); ++i) {
        std::string text;
        while (text.size() < 600 && random() % 40 != 0) {
            static constexpr const char *kUnits[] = {"a", "b",  "x", "Y",      "z",         "7",
                                                     " ", "\n", "c", "\u00E9", "\U0001F634"};
            const char *unit = kUnits[random() % std::size(kUnits)];
            for (uint32_t n = random() % 8 == 0 ? random() % 150 : 1; n > 0; --n) {
                text += unit;
            }
        }
        const std::string &pattern = patterns[random() % patterns.size()];
        const Pretokenizer words({pattern}, "f");
        const std::vector<std::string_view> cut = words.split(text);
        std::string together;
        for (const std::string_view word : cut) {
            together += word;
        }
        CHECK(together == text);
        CHECK_MESSAGE(cut == whole_search(pattern, text), pattern, " in '", text, "'");
    }
}

TEST_CASE("Tokenizer: text time: what cannot fit is refused before it is tokenized, and cancelling "
          "is seen") {
    for (const char *name : {"recall-gemma3", "recall-llama"}) {
        Session session(test::open(name), TimelineOptions{});
        const std::string text(32U << 20, 'x');
        const double begin = cpu_seconds();
        expect_error(Status::full, {"session full: at least ", "exceed the capacity"},
                     [&] { session.append_message("user", text, true, {}); });
        CHECK(cpu_seconds() - begin < 2); // to tokenize it takes a minute
        CHECK(session.position() == 0);
    }
    const auto tokenizer =
        Tokenizer::open(test_data("byte-bpe/qwen2"), 610, std::vector<uint32_t>{600}, {});
    const std::atomic<bool> cancel{true};
    for (const auto &[name, shape] : shapes()) {
        const Segment segment{shape(1000), TokenSource::text, false, TurnPart::body, true};
        expect_error(Status::cancelled, {"cancelled"}, [&] {
            tokenizer->encode({&segment, 1}, Watch{&cancel});
        });
    }
    // A text that is refused for its size would indeed not have fitted.
    std::mt19937 random(11);
    for (const char *name : {"recall-gemma3", "recall-llama", "byte-bpe/qwen2"}) {
        const auto any = Tokenizer::open(test_data(name), 1024, {}, {});
        for (int i = 0; i < 300; ++i) {
            const std::string text = random_utf8(random);
            CHECK(any->encode(text, false, true).size() >= any->tokens_min(text.size()));
        }
        for (const auto &[kind, shape] : shapes()) {
            const std::string text = shape(5000);
            CHECK(any->encode(text, false, false).size() >= any->tokens_min(text.size()));
            CHECK(any->tokens_min(text.size()) > 0);
        }
    }
}

} // namespace stasis
