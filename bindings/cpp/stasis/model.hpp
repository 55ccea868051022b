// Stasis for C++20: models, their text, and texts as vectors. Included by stasis.hpp.
#pragma once

#include <filesystem>
#include <memory_resource>
#include <variant>

#include "stasis/options.hpp"
#include "stasis/sampling.hpp"
#include "stasis/threads.hpp"

namespace stasis {

using ModelInfo = stasis_model_info;
using ModelStats = stasis_model_stats;
using TokenInfo = stasis_token_info;
using EmbedInfo = stasis_embed_info;
using SessionMemory = stasis_session_memory;

// How a model is opened: stasis_model_options. An empty text means the default.
struct ModelOptions {
    std::uint32_t threads = 0;            // that compute, the caller's included; 0: one per core
    const Threads *thread_pool = nullptr; // in place of own threads; `threads` must then be 0
    std::string device = {};              // "cpu", "cuda", "cuda:1"
    std::string kernels = {};
    std::string profile = {}; // "contract", or "device"
    bool copy_weights = false;
    bool verify_weights = false;
    std::uint64_t kv_budget_bytes = 0;    // 0: no limit
    std::uint64_t state_budget_bytes = 0; // 0: 512 MiB
    std::string chat_template = {};       // recognised from the model's files
    std::string date = {};                // "2026-01-02"
    // The source of KV pages, copied weights and workspaces, used by any thread: it must be
    // thread-safe, and outlive the model and its sessions. What it throws counts as no memory.
    std::pmr::memory_resource *memory = nullptr;
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {};              // bytes of weights
};

struct Tokenize {
    bool bos = false;     // begin with the beginning-of-sequence token
    bool special = false; // markers in the text are special tokens; else plain text
};
struct Detokenize {
    bool special = false; // special tokens give their marker; else nothing
    bool middle = false;  // as in the middle of a text: keep a leading space
    bool piece = false;   // spell one token as the vocabulary does
};
// Whether a rendering ends with the prompt for the model's reply.
enum class ReplyPrompt : bool { No = false, Yes = true };

struct Message {
    std::string role; // "system", "user", "assistant", or what else the template knows
    std::string text;
};

enum class Pooling : std::uint32_t {
    Files = 0, // as the model's files say
    Last = STASIS_POOLING_LAST,
    Mean = STASIS_POOLING_MEAN,
};
// A text, or tokens as they are.
using EmbedInput = std::variant<std::string, std::vector<Token>>;
struct EmbedOptions {
    Pooling pooling = Pooling::Files;
    std::string prompt = {}; // the name of one of the model's; empty: the default one
    std::uint32_t chunk = 0;
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {};              // positions
};
// A vector for each input.
struct Vectors {
    std::size_t dimension = 0;
    std::vector<float> values = {}; // [size()][dimension]

    std::size_t size() const noexcept { return dimension == 0 ? 0 : values.size() / dimension; }
    std::span<const float> operator[](std::size_t index) const {
        return std::span(values).subspan(index * dimension, dimension);
    }
};

// What a model's files say of it under one key, as stasis_metadata says it.
struct Metadata {
    enum class Kind : std::uint32_t {
        Text = STASIS_METADATA_TEXT,
        Json = STASIS_METADATA_JSON,
        LeftOut = STASIS_METADATA_LEFT_OUT, // the value says what it is
    };
    std::string key;
    Kind kind = Kind::Text;
    std::string value;
};

// A model that is not open, and a session in it.
struct Estimate {
    stasis_estimate model;
    SessionMemory session;
};
// Says what opening a model would take, and a session of so many positions in it, from the headers
// of its files, in milliseconds.
Estimate estimate(const std::filesystem::path &path, const ModelOptions &options = {},
                  const SessionOptions &session = {}, std::uint64_t positions = 0);

// Files of a model that are not at a path, by their names: stasis_model_source. An exception of a
// function is thrown by the constructor that called it.
struct ModelFiles {
    // Returns the size of a file in bytes; nothing: there is none of this name.
    std::function<std::optional<std::uint64_t>(const std::string &name)> size;
    // Fills a part of the space, at least one byte, from an offset on, and returns how many.
    std::function<std::size_t(const std::string &name, std::uint64_t offset,
                              std::span<std::byte> space)>
        read;
};

// An open model. All functions are thread-safe.
class Model {
  public:
    // Opens a Hugging Face directory or a GGUF file.
    explicit Model(const std::filesystem::path &path, const ModelOptions &options = {});
    // Opens the GGUF file `name` of files that functions give; empty: those of a Hugging Face
    // directory. The weights are copied to memory.
    explicit Model(const ModelFiles &files, const std::string &name = {},
                   const ModelOptions &options = {});
    // Opens the GGUF file that a descriptor refers to; the descriptor may be closed afterwards.
    static Model of_descriptor(int descriptor, const ModelOptions &options = {});

