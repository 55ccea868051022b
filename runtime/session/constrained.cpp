// Compiles constraints, and says which tokens may be drawn; see constrained.h.
#include "runtime/session/constrained.h"

#include <algorithm>

#include "format/state/token_set.h"
#include "runtime/constraint/constraint.h"

namespace stasis {

namespace {

using constraint::ConstraintKind;
constexpr bool is(ConstraintKind kind, uint32_t number) {
    return static_cast<uint32_t>(kind) == number;
}
static_assert(is(ConstraintKind::json_schema, Constraint::kJsonSchema) &&
              is(ConstraintKind::json, Constraint::kJson) &&
              is(ConstraintKind::regex, Constraint::kRegex) &&
              is(ConstraintKind::grammar, Constraint::kGrammar) &&
              Constraint::kTextMax == constraint::kConstraintBytesMax);

} // namespace

std::shared_ptr<const CompiledConstraint> Constraints::find(const Constraint &given) {
    std::erase_if(compiled_, [](const auto &each) { return each.expired(); });
    for (const std::weak_ptr<const CompiledConstraint> &each : compiled_) {
        auto held = each.lock();
        if (held != nullptr && *held->text.value == given) {
            return held;
        }
    }
    return nullptr;
}

// Compiled without the lock, which other sessions' draws do not wait for.
std::shared_ptr<const CompiledConstraint>
Constraints::compile(const Constraint &given, const Tokenizer *tokenizer,
                     const std::vector<uint32_t> &end_tokens, uint32_t vocabulary,
                     const Watch &watch) {
    if (tokenizer == nullptr) {
        fail(Status::unsupported,
             "a constraint on text needs a tokenizer, which the model does not have");
    }
    std::shared_ptr<const constraint::Vocabulary> pieces;
    {
        const std::lock_guard lock(mutex_);
        if (auto known = find(given)) {
            return known;
        }
        pieces = vocabulary_;
    }
    auto automaton =
        constraint::compile_constraint(static_cast<ConstraintKind>(given.kind), given.text, watch);
    if (pieces == nullptr) {
        std::vector<std::string> texts(vocabulary);
        for (uint32_t token = 0; token < std::min(vocabulary, tokenizer->size()); ++token) {
            texts[token] = tokenizer->is_special(token) ? "" : tokenizer->piece_bytes(token);
        }
        pieces = std::make_shared<const constraint::Vocabulary>(std::move(texts), end_tokens);
    }
    auto made = std::make_shared<const CompiledConstraint>(
        CompiledConstraint{{std::make_shared<const Constraint>(given)},
                           constraint::Matcher(std::move(automaton), pieces),
                           end_tokens});
    const std::lock_guard lock(mutex_);
    if (auto known = find(given)) {
        return known;
    }
    vocabulary_ = std::move(pieces);
    compiled_.push_back(made);
    return made;
}

bool ConstrainedText::governs(const TokenEntry &entry,
                              const std::vector<Sampling> &samplings) const {
    if (entry.source != TokenSource::sampled || entry.sampling >= samplings.size() ||
        !(samplings[entry.sampling].v3.constraint == constraint_->text)) {
        return false;
    }
    return !constraint_->ends(entry.token);
}

bool DraftedText::take(uint32_t token) {
    if (!constraint_->ends(token)) {
        return at_.take_token(token);
    }
    const bool complete = at_.complete();
    at_ = complete ? constraint_->start : at_; // what follows is a text of its own
    return complete;
}

std::shared_ptr<const constraint::Mask> DraftedText::mask(const Watch &watch) {
    std::shared_ptr<const constraint::Mask> mask = at_.mask(watch);
    const auto empty = [](uint64_t word) { return word == 0; };
    return std::all_of(mask->begin(), mask->end(), empty) ? nullptr : mask;
}

std::shared_ptr<const constraint::Mask> allowed_tokens(std::shared_ptr<const constraint::Mask> mask,
                                                       const SamplingV3 &v3, uint32_t vocabulary) {
    const std::string *allowed = v3.allowed.value.get();
    if (allowed != nullptr) {
        auto both = std::make_shared<constraint::Mask>((size_t{vocabulary} + 63) / 64, 0);
        const std::optional<TokenRuns> runs = decode_tokens(*allowed, vocabulary);
        for (size_t i = 0; runs && i < runs->size(); i += 2) {
            for (uint32_t token = (*runs)[i]; token < (*runs)[i + 1]; ++token) {
                (*both)[token / 64] |= uint64_t{1} << token % 64;
            }
        }
        for (size_t i = 0; mask != nullptr && i < both->size(); ++i) {
            (*both)[i] &= (*mask)[i];
        }
        mask = std::move(both);
    }
    if (mask != nullptr &&
        std::all_of(mask->begin(), mask->end(), [](uint64_t word) { return word == 0; })) {
        fail(Status::no_token, "the constraint allows no token here%s",
             allowed == nullptr ? "" : ", of those that the host allows");
    }
    return mask;
}

} // namespace stasis
