// Stasis for C++20: sessions, timelines of tokens that are appended to, generated into, forked,
// rewound and saved. Included by stasis.hpp.
#pragma once

#include <istream>
#include <ostream>

#include "stasis/generation.hpp"
#include "stasis/model.hpp"
#include "stasis/snapshot.hpp"

namespace stasis {

using SessionInfo = stasis_session_info;

// How a drafter proposes tokens: stasis_draft_options. It changes speed and nothing else.
struct DraftOptions {
    std::uint64_t tokens_min = 0;
    std::uint64_t tokens_max = 0;
};

// Keys and values of a layer as bf16, each [positions][KV heads][their size].
struct KeysValues {
    std::vector<std::uint16_t> keys, values;
};

// What a log lacks of a conversation, and the position that it has otherwise or not at all, where
// the tokens follow.
struct ChatTokens {
    std::uint64_t position = 0;
    std::vector<Token> tokens = {};
};

// A timeline of tokens. A call that fails or is cancelled leaves it as it was.
class Session {
  public:
    // Creates an empty session.
    explicit Session(const Model &model, const SessionOptions &options = {}) {
        const stasis_session_options given = detail::raw_of(options);
        make(nullptr, [&](stasis_session **to, stasis_error *error) {
            return stasis_session_create(model.raw(), &given, to, error);
        });
    }
    // Returns a session that continues a saved one with the same bits and settings: from a file, or
    // from a stream or a source, of which no more is read than the snapshot.
    static Session load(const Model &model, const std::filesystem::path &path,
                        const LoadOptions &options = {});
    static Session read(const Model &model, const Source &source, const LoadOptions &options = {});
    static Session read(const Model &model, std::istream &from, const LoadOptions &options = {}) {
        return read(model, detail::source_of(from), options);
    }

    Session(Session &&) noexcept = default;
    Session &operator=(Session &&other) noexcept {
        Session taken(std::move(other));
        std::swap(listener_, taken.listener_);
        std::swap(handle_, taken.handle_);
        return *this;
    }
    // Creates a second session with the same state and settings, but without a trace. Copies no
    // page.
    Session fork() const {
        Session child;
        child.make(listener_, [&](stasis_session **to, stasis_error *error) {
            return stasis_session_fork(raw(), to, error);
        });
        return child;
    }

    // ---- What it holds ----
    SessionInfo info() const {
        auto info = detail::sized<SessionInfo>();
        call([&](stasis_error *error) { return stasis_session_get_info(raw(), &info, error); });
        return info;
    }
    // Returns the number of tokens in the log; the next one takes this position.
    std::uint64_t position() const { return info().position; }
    // Returns SHA-256 over the state: sessions with equal digests compute the same from here on.
    Digest digest() const {
        stasis_digest digest{};
        call([&](stasis_error *error) { return stasis_session_digest(raw(), &digest, error); });
        return digest;
    }
    // Both return what stands from `begin` to the end.
    std::vector<Token> tokens(std::uint64_t begin = 0) const {
        return filled<std::vector<Token>>(256, [&](Token *data, auto... place) {
            return stasis_session_tokens(raw(), begin, data, nullptr, place...);
        });
    }
    std::vector<TokenSource> sources(std::uint64_t begin = 0) const {
        return detail::sources_of(
            filled<std::vector<std::uint8_t>>(256, [&](std::uint8_t *data, auto... place) {
                return stasis_session_tokens(raw(), begin, nullptr, data, place...);
            }));
    }
    // Returns the text of positions [begin, end), without special tokens.
    std::string text(std::uint64_t begin, std::uint64_t end) const {
        return filled<std::string>(
            1024, [&](auto... place) { return stasis_session_text(raw(), begin, end, place...); });
    }
    std::string text() const { return text(0, position()); }
    // Returns the turns of the log from the one that position `begin` is in.
    std::vector<Turn> turns(std::uint64_t begin = 0) const {
        return filled<std::vector<Turn>>(16, [&](Turn *turns, auto... place) {
            return stasis_session_turns(raw(), begin, turns, sizeof *turns, place...);
        });
    }

