// Failing calls under constraints: setting them, and what draws, loads and verifies under them.
#include "tests/failures/memory.h"
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

constexpr char kGrammar[] = "root ::= item{50,90}\nitem ::= \"a\" item? [b-z] | [c-k]{2,4}";
constexpr char kLetters[] = "byte-bpe"; // whose vocabulary can spell it

stasis_status set_grammar(stasis_session *session, stasis_error *error) {
    return stasis_session_set_constraint(session, STASIS_CONSTRAINT_GRAMMAR, kGrammar,
                                         sizeof kGrammar - 1, nullptr, error);
}

// Every other token of the model's, as the words of its bits.
const std::vector<uint32_t> &every_other() {
    static const std::vector<uint32_t> kBits = [] {
        const Model model = open_path(path_of(kLetters));
        auto info = sized<stasis_model_info>();
        REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
        return std::vector<uint32_t>((info.vocabulary + 31) / 32, 0x55555555);
    }();
    return kBits;
}

stasis_status set_bits(stasis_session *session, stasis_error *error) {
    return stasis_session_set_allowed(session, every_other().data(), every_other().size(), error);
}

std::shared_ptr<stasis_session> session_under(stasis_model *model, bool constrained) {
    const std::shared_ptr<stasis_session> session(create(model).release(), stasis_session_free);
    append(session.get(), some_tokens(20));
    if (constrained) {
        REQUIRE(set_grammar(session.get(), nullptr) == STASIS_OK);
    }
    return session;
}

// What the session is, and what it draws next.
std::string outcome_and_draws(stasis_session *session) {
    const Session child = fork(session);
    const Tokens drawn = draw(child.get(), 6);
    return outcome_of(session) + hex(drawn.data(), drawn.size() * sizeof drawn[0]);
}

Row under(const char *function, const char *detail, Needs needs, bool constrained,
          std::function<stasis_status(stasis_session *, stasis_error *)> call) {
    return {function, detail, needs, kLetters, [=](stasis_model *model) {
                const auto session = session_under(model, constrained);
                const std::string whole = outcome_of(session.get());
                return Trial{[=](stasis_error *error) { return call(session.get(), error); },
                             [=] { CHECK(outcome_of(session.get()) == whole); },
                             [=] { return outcome_and_draws(session.get()); }};
            }};
}

Row from_file(const char *function, const char *detail, Needs needs, bool verifies) {
    return {function, detail, needs, kLetters, [=](stasis_model *model) {
                const auto folder = std::make_shared<Folder>();
                const std::string path = folder->file("s");
                {
                    const auto session = session_under(model, true);
                    draw(session.get(), 12);
                    REQUIRE(save(session.get(), path) == STASIS_OK);
                }
                const std::shared_ptr<stasis_snapshot> snapshot(open_snapshot(path).release(),
                                                                stasis_snapshot_close);
                const auto loaded = std::make_shared<Session>();
                const auto report = std::make_shared<stasis_verify_report>();
                return Trial{[=](stasis_error *error) {
                                 (void)folder;
                                 if (verifies) {
                                     *report = sized<stasis_verify_report>();
                                     return stasis_snapshot_verify(snapshot.get(), model, nullptr,
                                                                   report.get(), error);
                                 }
                                 stasis_session *session = nullptr;
                                 const stasis_status status = stasis_session_load(
                                     model, path.c_str(), nullptr, &session, error);
                                 loaded->reset(session);
                                 return status;
                             },
                             [=] { CHECK(*loaded == nullptr); },
                             [=] {
                                 return verifies ? std::to_string(report->verified) + " " +
                                                       std::to_string(report->drawn)
                                                 : outcome_and_draws(loaded->get());
                             }};
            }};
}

stasis_status decode_one(stasis_session *session, stasis_error *error) {
    stasis_token token = 0;
    return stasis_session_decode(session, &token, error);
}

stasis_status sample_one(stasis_session *session, stasis_error *error) {
    stasis_token token = 0;
    return stasis_session_sample(session, &token, error);
}

} // namespace

std::vector<Row> constraint_rows() {
    every_other(); // not inside a call
    return {
        under("stasis_session_set_constraint", "a grammar", Needs::fresh_model, false, set_grammar),
        under("stasis_session_set_constraint", "the same again", Needs::warm_model, true,
              set_grammar),
        under("stasis_session_set_allowed", "", Needs::warm_model, false, set_bits),
        under("stasis_session_sample", "under a constraint", Needs::warm_model, true, sample_one),
        under("stasis_session_decode", "under a constraint", Needs::warm_model, true, decode_one),
        from_file("stasis_session_load", "under a constraint", Needs::warm_model, false),
        from_file("stasis_snapshot_verify", "under a constraint", Needs::warm_model, true),
    };
}

} // namespace failures
