// Verification by recomputing; see verify.h. The first pass computes everything and compares
// digests; only where a page's differ does a second pass look for the position and the layer.
#include "runtime/verify.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "format/elements.h"
#include "runtime/sampling.h"
#include "runtime/session.h"

namespace stasis {

namespace {

using ull = unsigned long long;

VerifyReport diverged(Element element, uint64_t position, uint32_t layer, std::string message) {
    VerifyReport report;
    report.verified = false;
    report.element = static_cast<uint32_t>(element);
    report.position = position;
    report.layer = layer;
    report.message = std::move(message);
    return report;
}

// Throws unless recomputing under this model can be expected to give the stored bits.
void check_comparable(const State &stored, const std::shared_ptr<Model> &model) {
    check_identity(stored.model, model->identity);
    check_geometry(stored, *model);
    for (const Sampling &sampling : stored.samplings) {
        try {
            check_sampling(sampling, stored.vocabulary);
        } catch (const Error &error) {
            fail(Status::corrupt, "stored sampling settings: %s", error.what());
        }
    }
}

// Draws again what the log says was drawn, from the logits of every position before a drawn token.
class Redraw {
  public:
    Redraw(const State &stored, std::vector<uint32_t> tokens)
        : stored_(stored), tokens_(std::move(tokens)) {}

    bool wants_logits(uint64_t position) const {
        return position + 1 < stored_.log.size() && sampled(position + 1);
    }
    bool sampled(uint64_t position) const {
        return stored_.log[position].source == TokenSource::sampled;
    }
    std::span<const uint32_t> tokens() const { return tokens_; }
    const std::optional<VerifyReport> &first() const { return first_; }

    static bool on_logits(void *user, uint64_t position, const float *logits, size_t count) {
        static_cast<Redraw *>(user)->compare(position + 1, {logits, count});
        return true;
    }

  private:
    void compare(uint64_t position, std::span<const float> logits) {
        const TokenEntry &entry = stored_.log[position];
        const Sampling &sampling = stored_.samplings[entry.sampling];
        const uint64_t window = sampling.penalty_window == 0 ? position : sampling.penalty_window;
        const uint64_t begin = position - std::min(position, window);
        const uint32_t drawn =
            sample(logits, sampling, position, tokens().subspan(begin, position - begin), scratch_);
        if (drawn != entry.token && !first_) {
            first_ =
                diverged(Element::token_buffer, position, VerifyReport::kNoLayer,
                         "token " + std::to_string(entry.token) + " at position " +
                             std::to_string(position) +
                             " is recorded as drawn; its settings draw " + std::to_string(drawn));
        }
    }

    const State &stored_;
    const std::vector<uint32_t> tokens_;
    std::optional<VerifyReport> first_;
    SamplingScratch scratch_;
};

// Reports the progress of the parts of a run as that of the whole.
struct Part {
    const Watch &whole;
    uint64_t begin, total;