    // Bytes of the host's own by name, saved with the session. remove_data and data throw
    // Error(NotFound) if the name is not there.
    void set_data(const std::string &name, std::span<const std::byte> bytes) {
        const std::byte nothing{}; // whose address says that there is a value
        set_data(name, bytes.empty() ? &nothing : bytes.data(), bytes.size());
    }
    void remove_data(const std::string &name) { set_data(name, nullptr, 0); }
    std::vector<std::byte> data(const std::string &name) const {
        const char *own = detail::c_text(name, "the name");
        return filled<std::vector<std::byte>>(
            256, [&](auto... place) { return stasis_session_get_data(raw(), own, place...); });
    }
    std::vector<DataEntry> list_data() const {
        return filled<std::vector<DataEntry>>(8, [&](DataEntry *entries, auto... place) {
            return stasis_session_list_data(raw(), entries, sizeof *entries, place...);
        });
    }

    KeysValues kv(std::uint32_t layer, std::uint64_t begin, std::uint64_t end) const {
        KeysValues made;
        made.keys = filled<std::vector<std::uint16_t>>(
            0, [&](std::uint16_t *keys, std::size_t capacity, auto... place) {
                made.values.resize(capacity);
                return stasis_session_kv(raw(), layer, begin, end, keys, made.values.data(),
                                         capacity, place...);
            });
        return made;
    }
    // Returns the attention that each position has gathered: [position], or [layers][heads]
    // [position].
    std::vector<double> attention(bool by_head = false) const {
        return filled<std::vector<double>>(0, [&](auto... place) {
            return stasis_session_attention(raw(), by_head ? STASIS_ATTENTION_BY_HEAD : 0,
                                            place...);
        });
    }

    // ---- What makes it grow ----
    // Appends tokens: all of them or, on any failure, none.
    void append(std::span<const Token> tokens, const RunOptions &options = {}) {
        run(options, [&](const stasis_run_options *given, stasis_error *error) {
            return stasis_session_append(raw(), tokens.data(), tokens.size(), given, error);
        });
    }
    // Renders one turn through the chat template and appends it.
    void append_message(const std::string &role, std::string_view text,
                        ReplyPrompt reply = ReplyPrompt::No, const RunOptions &options = {}) {
        const char *name = detail::c_text(role, "the role");
        const std::uint32_t flags = reply == ReplyPrompt::Yes ? STASIS_MESSAGE_REPLY : 0;
        run(options, [&](const stasis_run_options *given, stasis_error *error) {
            return stasis_session_append_message(raw(), name, text.data(), text.size(), flags,
                                                 given, error);
        });
    }
    // Appends what the log lacks of a conversation in JSON (stasis_chat.h). Where the log differs
    // from its rendering nothing is appended, and the first position that differs is returned:
    // rewind to it, and append again. None: it is appended.
    std::optional<std::uint64_t> append_chat(std::string_view conversation, ReplyPrompt reply,
                                             const RunOptions &options = {});
    // Returns what append_chat appends, after a rewind where that is needed, and appends nothing:
    // to count tokens, or to see how much of the log stays.
    ChatTokens chat_tokens(std::string_view conversation, ReplyPrompt reply) const {
        ChatTokens lacking;
        const std::uint32_t flags = reply == ReplyPrompt::Yes ? STASIS_CHAT_REPLY : 0;
        lacking.tokens = filled<std::vector<Token>>(256, [&](auto... place) {
            return stasis_session_chat_tokens(raw(), conversation.data(), conversation.size(),
                                              flags, &lacking.position, place...);
        });
        return lacking;
    }
    // Returns what follows the last generation prompt as a message in JSON: content, thoughts and
    // tool calls. `conversation` (may be empty) tells the tools' types; `complete`: the reply will
    // not go on.
    std::string reply(std::string_view conversation = {}, bool complete = false) const {
        const char *data = conversation.empty() ? nullptr : conversation.data();
        return filled<std::string>(1024, [&](auto... place) {
            return stasis_session_reply(raw(), data, conversation.size(),
                                        complete ? STASIS_REPLY_COMPLETE : 0, place...);
        });
    }
    // Says a turn of the user's, and returns the reply, of which nothing is drawn yet.
    Reply say(std::string_view text, const GenerateOptions &options = {});
    // Returns tokens that are drawn and appended as they are asked for.
    Generation generate(const GenerateOptions &options = {}) {
        return Generation(raw(), listener_, options);
    }
    // Draws the next token and appends it, or does neither.
    Token decode() {
        Token token = 0;
        call([&](stasis_error *error) { return stasis_session_decode(raw(), &token, error); });
        return token;
    }

