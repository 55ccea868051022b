// Computes embeddings, some texts at a time, each in a timeline of its own; see embed.h.
#include "runtime/session/embed.h"

#include <algorithm>
#include <cassert>
#include <exception>

#include "runtime/kernels/embedding.h"
#include "runtime/timeline/append.h"

namespace stasis {

namespace {

using Entries = std::vector<TokenEntry>;

// Calls `part` for an input, and puts the input's index before the message of an error. Cancelling
// concerns the call.
template <typename Part> void for_input(size_t index, const Part &part) {
    try {
        part();
    } catch (const Error &error) {
        if (error.status() == Status::cancelled || error.status() == Status::timeout ||
            error.status() == Status::stopped) {
            throw;
        }
        fail(error.status(), "inputs[%zu]: %s", index, error.what());
    }
}

const std::string &prompt_of(const Model &model, const char *asked) {
    static const std::string none;
    const EmbeddingRules &rules = model.embedding;
    const std::string name = asked != nullptr ? asked : rules.default_prompt;
    std::string known;
    for (const auto &[each, text] : rules.prompts) {
        if (each == name) {
            return text;
        }
        known += (known.empty() ? "" : ", ") + each;
    }
    if (asked != nullptr) {
        fail(Status::invalid_argument, "prompt \"%.60s\": the model's are: %s", asked,
             known.empty() ? "none" : known.c_str());
    }
    return none;
}

// Returns the tokens of an input.
Entries entries_of(const Model &model, const EmbedInput &input, const std::string &prompt) {
    Entries entries;
    const auto add = [&](std::span<const uint32_t> tokens) {
        for (const uint32_t token : tokens) {
            if (token >= model.config.vocabulary) {
                fail(Status::invalid_argument, "token %zu is %u: expected less than %u",
                     entries.size(), token, model.config.vocabulary);
            }
            entries.push_back({token});
        }
    };
    if (input.is_text) {
        if (model.tokenizer == nullptr) {
            fail(Status::unsupported, "the model has no tokenizer");
        }
        const TextFrame &frame = model.tokenizer->frame();
        if (!frame.refusal.empty()) {
            fail(Status::unsupported, "%s", frame.refusal.c_str());
        }
        add(frame.before);
        add(model.tokenizer->encode(prompt + std::string(input.text), false, false));
        add(frame.after);
    } else {
        add(input.tokens);
    }
    if (entries.empty()) {
        fail(Status::invalid_argument, "there are no tokens");
    }
    if (entries.size() > embed_tokens_max(model)) {
        fail(Status::invalid_argument, "%zu tokens exceed the model's %llu", entries.size(),
             Number{embed_tokens_max(model)});
    }
    return entries;
}

// Returns how many of the inputs from `first` on are computed together: as many as their pages and
// recurrent states allow, at least one.
size_t together(const Model &model, std::span<const Entries> inputs) {
    // A timeline holds its last state, its next one, and the checkpoint before.
    const uint64_t state_bytes = 3 * model.state_size() * sizeof(float);
    uint64_t positions = 0, states = 0;
    // A bidirectional text is computed in one pass.
    const uint64_t rows_max = model.config.bidirectional ? kChunk : UINT64_MAX;
    uint64_t rows = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
        positions += (inputs[i].size() + kPage - 1) / kPage * kPage;
        states += state_bytes;
        rows += inputs[i].size();
        if (i > 0 && (positions > kEmbedPositions || rows > rows_max ||
                      states > model.states->budget_bytes())) {
            return i;
        }
    }
    return inputs.size();
}

// Some texts that are computed together.
struct Together {
    Model &model;
    Pooling pooling;
    std::span<const Entries> inputs;
    size_t first; // index of the first input in the call
    std::vector<Timeline> timelines = {};
    std::vector<double> sums = {}; // [input][hidden]

    size_t width() const { return model.config.hidden; }
    double *sums_of(size_t i) { return sums.data() + i * width(); }

    // Adds hidden states that mean pooling needs.
    static void add(void *user, const Timeline &timeline, uint64_t, const uint16_t *hidden,
                    size_t rows) noexcept {
        auto &self = *static_cast<Together *>(user);
        const auto i = static_cast<size_t>(&timeline - self.timelines.data());
        kernels::add_hidden(hidden, rows, self.width(), self.sums_of(i));
    }