    Watch watch() { return {whole.cancel, step, this}; }
    static bool step(void *user, uint64_t done, uint64_t) {
        const Part &self = *static_cast<const Part *>(user);
        return self.whole.progress == nullptr ||
               self.whole.progress(self.whole.user, self.begin + done, self.total);
    }
};

// Appends the whole log, with logits only where a drawn token follows.
void recompute(Session &session, Redraw &redraw, const VerifyOptions &options) {
    const std::span<const uint32_t> tokens = redraw.tokens();
    for (uint64_t begin = 0; begin < tokens.size();) {
        const bool logits = redraw.wants_logits(begin);
        uint64_t end = begin + 1;
        while (end < tokens.size() && redraw.wants_logits(end) == logits) {
            ++end;
        }
        Part part{options.watch, begin, tokens.size()};
        RunOptions run;
        run.chunk = options.chunk;
        run.watch = part.watch();
        run.logits = logits ? Redraw::on_logits : nullptr;
        run.logits_user = &redraw;
        session.append(tokens.subspan(begin, end - begin), run);
        begin = end;
    }
}

// First place where the valid slots of two pages in memory differ.
std::optional<PlaceInPage> first_difference(const PageShape &shape,
                                            const std::vector<uint32_t> &layers, size_t valid,
                                            const uint16_t *a, const uint16_t *b) {
    std::optional<PlaceInPage> first;
    size_t limit = valid; // slots that are still of interest
    for (size_t row = 0; row < shape.rows(); ++row) {
        const uint16_t *begin = a + row * shape.head_elements();
        const auto same =
            std::mismatch(begin, begin + limit * shape.head_dim, b + row * shape.head_elements())
                .first -
            begin;
        const size_t slot = static_cast<size_t>(same) / shape.head_dim;
        if (slot < limit) { // rows go up through the layers: the lowest stays
            first = {static_cast<uint32_t>(slot), layers[row / (2 * shape.kv_heads)]};
            limit = slot;
        }
    }
    return first;
}

// Compares the digests of all pages, and reads the stored ones, which checks their bytes.
std::optional<VerifyReport> compare_pages(const std::shared_ptr<Model> &model, const State &stored,
                                          const State &computed, const StoredPages &pages,
                                          const VerifyOptions &options) {
    std::vector<uint16_t> data;
    for (uint64_t index = 0; !stored.pages.empty() && index < stored.pages[0].size(); ++index) {
        bool equal = true;
        for (size_t group = 0; group < stored.pages.size(); ++group) {
            if (pages.stored(group, index)) {
                data.resize(model->pool->shape(static_cast<uint32_t>(group)).elements());
                pages.read(group, index, data.data());
            }
            equal &= stored.pages[group][index].digest == computed.pages[group][index].digest;
        }
        if (equal) {
            continue;
        }
        const uint64_t begin = index * stored.page_positions;
        const std::optional<Place> place = find_divergence(model, stored, pages, options, index);
        if (!place) {
            return diverged(Element::kv_cache, begin, VerifyReport::kNoLayer,
                            "the digest of a page from position " + std::to_string(begin) +
                                " on differs; its keys and values are not in the file");
        }
        return diverged(Element::kv_cache, place->position, place->layer,
                        "keys or values of layer " + std::to_string(place->layer) +
                            " at position " + std::to_string(place->position) + " differ");
    }
    return std::nullopt;
}

// What follows from the last position and from the tokens as a whole.
std::optional<VerifyReport> compare_rest(const State &stored, const State &computed) {
    const uint64_t last = stored.log.size() - 1;
    if (stored.hidden != computed.hidden) {
        return diverged(Element::logits, last, VerifyReport::kNoLayer,
                        "the final hidden states differ");
    }
    if (stored.logits != computed.logits) {
        return diverged(Element::logits, last, VerifyReport::kNoLayer,
                        "logits differ: stored " + to_hex(stored.logits) + ", computed " +
                            to_hex(computed.logits));
    }
    if (stored.top != computed.top) {
        return diverged(Element::logits, last, VerifyReport::kNoLayer, "the best logits differ");
    }
    if (stored.token_texts != computed.token_texts) {
        return diverged(Element::tokenizer, UINT64_MAX, VerifyReport::kNoLayer,
                        "the texts of tokens differ from the tokenizer's");
    }
    return std::nullopt;
}

} // namespace

std::optional<Place> find_divergence(const std::shared_ptr<Model> &model, const State &stored,
                                     const StoredPages &pages, const VerifyOptions &options,
                                     uint64_t index) {
    const uint64_t begin = index * stored.page_positions;
    const uint64_t end = std::min<uint64_t>(begin + stored.page_positions, stored.log.size());
    SessionOptions retaining;
    retaining.capacity = end;
    retaining.window_retain = stored.page_positions; // so that the whole page is still there
    Session session(model, retaining);
    std::vector<uint32_t> tokens;
    for (uint64_t i = 0; i < end; ++i) {
        tokens.push_back(stored.log[i].token);
    }
    RunOptions run;
    run.chunk = options.chunk;
    run.watch.cancel = options.watch.cancel;
    session.append(tokens, run);
    const State computed = session.export_state();

    std::optional<Place> first;
    for (size_t group = 0; group < stored.groups.size(); ++group) {
        const uint16_t *data = computed.pages[group][index].data;
        std::optional<PlaceInPage> place;
        if (pages.stored(group, index)) {
            const PageShape &shape = model->pool->shape(static_cast<uint32_t>(group));
            std::vector<uint16_t> kept(shape.elements());
            pages.read(group, index, kept.data());
            place = first_difference(shape, stored.groups[group].layers, end - begin, kept.data(),
                                     data);
        } else if (pages.tell) {
            place = pages.tell(group, index, data);
        }
        if (place && (!first || std::pair(begin + place->slot, place->layer) <
                                    std::pair(first->position, first->layer))) {
            first = Place{begin + place->slot, place->layer};
        }
    }
    return first;
}

VerifyReport verify(const std::shared_ptr<Model> &model, const State &stored,
                    const StoredPages &pages, const VerifyOptions &options) {
    check_comparable(stored, model);
    const uint64_t positions = stored.log.size();
    if (positions == 0) {
        return {};
    }
    std::vector<uint32_t> tokens;
    for (const TokenEntry &entry : stored.log) {
        tokens.push_back(entry.token);
    }
    Redraw redraw(stored, std::move(tokens));
    SessionOptions session_options;
    session_options.window_retain = 0;
    Session session(model, session_options);
    recompute(session, redraw, options);
    const State computed = session.export_state();

    std::optional<VerifyReport> first = redraw.first();
    if (redraw.sampled(0)) {
        first = diverged(Element::token_buffer, 0, VerifyReport::kNoLayer,
                         "the first token is recorded as drawn, from nothing");
    }
    // At the same position the token comes before the keys and values that follow from it.
    const std::optional<VerifyReport> differing =
        compare_pages(model, stored, computed, pages, options);
    if (differing && (!first || differing->position < first->position)) {
        first = differing;
    }
    if (!first) {
        first = compare_rest(stored, computed);
    }
    if (!first && stored.digest != computed.digest) {
        fail(Status::corrupt, "the state digest %s is not that of the stored state, %s",
             to_hex(stored.digest).c_str(), to_hex(computed.digest).c_str());
    }
    VerifyReport report = first.value_or(VerifyReport());
    report.positions = positions;
    return report;
}

} // namespace stasis