    // ---- What comes next ----
    // Returns the logits of the next token, one for each of the vocabulary.
    std::vector<float> logits() const {
        return filled<std::vector<float>>(
            0, [&](auto... place) { return stasis_session_logits(raw(), place...); });
    }
    // Returns the `count` most likely next tokens, best first.
    std::vector<Candidate> top(std::size_t count) const;
    // Returns the natural log-probability of each token of a continuation; the session is
    // unchanged.
    std::vector<double> score(std::span<const Token> tokens, const RunOptions &options = {}) {
        std::vector<double> scores(tokens.size());
        run(options, [&](const stasis_run_options *given, stasis_error *error) {
            return stasis_session_score(raw(), tokens.data(), tokens.size(), scores.data(), given,
                                        error);
        });
        return scores;
    }
    // Returns the token that would be drawn, and changes nothing.
    Token sample() const {
        Token token = 0;
        call([&](stasis_error *error) { return stasis_session_sample(raw(), &token, error); });
        return token;
    }
    // Sets how tokens are drawn from now on.
    void set_sampling(const Sampling &sampling) {
        const detail::RawSampling given(sampling);
        call([&](stasis_error *error) {
            return stasis_session_set_sampling(raw(), &given.raw, error);
        });
    }
    // Sets which texts replies may be from now on. `cancel` (may be null) ends its compilation.
    void set_constraint(const Constraint &constraint, const Cancel *cancel = nullptr) {
        const char *text = constraint.text.empty() ? nullptr : constraint.text.data();
        call([&](stasis_error *error) {
            return stasis_session_set_constraint(raw(), constraint.kind, text,
                                                 constraint.text.size(), detail::raw_of(cancel),
                                                 error);
        });
    }
    // Sets which tokens the next draw may give: token t, if bit t % 32 of bits[t / 32] is set.
    // Empty: all.
    void set_allowed(std::span<const std::uint32_t> bits) {
        const std::uint32_t *data = bits.empty() ? nullptr : bits.data();
        call([&](stasis_error *error) {
            return stasis_session_set_allowed(raw(), data, bits.size(), error);
        });
    }
    // Sets the drafter of generations: what followed earlier in the log; a smaller model, or the
    // session's own with an MTP head; or none.
    void draft_by_lookup(DraftOptions options = {}) { set_draft(nullptr, &options); }
    void draft_by_model(const Model &draft, DraftOptions options = {});
    void draft_off() { set_draft(nullptr, nullptr); }

    // ---- What takes away ----
    // Goes back: tokens from `position` on are gone. Below the floor of info() only with
    // `recompute`, which computes local layers again.
    void rewind(std::uint64_t position, bool recompute = false, const RunOptions &options = {}) {
        run(options, [&](const stasis_run_options *given, stasis_error *error) {
            return stasis_session_rewind(raw(), position, recompute ? STASIS_REWIND_RECOMPUTE : 0,
                                         given, error);
        });
    }
    // Hides positions [begin, end) from every later token.
    void evict(std::uint64_t begin, std::uint64_t end) {
        call([&](stasis_error *error) { return stasis_session_evict(raw(), begin, end, error); });
    }