    // Throws the error of the first that failed.
    void compute(AppendOptions run) {
        std::vector<Append> appends;
        timelines.reserve(inputs.size());
        for (const Entries &entries : inputs) {
            TimelineOptions options;
            options.capacity = entries.size();
            options.window_retain = 0;
            timelines.emplace_back(model, options);
        }
        for (size_t i = 0; i < inputs.size(); ++i) {
            appends.push_back({&timelines[i], inputs[i]});
        }
        if (model.config.bidirectional) {
            run.chunk = 0;
            for (const Entries &entries : inputs) {
                run.chunk += entries.size();
            }
        }
        sums.assign(inputs.size() * width(), 0.0);
        run.hidden = pooling == Pooling::mean ? add : nullptr;
        run.hidden_user = this;
        append_together(model, appends, run);
        for (size_t i = 0; i < appends.size(); ++i) {
            if (appends[i].error != nullptr) {
                for_input(first + i, [&] { std::rethrow_exception(appends[i].error); });
            }
        }
    }

    // Stores the vectors [inputs][dimension].
    void store(float *vectors) {
        const EmbeddingRules &rules = model.embedding;
        const size_t dimension = rules.dimension(model.config.hidden);
        std::vector<double> x, y;
        for (size_t i = 0; i < inputs.size(); ++i) {
            if (pooling == Pooling::last) {
                assert(timelines[i].hidden.valid);
                kernels::add_hidden(timelines[i].hidden.numbers.data(), 1, width(), sums_of(i));
            }
            const uint64_t rows = pooling == Pooling::last ? 1 : inputs[i].size();
            kernels::divide_sums(sums_of(i), rows, width());
            x.assign(sums_of(i), sums_of(i) + width());
            for (const EmbeddingDense &dense : rules.dense) {
                y.resize(dense.outputs);
                kernels::apply_dense(dense.weights.data(),
                                     dense.bias.empty() ? nullptr : dense.bias.data(), dense.inputs,
                                     dense.outputs, x.data(), y.data());
                x.swap(y);
            }
            kernels::store_embedding(x.data(), dimension, rules.normalised,
                                     vectors + i * dimension);
        }
    }
};

} // namespace

Pooling pooling_of(const Model &model, Pooling asked) {
    const EmbeddingRules &rules = model.embedding;
    if (asked != Pooling::unknown) {
        return asked;
    }
    if (!rules.refusal.empty()) {
        fail(Status::unsupported, "%s", rules.refusal.c_str());
    }
    if (rules.pooling == Pooling::unknown) {
        fail(Status::unsupported, "the model's files do not say how its hidden states become one "
                                  "vector; the options may");
    }
    return rules.pooling;
}

uint64_t embed_tokens_max(const Model &model) {
    const uint64_t stated = model.embedding.tokens_max;
    uint64_t most = model.config.context;
    if (model.config.bidirectional) {
        most = std::min<uint64_t>(most, kChunkMax); // a pass has the whole text
    }
    return stated == 0 ? most : std::min(stated, most);
}

void embed(Model &model, std::span<const EmbedInput> inputs, const EmbedOptions &options,
           float *vectors) {
    const Pooling pooling = pooling_of(model, options.pooling);
    const std::string &prompt = prompt_of(model, options.prompt);
    std::vector<Entries> entries;
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
        options.watch.look(0, 0);
        for_input(i, [&] { entries.push_back(entries_of(model, inputs[i], prompt)); });
        total += entries.back().size();
    }

    std::span<const Entries> rest = entries;
    bool alone = false; // the pool lacks pages for several
    while (!rest.empty()) {
        const size_t count = alone ? 1 : together(model, rest);
        WatchPart part{options.watch, done, total};
        AppendOptions run;
        run.chunk = options.chunk;
        run.watch = part.watch();
        Together some{model, pooling, rest.first(count), entries.size() - rest.size()};
        try {
            some.compute(run);
        } catch (const Error &error) {
            if (error.status() != Status::pool_exhausted || count == 1) {
                throw;
            }
            alone = true;
            continue;
        }
        some.store(vectors + some.first * model.embedding.dimension(model.config.hidden));
        for (const Entries &each : rest.first(count)) {
            done += each.size();
        }
        rest = rest.subspan(count);
    }
}

} // namespace stasis
