// Text streams: the texts and stops of generation, for tokens that the host hands over.
#include <string>
#include <vector>

#include "tests/abi/pulled.h"

using namespace abi_test;

namespace {

using TextStream = std::unique_ptr<stasis_text_stream, Releaser<stasis_text_stream_free>>;

TextStream make_stream(const stasis_model *model, const stasis_generate_options *options) {
    stasis_text_stream *stream = nullptr;
    stasis_error error;
    const stasis_status status = stasis_text_stream_create(model, options, &stream, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return TextStream(stream);
}

struct Piece {
    std::string text;
    uint32_t stopped, reason;
    bool operator==(const Piece &) const = default;
};

Piece push(stasis_text_stream *stream, stasis_token token) {
    auto piece = sized<stasis_text_piece>();
    REQUIRE(stasis_text_stream_push(stream, token, &piece, nullptr) == STASIS_OK);
    return {{piece.text, piece.length}, piece.stopped, piece.stop_reason};
}

Piece finish(stasis_text_stream *stream) {
    auto piece = sized<stasis_text_piece>();
    REQUIRE(stasis_text_stream_finish(stream, &piece, nullptr) == STASIS_OK);
    return {{piece.text, piece.length}, piece.stopped, piece.stop_reason};
}

// Pushes the tokens of a generation; every piece must be its text, and the stop its stop. Returns
// whether text was held back to the end.
bool same_as_generation(const stasis_model *model, stasis_session *session,
                        const stasis_generate_options &options) {
    const Outcome outcome = told(session, options);
    const TextStream stream = make_stream(model, &options);
    bool stopped = false;
    std::string rest;
    for (const PulledEvent &event : outcome.events) {
        if (event.last != 0) {
            rest = event.text;
            continue;
        }
        CHECK(!stopped);
        const Piece piece = push(stream.get(), event.token);
        CHECK(piece.text == event.text);
        stopped = piece.stopped != 0;
        CHECK(piece.reason ==
              (stopped ? outcome.result.stop_reason : uint32_t{STASIS_STOP_CALLBACK}));
    }
    CHECK(stopped);
    CHECK(push(stream.get(), 5) == Piece{"", 1, outcome.result.stop_reason}); // adds nothing
    CHECK(finish(stream.get()) == Piece{rest, 1, outcome.result.stop_reason});
    CHECK(finish(stream.get()).text.empty());
    CHECK(push(stream.get(), 5).text.empty());
    return !rest.empty();
}

} // namespace

TEST_CASE("stasis_text_stream_push: the texts and the stop of a generation, for every stop string "
          "in its text") {
    stasis_model *const model = shared_model("recall-gemma3");
    const Session start = session_of(model, some_tokens(30));
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 3.0F;
    sampling.seed = 7;
    REQUIRE(stasis_session_set_sampling(start.get(), &sampling, nullptr) == STASIS_OK);
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = 14;
    std::string text;
    for (const PulledEvent &event : told(fork(start.get()).get(), options).events) {
        text += event.text;
    }
    REQUIRE(text.size() > 20);
    size_t held = 0;
    for (size_t begin = 0; begin < text.size(); ++begin) {
        for (size_t length = 1; length <= 3 && begin + length <= text.size(); ++length) {
            const std::string piece = text.substr(begin, length), never = piece + "\x01";
            if (piece.find('\0') != piece.npos) {
                continue;
            }
            const char *const strings[] = {never.c_str(), piece.c_str()};
            options.stop_strings = strings;
            for (options.stop_string_count = 1; options.stop_string_count <= 2;
                 ++options.stop_string_count) {
                held += same_as_generation(model, fork(start.get()).get(), options) ? 1 : 0;
            }
        }
    }
    CHECK(held > 0);
}

TEST_CASE("stasis_text_stream_push: characters that come in pieces, and bytes that are none") {
    stasis_model *const model = shared_model("recall-gemma3");
    const Session start = session_of(model, some_tokens(30));
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    Tokens wide; // tokens with bytes of characters that have several
    for (stasis_token token = 0; token < info.vocabulary; ++token) {
        char bytes[64];
        size_t length = 0;
        REQUIRE(stasis_model_detokenize(model, &token, 1, STASIS_DETOKENIZE_MIDDLE, bytes,
                                        sizeof bytes, &length, nullptr) == STASIS_OK);
        if (std::any_of(bytes, bytes + length, [](char c) { return (c & 0x80) != 0; })) {
            wide.push_back(token);
        }
    }
    REQUIRE(wide.size() > 100);
    const std::vector<float> bias(wide.size(), 100.0F);
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = 40;
    for (uint64_t seed = 0; seed < 8; ++seed) {
        auto sampling = sized<stasis_sampling>();
        sampling.temperature = 50.0F;
        sampling.seed = seed;
        sampling.bias_tokens = wide.data();
        sampling.bias = bias.data();
        sampling.bias_count = static_cast<uint32_t>(wide.size());
        REQUIRE(stasis_session_set_sampling(start.get(), &sampling, nullptr) == STASIS_OK);
        same_as_generation(model, fork(start.get()).get(), options);
    }

    // The euro sign, byte by byte; the last time it is not finished.
    const TextStream stream = make_stream(model, nullptr);
    const auto byte = [&](unsigned value) {
        char spelled[8];
        std::snprintf(spelled, sizeof spelled, "<0x%02X>", value);
        for (stasis_token token = 0; token < info.vocabulary; ++token) {
            char piece[64];
            size_t length = 0;
            if (stasis_model_detokenize(model, &token, 1, STASIS_DETOKENIZE_PIECE, piece,
                                        sizeof piece, &length, nullptr) == STASIS_OK &&
                std::string(piece, length) == spelled) {
                return token;
            }
        }
        FAIL("no token for a byte");
        return stasis_token{0};
    };
    CHECK(push(stream.get(), byte(0xE2)).text.empty());
    CHECK(push(stream.get(), byte(0x82)).text.empty());
    CHECK(push(stream.get(), byte(0xAC)).text == "\xE2\x82\xAC");
    CHECK(push(stream.get(), byte(0xE2)).text.empty());
    CHECK(finish(stream.get()).text.empty());
}

TEST_CASE("stasis_text_stream_create: stop tokens, end tokens, a limit, and no tokenizer") {
    stasis_model *const model = shared_model("recall-gemma3");
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    const stasis_token end = info.end_tokens[0], other = 300;
    const TextStream plain = make_stream(model, nullptr);
    CHECK(push(plain.get(), other).stopped == 0);
    CHECK(push(plain.get(), end) == Piece{"", 1, STASIS_STOP_END_TOKEN});

    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.stop_tokens = &other;
    options.stop_token_count = 1;
    options.tokens_max = 3;
    const TextStream first = make_stream(model, &options), second = make_stream(model, &options);
    CHECK(push(first.get(), end).stopped == 0);
    CHECK(push(first.get(), other) == Piece{"", 1, STASIS_STOP_END_TOKEN});
    CHECK(push(second.get(), end).stopped == 0);
    CHECK(push(second.get(), end).stopped == 0);
    CHECK(push(second.get(), end) == Piece{"", 1, STASIS_STOP_LENGTH});
    CHECK(finish(second.get()) == Piece{"", 1, STASIS_STOP_LENGTH});

    const TextStream untold = make_stream(gemma(), &options);
    CHECK(push(untold.get(), 5) == Piece{"", 0, STASIS_STOP_CALLBACK});
    CHECK(finish(untold.get()) == Piece{"", 0, STASIS_STOP_CALLBACK});

    TextStream keeps;
    {
        const Model own = open_path(test_data("recall-gemma3"));
        keeps = make_stream(own.get(), nullptr);
    }
    CHECK(push(keeps.get(), other).text == push(make_stream(model, nullptr).get(), other).text);
}

TEST_CASE("stasis_text_stream_create: what is refused") {
    stasis_model *const model = shared_model("recall-gemma3");
    stasis_text_stream *stream = nullptr;
    stasis_error error;
    CHECK(stasis_text_stream_create(nullptr, nullptr, &stream, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_text_stream_create(model, nullptr, nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
    const char *const strings[] = {"a", ""};
    auto options = sized<stasis_generate_options>();
    options.stop_strings = strings;
    options.stop_string_count = 2;
    CHECK(stasis_text_stream_create(model, &options, &stream, &error) == STASIS_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(error, "stop_strings[1]"), error.message);
    options.stop_string_count = 1;
    CHECK(stasis_text_stream_create(gemma(), &options, &stream, nullptr) == STASIS_UNSUPPORTED);
    const Cancel cancel = make_cancel();
    options.cancel = cancel.get();
    CHECK(stasis_text_stream_create(model, &options, &stream, nullptr) == STASIS_INVALID_ARGUMENT);
    options = sized<stasis_generate_options>();
    options.log_probability_count = 1;
    CHECK(stasis_text_stream_create(model, &options, &stream, nullptr) == STASIS_INVALID_ARGUMENT);
    options = sized<stasis_generate_options>();
    options.callback = [](void *, const stasis_generated *) { return 0; };
    CHECK(stasis_text_stream_create(model, &options, &stream, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stream == nullptr);
    stasis_text_stream_free(nullptr);

    const TextStream whole = make_stream(model, nullptr), plain = make_stream(model, nullptr);
    auto piece = sized<stasis_text_piece>();
    CHECK(stasis_text_stream_push(whole.get(), UINT32_MAX, &piece, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(error, "4294967295"), error.message);
    CHECK(stasis_text_stream_push(nullptr, 3, &piece, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_text_stream_push(whole.get(), 3, nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_text_stream_finish(nullptr, &piece, nullptr) == STASIS_INVALID_ARGUMENT);
    piece.struct_size = 2;
    CHECK(stasis_text_stream_finish(whole.get(), &piece, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(push(whole.get(), 300) == push(plain.get(), 300));
}