    ModelInfo info() const;
    ModelStats stats() const;
    TokenInfo token(Token token) const;
    // Returns what a session takes when it has so many positions. Nothing is computed.
    SessionMemory session_memory(std::uint64_t positions, const SessionOptions &options = {}) const;
    // Error(NotFound): the files say nothing under this key.
    Metadata metadata(const std::string &key) const;
    std::vector<Metadata> all_metadata() const; // ascending by key
    // Returns the settings that the model's own files recommend.
    Sampling recommended_sampling() const;

    std::vector<Token> tokenize(std::string_view text, Tokenize how = {}) const;
    // Returns bytes: UTF-8 that may be incomplete where a character is split across tokens.
    std::string detokenize(std::span<const Token> tokens, Detokenize how = {}) const;
    std::string render(std::span<const Message> messages, ReplyPrompt reply) const;
    // Renders a conversation in JSON (stasis_chat.h) by the template in the model's own files.
    std::string render_chat(std::string_view conversation, ReplyPrompt reply) const;

    EmbedInfo embed_info() const;
    Vectors embed(std::span<const EmbedInput> inputs, const EmbedOptions &options = {}) const;

    // For calls of the C interface; null after a move.
    stasis_model *raw() const noexcept { return handle_.get(); }

  private:
    Model() = default;
    template <typename Open> void open(const ModelOptions &options, const Open &by);
    template <typename Info, typename Function> Info described(const Function &function) const {
        auto info = detail::sized<Info>();
        detail::call([&](stasis_error *error) { return function(raw(), &info, error); });
        return info;
    }

    detail::Handle<stasis_model, stasis_model_close> handle_;
};

namespace detail {

inline stasis_model_source raw_of(Lent<ModelFiles> &files) noexcept {
    auto raw = sized<stasis_model_source>();
    raw.user = &files;
    raw.size = [](void *user, const char *name) {
        auto &lent = *static_cast<Lent<ModelFiles> *>(user);
        std::int64_t size = -2; // it has thrown
        lent.call.run([&] {
            const std::optional<std::uint64_t> found = lent.function.size(name);
            size = found ? static_cast<std::int64_t>(*found) : -1;
        });
        return size;
    };
    raw.read = [](void *user, const char *name, std::uint64_t offset, void *data,
                  std::size_t size) {
        auto &lent = *static_cast<Lent<ModelFiles> *>(user);
        std::int64_t count = -2;
        lent.call.run([&] {
            count = static_cast<std::int64_t>(
                lent.function.read(name, offset, {static_cast<std::byte *>(data), size}));
        });
        return count;
    };
    return raw;
}

inline stasis_allocator allocator_of(std::pmr::memory_resource *memory) noexcept {
    auto raw = sized<stasis_allocator>();
    raw.user = memory;
    raw.allocate = [](void *user, std::size_t size, std::size_t alignment) -> void * {
        try {
            return static_cast<std::pmr::memory_resource *>(user)->allocate(size, alignment);
        } catch (...) { // on any thread: there is no caller to throw to
            return nullptr;
        }
    };
    raw.deallocate = [](void *user, void *place, std::size_t size, std::size_t alignment) {
        static_cast<std::pmr::memory_resource *>(user)->deallocate(place, size, alignment);
    };
    return raw;
}

struct ModelCall : CallWith<ModelOptions, stasis_model_options> {
    explicit ModelCall(const ModelOptions &options) : CallWith(options) {
        raw.threads = options.threads;
        raw.thread_pool = raw_of(options.thread_pool);
        raw.device = c_option(options.device, "device");
        raw.kernels = c_option(options.kernels, "kernels");
        raw.profile = c_option(options.profile, "profile");
        raw.copy_weights = options.copy_weights;
        raw.verify_weights = options.verify_weights;
        raw.kv_budget_bytes = options.kv_budget_bytes;
        raw.state_budget_bytes = options.state_budget_bytes;
        raw.chat_template = c_option(options.chat_template, "chat_template");
        raw.date = c_option(options.date, "date");
        raw.allocator = options.memory == nullptr ? nullptr : &allocator;
    }

