// Tokens, texts and rendered conversations of a model; see stasis.h. Must not know sessions.
#include "abi/handles.h"
#include "abi/options.h"
#include "runtime/session/model.h"

namespace stasis::abi {

namespace {

// Returns the model's tokenizer. Throws Error(unsupported) if it has none.
const Tokenizer &tokenizer_of(const stasis_model *model) {
    require(model, "model");
    if (model->model->tokenizer == nullptr) {
        fail(Status::unsupported, "the model has no tokenizer");
    }
    return *model->model->tokenizer;
}

std::string detokenize(const Tokenizer &tokenizer, std::span<const uint32_t> tokens,
                       uint32_t flags) {
    if ((flags & STASIS_DETOKENIZE_PIECE) == 0) {
        return tokenizer.decode(tokens, (flags & STASIS_DETOKENIZE_MIDDLE) == 0,
                                (flags & STASIS_DETOKENIZE_SPECIAL) != 0);
    }
    if (tokens.size() != 1) {
        fail(Status::invalid_argument,
             "count is %zu: STASIS_DETOKENIZE_PIECE spells one token at a time", tokens.size());
    }
    return tokenizer.piece(tokens.front());
}

// Copies the caller's messages, which are `stride` bytes apart. Throws Error(invalid_argument) if a
// struct is larger than the stride.
std::vector<Message> read_messages(const stasis_message *messages, size_t stride, size_t count) {
    require_array(messages, count, "messages");
    std::vector<Message> result;
    for (size_t i = 0; i < count; ++i) {
        const auto *at = reinterpret_cast<const stasis_message *>(
            reinterpret_cast<const unsigned char *>(messages) + i * stride);
        if (struct_size(at, sizeof *at, "messages") > stride) {
            fail(Status::invalid_argument, "stride is %zu: smaller than the messages' struct_size",
                 stride);
        }
        const stasis_message message = read_struct(at, "messages");
        require_zero(message.reserved, "messages");
        require(message.role, "messages.role");
        require_array(message.text, message.length, "messages.text");
        result.push_back(
            {message.role, std::string(std::string_view(message.text, message.length))});
    }
    return result;
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

stasis_status stasis_model_tokenize(const stasis_model *model, const char *text, size_t length,
                                    uint32_t flags, stasis_token *tokens, size_t capacity,
                                    size_t *count, stasis_error *error) {
    return enter(error, [&] {
        const stasis::Tokenizer &tokenizer = tokenizer_of(model);
        require_array(text, length, "text");
        require(count, "count");
        require_flags(flags, STASIS_TOKENIZE_BOS | STASIS_TOKENIZE_SPECIAL);
        const std::vector<uint32_t> ids =
            tokenizer.encode({text, length}, (flags & STASIS_TOKENIZE_BOS) != 0,
                             (flags & STASIS_TOKENIZE_SPECIAL) != 0);
        require_room(ids.size(), capacity, count, "tokens");
        require_array(tokens, ids.size(), "tokens");
        std::copy(ids.begin(), ids.end(), tokens);
    });
}

stasis_status stasis_model_detokenize(const stasis_model *model, const stasis_token *tokens,
                                      size_t count, uint32_t flags, char *text, size_t capacity,
                                      size_t *length, stasis_error *error) {
    return enter(error, [&] {
        const stasis::Tokenizer &tokenizer = tokenizer_of(model);
        require_array(tokens, count, "tokens");
        require(length, "length");
        require_flags(flags, STASIS_DETOKENIZE_SPECIAL | STASIS_DETOKENIZE_MIDDLE |
                                 STASIS_DETOKENIZE_PIECE);
        write_text(detokenize(tokenizer, {tokens, count}, flags), text, capacity, length);
    });
}

stasis_status stasis_model_render(const stasis_model *model, const stasis_message *messages,
                                  size_t stride, size_t count, uint32_t flags, char *text,
                                  size_t capacity, size_t *length, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(length, "length");
        require_flags(flags, STASIS_RENDER_REPLY);
        if (!model->model->chat) {
            fail(stasis::Status::unsupported, "the model has no chat template");
        }
        const std::vector<stasis::Message> turns = read_messages(messages, stride, count);
        write_text(model->model->chat->render(turns, (flags & STASIS_RENDER_REPLY) != 0), text,
                   capacity, length);
    });
}
