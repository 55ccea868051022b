// Walking a token log; see walk.h. The settings of each draw are read from the file's elements.
#include "tools/cli/replay/walk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tools/cli/constraint.h"
#include "tools/cli/generation.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/stored_sampling.h"
#include "tools/cli/terminal.h"

namespace command::replay {
namespace {

constexpr uint32_t kConfig = 6, kLogits = 9, kSpans = 12; // elements

std::string words_of(const stasis_model *model, const std::vector<stasis_token> &tokens) {
    const stasis_digest none{}, tokenizer = model_info(model).tokenizer;
    return std::memcmp(&tokenizer, &none, sizeof none) != 0
               ? detokenize(model, tokens, STASIS_DETOKENIZE_SPECIAL | STASIS_DETOKENIZE_MIDDLE)
               : join_tokens(tokens);
}

// A session that appends the log, with the progress of the whole walk.
class Walker {
  public:
    // `capacity` is the file's, on which the factors of a long RoPE depend.
    Walker(stasis_model *model, uint64_t capacity, std::vector<stasis_token> log,
           uint64_t tokens_max, stasis_cancel *cancel)
        : model_(model),
          session_(create_session(model, STASIS_DOMAIN_COMMON,
                                  std::min<uint64_t>(capacity, model_info(model).context))),
          log_(std::move(log)), tokens_max_(tokens_max), cancel_(cancel), progress_("replaying") {}

    void append(uint64_t begin, uint64_t end) {
        stasis_run_options options;
        stasis_run_options_init(&options, sizeof options);
        options.cancel = cancel_;
        stasis_error error{};
        check(stasis_session_append(session_.get(), log_.data() + begin, end - begin, &options,
                                    &error),
              error, "replaying");
        Progress::report(&progress_, end, log_.size());
    }

    // Draws the token at the session's position again, records a difference from the log, and
    // appends the log's. Under a constraint that is a token drawn, which its text goes on with.
    void draw(uint64_t position, bool constrained, Walk &walk) {
        stasis_token drawn = 0;
        stasis_error error{};
        const stasis_status status = stasis_session_sample(session_.get(), &drawn, &error);
        const stasis_token recorded = log_[position];
        if (status == STASIS_NO_TOKEN) { // after what its constraint does not allow
            walk.otherwise.push_back(
                {position, recorded, recorded, words_of(model_, {recorded}), "no token"});
            append(position, position + 1);
            return;
        }
        check(status, error, "replaying");
        if (drawn == recorded && constrained) {
            check(stasis_session_decode(session_.get(), &drawn, &error), error, "replaying");
            return;
        }
        if (drawn == recorded) {
            append(position, position + 1);
            return;
        }
        if (walk.otherwise.empty()) {
            say_instead(position, walk);
        }
        walk.otherwise.push_back(
            {position, recorded, drawn, words_of(model_, {recorded}), words_of(model_, {drawn})});
        append(position, position + 1);
    }

    const stasis_session *session() const { return session_.get(); }
    stasis_session *session() { return session_.get(); }

  private:
    // Generates from a fork, so that the walk can continue with the recorded tokens.
    void say_instead(uint64_t position, Walk &walk) {
        stasis_session *child = nullptr;
        stasis_error error{};
        check(stasis_session_fork(session_.get(), &child, &error), error, "replaying");
        const Session fork(child);
        GenerationChoice choice;
        choice.tokens_max = tokens_max_;
        walk.instead.tokens = generate(child, choice, cancel_, false).tokens;
        const auto from = log_.begin() + static_cast<ptrdiff_t>(position);
        walk.recorded.tokens.assign(from, from + static_cast<ptrdiff_t>(std::min<uint64_t>(
                                                     tokens_max_, log_.size() - position)));
        for (Words *words : {&walk.instead, &walk.recorded}) {
            words->text = words_of(model_, words->tokens);
        }
    }

    stasis_model *model_;
    Session session_;
    std::vector<stasis_token> log_;
    uint64_t tokens_max_;
    stasis_cancel *cancel_;
    Progress progress_;
};

Logits compare_logits(const stasis_session *session, const stasis_model *model, const Json &top) {
    const std::vector<float> row = fetch<float>(
        [&](float *logits, size_t capacity, size_t *count, stasis_error *error) {
            return stasis_session_logits(session, logits, capacity, count, error);
        },
        "logits");
    Logits logits;
    logits.compared = top.size();
    for (const Json &each : top) {
        const float stored = each["logit"].is_null() ? std::numeric_limits<float>::quiet_NaN()
                                                     : each["logit"].get<float>();
        const float computed = row.at(each["token"].get<size_t>());
        if (std::bit_cast<uint32_t>(stored) != std::bit_cast<uint32_t>(computed)) {
            ++logits.differ;
            logits.largest = std::max(logits.largest, std::abs(double{stored} - double{computed}));
        }
    }
    const auto best = [&](stasis_token token, float logit) {
        return Best{token, logit, words_of(model, {token})};
    };

    const auto at = std::max_element(row.begin(), row.end()) - row.begin();
    logits.computed = best(static_cast<stasis_token>(at), row[static_cast<size_t>(at)]);
    if (!top.empty() && !top[0]["logit"].is_null()) {
        logits.stored = best(top[0]["token"], top[0]["logit"]);
    }
    return logits;
}

} // namespace

Walk walk(const stasis_snapshot *snapshot, stasis_model *model, bool redraw, uint64_t tokens_max,
          stasis_cancel *cancel) {
    const Json config = snapshot_element(snapshot, kConfig);
    Walker walker(
        model, config["capacity"].get<uint64_t>(),
        fetch<stasis_token>(
            [&](stasis_token *tokens, size_t capacity, size_t *count, stasis_error *error) {
                return stasis_snapshot_tokens(snapshot, 0, tokens, nullptr, capacity, count, error);
            },
            "tokens"),
        tokens_max, cancel);
    const Json &samplings = config["samplings"];
    StoredSets sets(samplings, model_info(model).vocabulary);
    const Json spans = snapshot_element(snapshot, kSpans)["spans"];

    Walk walk;
    // Spans are appended as they are, except those whose tokens are drawn again one by one.
    for (const Json &span : spans) {
        const uint64_t begin = span["begin"], end = span["end"];
        if (!redraw || span["sampling"].is_null()) {
            walker.append(begin, end);
            continue;
        }
        const size_t index = span["sampling"];
        const Json &settings = samplings.at(index);
        read_sampling(settings).apply(walker.session());
        for (uint64_t position = begin; position < end; ++position) {
            apply_stored_constraint(walker.session(), config, index, sets);
            if (position > 0) { // before the first token there are no logits
                walker.draw(position, is_constrained(settings), walk);
            } else {
                walker.append(position, position + 1);
            }
        }
    }
    walk.logits =
        compare_logits(walker.session(), model, snapshot_element(snapshot, kLogits)["top"]);
    return walk;
}

} // namespace command::replay