    stasis_allocator allocator = allocator_of(given.memory);
};

inline Metadata metadata_of(const stasis_metadata &raw) {
    return {raw.key, static_cast<Metadata::Kind>(raw.kind), std::string(raw.value, raw.length)};
}

} // namespace detail

inline Estimate estimate(const std::filesystem::path &path, const ModelOptions &options,
                         const SessionOptions &session, std::uint64_t positions) {
    detail::ModelCall call(options);
    const stasis_session_options given = detail::raw_of(session);
    Estimate told{detail::sized<stasis_estimate>(), detail::sized<SessionMemory>()};
    call.check(stasis_model_estimate(detail::c_text(path.native(), "the path"), &call.raw, &given,
                                     positions, &told.model, &told.session, call.error()));
    return told;
}

// Opens the model by `by`, which gets the call and the place for the model.
template <typename Open> inline void Model::open(const ModelOptions &options, const Open &by) {
    detail::ModelCall call(options);
    stasis_model *raw = nullptr;
    const stasis_status status = by(call, &raw);
    handle_.reset(raw);
    call.check(status);
}

inline Model::Model(const std::filesystem::path &path, const ModelOptions &options) {
    open(options, [&](auto &call, stasis_model **raw) {
        return stasis_model_open(detail::c_text(path.native(), "the path"), &call.raw, raw,
                                 call.error());
    });
}

inline Model::Model(const ModelFiles &files, const std::string &name, const ModelOptions &options) {
    open(options, [&](auto &call, stasis_model **raw) {
        detail::Lent<ModelFiles> lent{call, files};
        const stasis_model_source source = detail::raw_of(lent);
        return stasis_model_open_source(&source, detail::c_option(name, "the name"), &call.raw, raw,
                                        call.error());
    });
}

inline Model Model::of_descriptor(int descriptor, const ModelOptions &options) {
    Model model;
    model.open(options, [&](auto &call, stasis_model **raw) {
        return stasis_model_open_descriptor(descriptor, &call.raw, raw, call.error());
    });
    return model;
}

inline ModelInfo Model::info() const {
    return described<ModelInfo>(stasis_model_get_info);
}
inline ModelStats Model::stats() const {
    return described<ModelStats>(stasis_model_get_stats);
}
inline EmbedInfo Model::embed_info() const {
    return described<EmbedInfo>(stasis_model_get_embed_info);
}

inline TokenInfo Model::token(Token token) const {
    auto info = detail::sized<TokenInfo>();
    detail::call(
        [&](stasis_error *error) { return stasis_model_get_token(raw(), token, &info, error); });
    return info;
}

inline SessionMemory Model::session_memory(std::uint64_t positions,
                                           const SessionOptions &options) const {
    const stasis_session_options given = detail::raw_of(options);
    return described<SessionMemory>(
        [&](const stasis_model *model, SessionMemory *memory, stasis_error *error) {
            return stasis_model_session_memory(model, &given, positions, memory, error);
        });
}

inline Metadata Model::metadata(const std::string &key) const {
    const char *name = detail::c_text(key, "the key");
    return detail::metadata_of(described<stasis_metadata>(
        [&](const stasis_model *model, stasis_metadata *metadata, stasis_error *error) {
            return stasis_model_get_metadata(model, name, metadata, error);
        }));
}

inline std::vector<Metadata> Model::all_metadata() const {
    std::vector<Metadata> all;
    auto raw_metadata = detail::sized<stasis_metadata>();
    while (stasis_model_get_metadata_at(raw(), all.size(), &raw_metadata, nullptr) == STASIS_OK) {
        all.push_back(detail::metadata_of(raw_metadata));
    }
    return all;
}

inline Sampling Model::recommended_sampling() const {
    return detail::sampling_of(described<stasis_sampling>(stasis_model_recommended_sampling));
}

inline std::vector<Token> Model::tokenize(std::string_view text, Tokenize how) const {
    const std::uint32_t flags =
        (how.bos ? STASIS_TOKENIZE_BOS : 0) | (how.special ? STASIS_TOKENIZE_SPECIAL : 0);
    return detail::filled<std::vector<Token>>(text.size() + 8, [&](auto... place) {
        return stasis_model_tokenize(raw(), text.data(), text.size(), flags, place...);
    });
}

inline std::string Model::detokenize(std::span<const Token> tokens, Detokenize how) const {
    const std::uint32_t flags = (how.special ? STASIS_DETOKENIZE_SPECIAL : 0) |
                                (how.middle ? STASIS_DETOKENIZE_MIDDLE : 0) |
                                (how.piece ? STASIS_DETOKENIZE_PIECE : 0);
    return detail::filled<std::string>(8 * tokens.size(), [&](auto... place) {
        return stasis_model_detokenize(raw(), tokens.data(), tokens.size(), flags, place...);
    });
}

inline std::string Model::render(std::span<const Message> messages, ReplyPrompt reply) const {
    std::vector<stasis_message> given(messages.size(), detail::sized<stasis_message>());
    std::size_t guess = 64;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        given[i].role = detail::c_text(messages[i].role, "the role");
        given[i].text = messages[i].text.data();
        given[i].length = messages[i].text.size();
        guess += messages[i].text.size() + 64;
    }
    const std::uint32_t flags = reply == ReplyPrompt::Yes ? STASIS_RENDER_REPLY : 0;
    return detail::filled<std::string>(guess, [&](auto... place) {
        return stasis_model_render(raw(), given.data(), sizeof(stasis_message), given.size(), flags,
                                   place...);
    });
}

