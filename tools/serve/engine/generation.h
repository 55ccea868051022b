// A request for replies, from its session to its last byte. It is prepared and finished by workers,
// and hears of its tokens on the model's computing thread. Must not know sockets.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/api/reply.h"
#include "tools/serve/engine/engine.h"
#include "tools/serve/http/server.h"

namespace serve {

inline constexpr char kTimeIsOver[] = "the time that a reply may take is over";

class Generation : public std::enable_shared_from_this<Generation>, public Pinged, public Timed {
  public:
    Generation(Engine &engine, std::shared_ptr<http::Exchange> exchange,
               api::GenerationRequest request, std::string tenant);
    ~Generation() override;

    // Refuses the request or begins it; returns at once. The reply goes to the exchange.
    void start();
    // Ends the replies that run, which keep what they have.
    void cancel();
    void ping() override;
    void expire() override;

  private:
    // One of the replies.
    struct Choice : Listener {
        Generation *of = nullptr;
        uint32_t index = 0;
        command::Session session;
        std::shared_ptr<Generation> self;         // while the scheduler has the session
        uint64_t begin = 0;                       // positions that the session had
        uint64_t reused = 0;                      // stasis_session_info::tokens_reused then
        uint64_t drawn = 0;                       // by earlier tries
        uint64_t position_before = 0;             // at which the last one began
        command::TextStream stream;               // of all tries: no wait shows in what it gives
        bool stopped = false;                     // by one of its stop strings
        std::string text;                         // what it has given
        std::vector<size_t> ends;                 // of each token in it
        std::vector<api::Likelihood> likelihoods; // of each token; the reply's are its content's
        size_t likelihoods_seen = 0;              // behind the last one that the reply has
        std::optional<uint64_t> call_end;         // positions up to the one call that it may have
        bool later_calls = false;                 // it has more, which came with that one
        std::string shown_stop;                   // the stop string that ended it
        api::Reply reply;
        uint32_t stop_reason = STASIS_STOP_LENGTH;
        stasis_status status = STASIS_OK;
        std::string message;
        void hear(const stasis_scheduler_event &event) override;
    };

    void prepare();
    void require_wanted() const;
    void find_session();
    void find_previous();
    void find_kept();
    std::optional<Sessions::Found>
    spared(const std::function<std::optional<Sessions::Found>()> &find);
    std::optional<Sessions::Found> find_named(const std::string &name);
    void find_by_turns();
    void find_by_tokens();
    void write_conversation();
    void check_tools() const;
    void force_calls();
    void check_size() const;
    struct Lacking {
        uint64_t position = 0;
        std::vector<stasis_token> tokens;
    };
    Lacking lacking_tokens(const stasis_session *session) const;
    std::vector<stasis_token> plain_prompt() const;
    void begin_choices();
    void begin_reply();
    void configure(stasis_session *session, uint32_t choice) const;
    command::TextStream make_stream() const;
    static uint64_t position_of(const Choice &choice);
    void submit(Choice &choice);
    void go(Choice &choice);
    Line::Go going(Choice &choice);
    void align(stasis_session *session);
    void token(Choice &choice, const stasis_scheduler_event &event);
    void take_text(Choice &choice, stasis_token token) const;
    void finish_text(Choice &choice) const;
    void read_reply(Choice &choice, bool complete) const;
    void add_likelihoods(Choice &choice) const;
    bool has_single_call() const;
    bool ends_with_call() const;
    void end_at_call(Choice &choice, uint64_t position);
    void read_single_call(Choice &choice);
    uint64_t thought_tokens(const Choice &choice) const;
    void add_likelihood(Choice &choice, const stasis_scheduler_event &event) const;
    void ended(Choice &choice, const stasis_scheduler_event &event);
    void finish(Choice &choice);
    void conclude(Choice &choice);
    void leave();
    bool try_again(Choice &choice);
    api::Outcome outcome_of(const Choice &choice) const;
    api::Outcome keep(Choice &choice);
    void store(Choice &choice, const api::Outcome &outcome);
    void add_to_kept(const api::Json &conversation, const api::Json &output, const std::string &id);
    void name_beginnings(const std::string &id);
    void refuse(const api::Refused &refused);
    void fail(const api::Refused &refused);
    void give_up(size_t replies);
    void send(const std::string &piece);
    bool is_conversation() const { return !request_.conversation.is_null(); }
    std::string turn_name(const api::Json &conversation) const;

    Engine &engine_;
    const std::shared_ptr<http::Exchange> exchange_;
    api::GenerationRequest request_;
    const std::string tenant_;
    const command::Cancel cancel_;
    ServedModel *model_ = nullptr;
    std::string conversation_; // as the library reads it
    std::string tools_;        // a conversation of its tools alone, by which calls are read; or ""
    command::Session first_;   // what all choices begin with
    Kept kept_;                // of a request with a conversation of /v1/conversations
    KeptConversations::Claim claim_;
    std::string before_;                  // the id of the session that it goes on from; "": none
    std::vector<stasis_token> prompt_;    // without a conversation: what the session lacks
    std::vector<std::string> beginnings_; // names of the prompt's; none if a session was found
    bool store_failed_ = false;           // nothing more is looked for in it
    uint64_t prompt_tokens_ = 0;
    api::Start start_;
    std::unique_ptr<api::Writer> writer_;
    std::vector<std::unique_ptr<Choice>> choices_;
    std::atomic<bool> entered_{false}; // its places are taken
    bool begun_ = false;               // the writer has begun
    std::atomic<bool> gone_{false};    // the client has left
    std::atomic<bool> late_{false};    // its time is over
    std::mutex mutex_;                 // of all below, and of the writer
    size_t open_ = 0;                  // choices that have not ended
    bool failed_ = false;
    bool sent_ = false; // something, since the last ping
};

} // namespace serve
