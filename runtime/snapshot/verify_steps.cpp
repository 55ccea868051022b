// Draws tokens again, computes positions again, compares; see verify_steps.h.
#include "runtime/snapshot/verify_steps.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "format/state/decimal.h"
#include "runtime/compute/profile.h"
#include "runtime/snapshot/check.h"

namespace stasis {

namespace {

// Reports whether the token at a position was drawn.
bool sampled(const State &stored, uint64_t position) {
    return stored.log[position].source == TokenSource::sampled;
}

// Returns the position of the first eviction after `position`; UINT64_MAX: none.
uint64_t next_eviction(const State &stored, uint64_t position) {
    const auto next = std::upper_bound(
        stored.evictions.begin(), stored.evictions.end(), position,
        [](uint64_t value, const Eviction &eviction) { return value < eviction.position; });
    return next == stored.evictions.end() ? UINT64_MAX : next->position;
}

// Returns the first recurrent state after `position`; its position is UINT64_MAX if there is none.
size_t next_state(const State &stored, uint64_t position) {
    const auto next = std::upper_bound(
        stored.states.begin(), stored.states.end(), position,
        [](uint64_t value, const RecurrentState &s) { return value < s.position; });
    return static_cast<size_t>(next - stored.states.begin());
}

uint64_t position_of_state(const State &stored, size_t index) {
    return index < stored.states.size() ? stored.states[index].position : UINT64_MAX;
}

// Describes the first number in which a stored state and the computed one differ.
Divergence state_diverged(const State &stored, const RecurrentState &state, const float *numbers,
                          const float *computed) {
    Divergence found = diverged(Element::kv_cache, state.position - 1,
                                "the state of recurrent layers after position " +
                                    std::to_string(state.position - 1) + " differs");
    for (size_t i = 0; numbers != nullptr && i < stored.recurrent.numbers(); ++i) {
        if (std::bit_cast<uint32_t>(numbers[i]) != std::bit_cast<uint32_t>(computed[i])) {
            const uint64_t at = i % stored.recurrent.state_size();
            found.layer = stored.recurrent.layers[i / stored.recurrent.state_size()];
            found.message =
                "the state of recurrent layer " + std::to_string(found.layer) + " after position " +
                std::to_string(state.position - 1) + " differs at number " + std::to_string(at) +
                ": " + decimal(numbers[i]) + " in the file, " + decimal(computed[i]) + " computed";
            break;
        }
    }
    return found;
}

// Returns the valid slots of a page in memory order, as the timeline holds them.
std::vector<uint16_t> held_page(const Timeline &timeline, const PageShape &shape,
                                const std::vector<uint32_t> &layers, uint64_t begin,
                                uint64_t valid) {
    std::vector<uint16_t> page(shape.elements()), parts[2];
    for (std::vector<uint16_t> &part : parts) {
        part.resize(valid * shape.kv_heads * shape.head_dim); // [slot][kv_head][head_dim]
    }
    for (size_t layer = 0; layer < layers.size(); ++layer) {
        timeline.copy_kv(layers[layer], begin, begin + valid, parts[0].data(), parts[1].data());
        for (size_t part = 0; part < 2; ++part) {
            for (size_t i = 0; i < valid * shape.kv_heads; ++i) {
                std::memcpy(page.data() + shape.offset(layer, part, i % shape.kv_heads) +
                                i / shape.kv_heads * shape.head_dim,
                            parts[part].data() + i * shape.head_dim,
                            shape.head_dim * sizeof(uint16_t));
            }
        }
    }
    return page;
}

// Returns the first slot, and in it the first layer, keys before values, in which two pages differ.
std::optional<PagePlace> first_difference(const PageShape &shape, const uint16_t *stored,
                                          const uint16_t *computed, uint64_t valid) {
    for (uint64_t slot = 0; slot < valid; ++slot) {
        for (size_t row = 0; row < shape.rows(); ++row) { // [layer][key, value][kv_head]
            const size_t at = row * shape.head_elements() + slot * shape.head_dim;
            if (std::memcmp(stored + at, computed + at, shape.head_dim * sizeof(uint16_t)) != 0) {
                const auto pair = static_cast<uint32_t>(row / shape.kv_heads);
                return PagePlace{slot, pair / 2, static_cast<uint32_t>(row % shape.kv_heads),
                                 pair % 2};
            }
        }
    }
    return std::nullopt;
}

std::string number_text(uint16_t bits) {
    char text[16];
    std::snprintf(text, sizeof text, " (bf16 %04x)", bits);
    return decimal(std::bit_cast<float>(uint32_t{bits} << 16)) + text;
}

// Returns both values of the first number that differs at a place; "" if the stored one is
// missing.
std::string values_text(const PageShape &shape, const PagePlace &place, const uint16_t *stored,
                        const uint16_t *computed) {
    if (stored == nullptr) {
        return "";
    }
    size_t at =
        shape.offset(place.layer, place.part, place.head) + place.slot * size_t{shape.head_dim};
    while (stored[at] == computed[at]) {
        ++at;
    }
    return ": " + number_text(stored[at]) + " in the file, " + number_text(computed[at]) +
           " computed";
}

// Describes a difference of two pages. `stored` is null if the file has fingerprints instead of
// numbers.
Divergence page_diverged(uint64_t position, uint32_t layer, const PageShape &shape,
                         const PagePlace &place, const uint16_t *stored, const uint16_t *computed) {
    const bool exact = place.head != Divergence::kNowhere;
    const std::string what = !exact ? "keys or values" : place.part == 0 ? "keys" : "values";
    Divergence divergence = diverged(Element::kv_cache, position,
                                     what + " of layer " + std::to_string(layer) +
                                         (exact ? ", head " + std::to_string(place.head) : "") +
                                         " at position " + std::to_string(position) + " differ" +
                                         values_text(shape, place, stored, computed));
    divergence.layer = layer;
    divergence.head = place.head;
    divergence.part = place.part;
    return divergence;
}

} // namespace

Divergence diverged(Element element, uint64_t position, const std::string &message) {
    Divergence divergence;
    divergence.element = static_cast<uint32_t>(element);
    divergence.position = position;
    divergence.message = message;
    return divergence;
}

Redraw::Redraw(const State &stored, Model &model, const Watch &watch)
    : stored_(stored), model_(model), watch_(watch.silent()) {
    for (const TokenEntry &entry : stored.log) {
        tokens_.push_back(entry.token);
        entries_.push_back({entry.token});
    }
}

bool Redraw::wants_logits(uint64_t position) const {
    return position + 1 < tokens_.size() && sampled(stored_, position + 1);
}

bool Redraw::on_wanted(void *user, uint64_t position) {
    return static_cast<const Redraw *>(user)->wants_logits(position);
}

bool Redraw::on_logits(void *user, uint64_t position, const float *logits, size_t count) {
    static_cast<Redraw *>(user)->compare(position + 1, {logits, count});
    return true;
}

void Redraw::compare(uint64_t position, std::span<const float> logits) {
    const TokenEntry &entry = stored_.log[position];
    const Sampling &sampling = stored_.samplings[entry.sampling];
    const uint64_t length = history_length(sampling, position);
    ++drawn_;
    try {
        const auto allowed = mask_of(sampling, position);
        scratch_.kernels = model_.kernels;
        const uint32_t token =
            sample(logits, sampling, position, tokens().subspan(position - length, length),
                   scratch_, bits_of(allowed));
        if (token != entry.token) {
            note(position, "its settings draw " + std::to_string(token));
        }
    } catch (const Error &error) {
        if (error.status() != Status::no_token && error.status() != Status::unsupported &&
            error.status() != Status::invalid_argument && error.status() != Status::corrupt) {
            throw;
        }
        note(position, error.what());
    }
}

void Redraw::note(uint64_t position, std::string instead) {
    ++otherwise_;
    if (position < first_) {
        first_ = position;
        first_instead_ = std::move(instead);
    }
}

// Returns the tokens that the settings of a position's token allowed there; null: all.
std::shared_ptr<const constraint::Mask> Redraw::mask_of(const Sampling &sampling,
                                                        uint64_t position) {
    constexpr size_t kTextsMax = 16; // compiled and held at a time
    std::shared_ptr<const constraint::Mask> mask;
    if (const Constraint *constraint = sampling.v3.constraint.value.get()) {
        const auto same = [&](const ConstrainedText &text) {
            return text.constraint() == sampling.v3.constraint;
        };
        auto text = std::find_if(texts_.begin(), texts_.end(), same);
        if (text == texts_.end()) {
            if (texts_.size() == kTextsMax) {
                texts_.erase(texts_.begin());
            }
            const Config &config = model_.config;
            texts_.emplace_back(model_.constraints.compile(
                *constraint, model_.tokenizer.get(), config.end_tokens, config.vocabulary, watch_));
        } else {
            std::rotate(text, text + 1, texts_.end());
        }
        mask = texts_.back().mask_at(stored_.log, position, stored_.samplings, watch_);
    }
    return allowed_tokens(std::move(mask), sampling.v3, stored_.vocabulary);
}

void Redraw::compare_state(const Timeline &timeline, const StoredPages &pages) {
    const uint64_t position = timeline.position();
    const size_t index = next_state(stored_, position - 1);
    if (state_ || position_of_state(stored_, index) != position) {
        return;
    }
    const RecurrentState &state = stored_.states[index];
    std::vector<float> numbers;
    if (pages.read_state) {
        numbers.resize(stored_.recurrent.numbers());
        pages.read_state(index, numbers.data());
    }
    const StateRef computed = timeline.states.at(position);
    if (computed.digest(position) != state.digest) {
        state_ = state_diverged(stored_, state, numbers.empty() ? nullptr : numbers.data(),
                                computed.numbers());
    }
}

std::optional<Divergence> Redraw::first() const {
    return earlier(first_token(), state_);
}

std::optional<Divergence> Redraw::first_token() const {
    if (sampled(stored_, 0)) {
        return diverged(Element::token_buffer, 0,
                        "the first token is recorded as drawn, from nothing");
    }
    if (first_ == UINT64_MAX) {
        return std::nullopt;
    }
    return diverged(Element::token_buffer, first_,
                    "token " + std::to_string(tokens_[first_]) + " at position " +
                        std::to_string(first_) + " is recorded as drawn; " + first_instead_);
}

void check_comparable(const State &stored, const Model &model) {
    check_identity(stored.model, model);
    check_geometry(stored, model);
    check_profile(stored, model, false);
    for (const Sampling &sampling : stored.samplings) {
        try {
            check_sampling(sampling, stored.vocabulary);
        } catch (const Error &error) {
            fail(Status::corrupt, "stored sampling settings: %s", error.what());
        }
    }
}

void evict_due(Timeline &timeline, const State &stored) {
    const auto here = std::lower_bound(
        stored.evictions.begin(), stored.evictions.end(), timeline.position(),
        [](const Eviction &eviction, uint64_t value) { return eviction.position < value; });
    if (here != stored.evictions.end() && here->position == timeline.position()) {
        for (const PositionRange &range : here->ranges) {
            timeline.evict(range.begin, range.end);
        }
    }
}

void recompute(Timeline &timeline, Redraw &redraw, const StoredPages &pages, uint64_t end,
               const VerifyOptions &options, uint64_t done, uint64_t total) {
    const State &stored = redraw.stored();
    while (timeline.position() < end) {
        const uint64_t begin = timeline.position();
        evict_due(timeline, stored);
        // Appends stop at evictions, which must happen at the same positions as before, and where
        // there is a state to compare.
        const uint64_t cut = std::min({end, next_eviction(stored, begin),
                                       position_of_state(stored, next_state(stored, begin))});
        WatchPart part{options.watch, done, total};
        AppendOptions run;
        run.chunk = options.chunk;
        run.watch = part.watch();
        run.logits = Redraw::on_logits;
        run.logits_wanted = Redraw::on_wanted;
        run.logits_user = &redraw;
        run.schedule = &stored.profile;
        append(timeline, redraw.entries().subspan(begin, cut - begin), run);
        redraw.compare_state(timeline, pages);
        done += cut - begin;
    }
}

std::optional<Divergence> compare_page(const Timeline &timeline, const State &stored,
                                       const StoredPages &pages, uint64_t index) {
    const PagePool &pool = *timeline.network->pool;
    const uint64_t begin = index * kPage;
    std::optional<Divergence> first;
    bool equal = true;
    for (uint32_t group = 0; group < stored.groups.size(); ++group) {
        const Page &page = stored.pages[group][index];
        const PageShape &shape = pool.shape(group);
        const std::vector<uint32_t> &layers = stored.groups[group].layers;
        const std::vector<uint16_t> held = held_page(timeline, shape, layers, begin, page.valid);
        if (page_digest({group, index, held.data(), shape.rows(), kPage, page.valid,
                         shape.head_dim}) == page.digest) {
            continue;
        }

        // The digest differs: the stored numbers or fingerprints locate the difference.
        equal = false;
        std::vector<uint16_t> data;
        std::optional<PagePlace> place;
        if (pages.stored(group, index)) {
            data.resize(shape.elements());
            const PageInto into{group, index, data.data()};
            pages.read({&into, 1});
            place = first_difference(shape, data.data(), held.data(), page.valid);
        } else if (pages.locate) {
            place = pages.locate(group, index, held.data());
        }
        if (!place) {
            continue;
        }
        const Divergence found =
            page_diverged(begin + place->slot, layers[place->layer], shape, *place,
                          data.empty() ? nullptr : data.data(), held.data());
        if (!first ||
            std::tie(found.position, found.layer) < std::tie(first->position, first->layer)) {
            first = found;
        }
    }
    if (!equal && !first) {
        first = diverged(Element::kv_cache, begin,
                         "the digest of a page from position " + std::to_string(begin) +
                             " on differs; its keys and values are not in the file");
    }
    return first;
}

std::optional<Divergence> compare_rest(const State &stored, const State &computed) {
    const uint64_t last = stored.log.size() - 1;
    if (stored.hidden != computed.hidden) {
        return diverged(Element::logits, last, "the final hidden states differ");
    }
    if (stored.logits != computed.logits) {
        return diverged(Element::logits, last,
                        "logits differ: stored " + to_hex(stored.logits) + ", computed " +
                            to_hex(computed.logits));
    }
    if (stored.top != computed.top) {
        return diverged(Element::logits, last, "the best logits differ");
    }
    const size_t evictions = std::min(stored.evictions.size(), computed.evictions.size());
    for (size_t i = 0; i < evictions; ++i) {
        if (stored.evictions[i] != computed.evictions[i]) {
            return diverged(Element::logits, stored.evictions[i].position - 1,
                            "the hidden states kept where positions were evicted differ");
        }
    }
    if (stored.token_texts != computed.token_texts) {
        return diverged(Element::tokenizer, UINT64_MAX,
                        "the texts of tokens differ from the tokenizer's");
    }
    return std::nullopt;
}

std::optional<Divergence> earlier(const std::optional<Divergence> &token,
                                  const std::optional<Divergence> &other) {
    return token && (!other || token->position <= other->position) ? token : other;
}

} // namespace stasis