    // ---- Files, streams, traces ----
    void save(const std::filesystem::path &path, const SaveOptions &options = {});
    void write(const Sink &sink, const SaveOptions &options = {});
    void write(std::ostream &to, const SaveOptions &options = {}) {
        write(detail::sink_of(to), options);
    }
    // Returns the present state in memory, to be inspected, verified and compared.
    Snapshot snapshot();
    // Starts a trace in place of an earlier one; none: ends it.
    void set_trace(std::optional<Trace> trace);
    // Returns events that have waited, at most so many, the oldest first.
    Traced take_trace(std::size_t most);

    // For calls of the C interface; null after a move.
    stasis_session *raw() const noexcept { return handle_.get(); }
    // Throws what a trace's listener has thrown in a call that was not this object's.
    void rethrow_trace() const {
        if (listener_) {
            listener_->rethrow();
        }
    }

  private:
    friend class Store;
    Session() = default;

    // Takes over what `function` makes. Throws what it met, or what a listener threw.
    template <typename Function>
    void make(const std::shared_ptr<detail::Listener> &heard, const Function &function) {
        detail::Call made;
        make(made, heard, function);
    }
    template <typename Function>
    void make(detail::Call &made, const std::shared_ptr<detail::Listener> &heard,
              const Function &function) {
        stasis_session *raw = nullptr;
        const stasis_status status = function(&raw, made.error());
        handle_.reset(raw);
        detail::check(heard, made, status);
    }
    template <typename Function> void call(const Function &function) const {
        detail::Call made;
        detail::check(listener_, made, function(made.error()));
    }
    template <typename Function> void run(const RunOptions &options, const Function &function) {
        detail::RunCall made(options);
        detail::check(listener_, made, function(&made.raw, made.error()));
    }
    template <typename Buffer, typename Function>
    Buffer filled(std::size_t guess, const Function &function) const {
        Buffer buffer = detail::filled<Buffer>(guess, function);
        rethrow_trace();
        return buffer;
    }
    void set_draft(stasis_model *draft, const DraftOptions *options);
    void set_data(const std::string &name, const std::byte *bytes, std::size_t length) {
        const char *own = detail::c_text(name, "the name");
        call([&](stasis_error *error) {
            return stasis_session_set_data(raw(), own, bytes, length, error);
        });
    }

    std::shared_ptr<detail::Listener> listener_; // null: no trace
    detail::Handle<stasis_session, stasis_session_free> handle_;
};

inline Session Session::load(const Model &model, const std::filesystem::path &path,
                             const LoadOptions &options) {
    detail::LoadCall call(options);
    const char *name = detail::c_text(path.native(), "the path");
    Session made;
    made.listener_ = call.listener;
    made.make(call, call.listener, [&](stasis_session **to, stasis_error *error) {
        return stasis_session_load(model.raw(), name, &call.raw, to, error);
    });
    return made;
}

inline Session Session::read(const Model &model, const Source &source, const LoadOptions &options) {
    detail::LoadCall call(options);
    detail::Lent<Source> lent{call, source};
    const stasis_source given = detail::raw_of(lent);
    Session made;
    made.listener_ = call.listener;
    made.make(call, call.listener, [&](stasis_session **to, stasis_error *error) {
        return stasis_session_read(model.raw(), &given, &call.raw, to, error);
    });
    return made;
}

inline std::optional<std::uint64_t>
Session::append_chat(std::string_view conversation, ReplyPrompt reply, const RunOptions &options) {
    detail::RunCall call(options);
    std::uint64_t position = 0;
    const std::uint32_t flags = reply == ReplyPrompt::Yes ? STASIS_CHAT_REPLY : 0;
    const stasis_status status = stasis_session_append_chat(
        raw(), conversation.data(), conversation.size(), flags, &position, &call.raw, call.error());
    const bool differs = status == STASIS_CONFLICT;
    detail::check(listener_, call, differs ? STASIS_OK : status);
    return differs ? std::optional(position) : std::nullopt;
}

inline Reply Session::say(std::string_view text, const GenerateOptions &options) {
    {
        const detail::RawGenerate checked(options); // before the turn is in the log
        stasis_generation *trial = nullptr;
        detail::Call call;
        const stasis_status status =
            stasis_generation_begin(raw(), &checked.raw, &trial, call.error());
        stasis_generation_end(trial);
        call.check(status == STASIS_NOT_FOUND ? STASIS_OK : status); // an empty session
    }
    const auto began = std::chrono::steady_clock::now();
    append_message("user", text, ReplyPrompt::Yes,
                   {.cancel = options.cancel, .timeout = options.timeout});
    GenerateOptions rest = options;
    if (rest.timeout.count() > 0) { // one time for both
        const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::steady_clock::now() - began);
        rest.timeout = std::max(std::chrono::milliseconds(1), rest.timeout - took);
    }
    return Reply(generate(rest));
}

