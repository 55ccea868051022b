// ConstrainedText: whatever way a log grows and is cut off, the mask is that of the text that the
// log alone defines, found anew.
#include <doctest/doctest.h>

#include <random>

#include "format/state/token_set.h"
#include "runtime/constraint/constraint.h"
#include "runtime/session/constrained.h"

namespace stasis {
namespace {

constexpr uint32_t kPlainEnd = 3; // tokens 0 to 2 are a, b and ab; 3 is an end token, 4 special

std::shared_ptr<const CompiledConstraint> small_constraint(const std::string &text) {
    const auto pieces = std::make_shared<const constraint::Vocabulary>(
        std::vector<std::string>{"a", "b", "ab", "", ""}, std::vector<uint32_t>{kPlainEnd});
    const Constraint given{3, text};
    return std::make_shared<const CompiledConstraint>(CompiledConstraint{
        {std::make_shared<const Constraint>(given)},
        constraint::Matcher(constraint::compile_constraint(constraint::ConstraintKind::regex, text),
                            pieces),
        {kPlainEnd}});
}

// The definition (CONSTRAINTS.md, "Drawing"): the drawn tokens before the position, as far back as
// they were drawn under this constraint and are no end tokens.
constraint::Mask mask_by_definition(const CompiledConstraint &of,
                                    const std::vector<TokenEntry> &log,
                                    const std::vector<Sampling> &samplings) {
    std::vector<uint32_t> tokens;
    for (size_t i = log.size(); i-- > 0;) {
        const bool drawn = log[i].source == TokenSource::sampled;
        if (!drawn || !samplings[log[i].sampling].v3.constraint.value ||
            *samplings[log[i].sampling].v3.constraint.value != *of.text.value ||
            log[i].token == kPlainEnd) {
            break;
        }
        tokens.push_back(log[i].token);
    }
    constraint::Matcher matcher = of.start;
    for (size_t i = tokens.size(); i-- > 0;) {
        REQUIRE(matcher.take_token(tokens[i]));
    }
    return *matcher.mask();
}

} // namespace

TEST_CASE("ConstrainedText: masks follow from the log alone, however it grows and is cut off") {
    const auto first = small_constraint("(a|bb){1,6}"), second = small_constraint("(ab?)*");
    std::vector<Sampling> samplings(4);
    samplings[1].v3.constraint = first->text;
    samplings[2].v3.constraint.value = std::make_shared<const Constraint>(*first->text.value);
    samplings[2].seed = 5;
    samplings[3].v3.constraint = second->text;
    std::mt19937 random(11);
    size_t drawn = 0, cut = 0;
    for (int round = 0; round < 300; ++round) {
        std::vector<TokenEntry> log;
        ConstrainedText texts[2] = {ConstrainedText(first), ConstrainedText(second)};
        for (int step = 0; step < 60; ++step) {
            const uint32_t dice = random() % 16;
            if (dice == 0) {
                const size_t to = random() % (log.size() + 1);
                log.resize(to);
                texts[0].rewound(to);
                texts[1].rewound(to);
                ++cut;
            } else if (dice < 4) {
                for (uint32_t i = random() % 4; i-- > 0;) {
                    log.push_back({static_cast<uint32_t>(random() % 5), 0,
                                   random() % 2 == 0 ? TokenSource::prompt : TokenSource::sampled});
                }
            } else { // one is drawn, sometimes by a copy that goes on
                const bool other = random() % 4 == 0;
                ConstrainedText copy = texts[other];
                ConstrainedText &text = random() % 2 == 0 ? copy : texts[other];
                const auto mask = text.mask_at(log, log.size(), samplings, {});
                REQUIRE(*mask == mask_by_definition(other ? *second : *first, log, samplings));
                std::vector<uint32_t> may;
                for (uint32_t token = 0; token < 5; ++token) {
                    if (constraint::allows(*mask, token)) {
                        may.push_back(token);
                    }
                }
                REQUIRE(!may.empty());
                const uint32_t token = may[random() % may.size()];
                const uint32_t next = random() % 4;
                DraftedText drafted = text.drafted();
                REQUIRE(drafted.take(token));
                const std::shared_ptr<const constraint::Mask> after = drafted.mask({});
                const bool fits = drafted.take(next);
                const auto settings = static_cast<uint16_t>(other ? 3 : 1 + random() % 2);
                log.push_back({token, settings, TokenSource::sampled});
                const constraint::Mask then =
                    mask_by_definition(other ? *second : *first, log, samplings);
                CHECK(fits == constraint::allows(then, next));
                CHECK(after != nullptr);
                CHECK((after != nullptr && *after == then));
                ++drawn;
            }
        }
    }
    CHECK(drawn > 5000);
    CHECK(cut > 500);
}

TEST_CASE("ConstrainedText: a log that does not follow the constraint is refused by its position") {
    const auto first = small_constraint("aa");
    std::vector<Sampling> samplings(1);
    samplings[0].v3.constraint = first->text;
    const std::vector<TokenEntry> log = {
        {0, 0, TokenSource::prompt}, {0, 0, TokenSource::sampled}, {1, 0, TokenSource::sampled}};
    ConstrainedText text(first);
    CHECK_THROWS_WITH_AS(text.mask_at(log, 3, samplings, {}),
                         doctest::Contains("token 1 at position 2"), Error);
    CHECK(constraint::allows(*text.mask_at(log, 2, samplings, {}), 0));
    const std::atomic<bool> cancel{true};
    const ConstrainedText fresh(first);
    CHECK_THROWS_AS(ConstrainedText(fresh).mask_at(log, 2, samplings, Watch{&cancel}), Error);
}

TEST_CASE("allowed_tokens: a set of the host's and a constraint's mask both hold") {
    const auto mask = std::make_shared<const constraint::Mask>(constraint::Mask{0b10110});
    SamplingV3 v3;
    CHECK(allowed_tokens(nullptr, v3, 5) == nullptr);
    CHECK(allowed_tokens(mask, v3, 5) == mask);
    v3.allowed.value = std::make_shared<const std::string>(encode_tokens({0, 3}, 5));
    CHECK(*allowed_tokens(nullptr, v3, 5) == constraint::Mask{0b111});
    CHECK(*allowed_tokens(mask, v3, 5) == constraint::Mask{0b110});
    v3.allowed.value = std::make_shared<const std::string>(encode_tokens({3, 4}, 5));
    CHECK_THROWS_AS(allowed_tokens(mask, v3, 5), Error);
}

} // namespace stasis