inline std::string Model::render_chat(std::string_view conversation, ReplyPrompt reply) const {
    const std::uint32_t flags = reply == ReplyPrompt::Yes ? STASIS_CHAT_REPLY : 0;
    return detail::filled<std::string>(2 * conversation.size(), [&](auto... place) {
        return stasis_model_render_chat(raw(), conversation.data(), conversation.size(), flags,
                                        place...);
    });
}

inline Vectors Model::embed(std::span<const EmbedInput> inputs, const EmbedOptions &options) const {
    std::vector<stasis_embed_input> given(inputs.size(), detail::sized<stasis_embed_input>());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (const auto *text = std::get_if<std::string>(&inputs[i])) {
            given[i].text = text->data();
            given[i].length = text->size();
        } else {
            given[i].tokens = std::get<std::vector<Token>>(inputs[i]).data();
            given[i].token_count = std::get<std::vector<Token>>(inputs[i]).size();
        }
    }
    detail::CallWith<EmbedOptions, stasis_embed_options> call(options);
    call.raw.pooling = static_cast<std::uint32_t>(options.pooling);
    call.raw.prompt = detail::c_option(options.prompt, "the prompt");
    call.raw.chunk = options.chunk;
    Vectors vectors{.dimension = embed_info().dimension};
    vectors.values.resize(inputs.size() * vectors.dimension);
    std::size_t count = 0;
    call.check(stasis_model_embed(raw(), given.data(), sizeof(stasis_embed_input), given.size(),
                                  &call.raw, vectors.values.data(), vectors.values.size(), &count,
                                  call.error()));
    return vectors;
}

} // namespace stasis