inline std::vector<Candidate> Session::top(std::size_t count) const {
    std::vector<Token> tokens(count);
    std::vector<float> likely(count);
    call([&](stasis_error *error) {
        return stasis_session_top(raw(), count, tokens.data(), likely.data(), error);
    });
    std::vector<Candidate> best;
    for (std::size_t i = 0; i < count; ++i) {
        best.push_back({tokens[i], likely[i]});
    }
    return best;
}

inline void Session::draft_by_model(const Model &draft, DraftOptions options) {
    if (draft.raw() == nullptr) { // which would stand for none
        throw Error(Status::InvalidArgument, "draft: the model was moved from");
    }
    set_draft(draft.raw(), &options);
}

inline void Session::set_draft(stasis_model *draft, const DraftOptions *options) {
    auto given = detail::sized<stasis_draft_options>();
    if (options != nullptr) {
        given.tokens_min = options->tokens_min;
        given.tokens_max = options->tokens_max;
    }
    call([&](stasis_error *error) {
        return stasis_session_set_draft(raw(), draft, options == nullptr ? nullptr : &given, error);
    });
}

inline void Session::save(const std::filesystem::path &path, const SaveOptions &options) {
    detail::SaveCall call(options);
    const char *name = detail::c_text(path.native(), "the path");
    detail::check(listener_, call, stasis_session_save(raw(), name, &call.raw, call.error()));
}

inline void Session::write(const Sink &sink, const SaveOptions &options) {
    detail::SaveCall call(options);
    detail::Lent<Sink> lent{call, sink};
    const stasis_sink given = detail::raw_of(lent);
    detail::check(listener_, call, stasis_session_write(raw(), &given, &call.raw, call.error()));
}

inline Snapshot Session::snapshot() {
    std::vector<std::byte> bytes;
    write([&](std::span<const std::byte> more) {
        bytes.insert(bytes.end(), more.begin(), more.end());
    });
    std::span<const std::byte> rest(bytes);
    return Snapshot::read([&](std::span<std::byte> space) {
        const std::size_t count = std::min(space.size(), rest.size());
        std::copy_n(rest.begin(), count, space.begin());
        rest = rest.subspan(count);
        return count;
    });
}

inline void Session::set_trace(std::optional<Trace> trace) {
    std::shared_ptr<detail::Listener> listener;
    stasis_trace_options given{};
    if (trace) {
        listener = std::make_shared<detail::Listener>(std::move(*trace));
        given = listener->raw();
    }
    detail::call([&](stasis_error *error) {
        return stasis_session_set_trace(raw(), listener ? &given : nullptr, error);
    });
    listener_ = std::move(listener);
    rethrow_trace();
}

inline Traced Session::take_trace(std::size_t most) {
    Traced taken{.events = std::vector<TraceEvent>(most, detail::sized<TraceEvent>())};
    std::size_t count = 0;
    call([&](stasis_error *error) {
        return stasis_session_take_trace(raw(), taken.events.data(), sizeof(TraceEvent), most,
                                         &count, &taken.lost, error);
    });
    taken.events.resize(count);
    return taken;
}

} // namespace stasis
