// Text streams: the text logic of generation for hosts that draw with steps; see stasis_generate.h.
// Must not know sessions.
#include "runtime/session/text_stream.h"

#include "abi/generation.h"

struct stasis_text_stream {
    stasis::TextStream text;
    std::atomic<bool> busy{false};
};

namespace stasis::abi {

namespace {

stasis_text_piece piece_of(const TextStream &text) {
    stasis_text_piece piece{};
    piece.stopped = text.stop() ? 1 : 0;
    piece.stop_reason = static_cast<uint32_t>(text.stop().value_or(StopReason::callback));
    piece.text = text.piece().data();
    piece.length = text.piece().size();
    return piece;
}

// Runs the body with the stream's text, and then writes the piece.
template <typename Body>
stasis_status with(stasis_text_stream *stream, stasis_text_piece *piece, stasis_error *error,
                   const Body &body) noexcept {
    return enter(error, [&] {
        require(stream, "stream");
        require_struct(piece, "piece");
        const Busy busy(stream->busy, "text stream");
        body(stream->text);
        write_struct(piece_of(stream->text), piece, "piece");
    });
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

stasis_status stasis_text_stream_create(const stasis_model *model,
                                        const stasis_generate_options *options,
                                        stasis_text_stream **stream, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(stream, "stream");
        const stasis_generate_options given = read_struct(options, "options");
        require_no_callback(given);
        if (given.cancel != nullptr || given.log_probability_count != 0 || given.timeout_ms != 0) {
            fail(stasis::Status::invalid_argument,
                 "options.cancel, log_probability_count and timeout_ms: expected NULL and 0, for a "
                 "text stream draws nothing");
        }
        const stasis::GenerateOptions own = read_generate_options(given);
        const uint64_t most = own.tokens_max == 0 ? UINT64_MAX : own.tokens_max;
        *stream = new stasis_text_stream{stasis::TextStream(model->model, own, most)};
    });
}

stasis_status stasis_text_stream_push(stasis_text_stream *stream, stasis_token token,
                                      stasis_text_piece *piece, stasis_error *error) {
    return with(stream, piece, error, [&](stasis::TextStream &text) {
        text.stage(token);
        text.take();
    });
}

stasis_status stasis_text_stream_finish(stasis_text_stream *stream, stasis_text_piece *piece,
                                        stasis_error *error) {
    return with(stream, piece, error, [](stasis::TextStream &text) { text.finish(); });
}

void stasis_text_stream_free(stasis_text_stream *stream) {
    enter(nullptr, [&] { delete stream; });
}
