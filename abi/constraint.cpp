// Constraints on what sessions draw; see stasis_constraint.h. Must not know what a notation means.
#include "abi/cancel.h"
#include "abi/trace.h"
#include "format/state/token_set.h"
#include "runtime/session/session.h"

namespace stasis::abi {

namespace {

static_assert(Constraint::kJsonSchema == STASIS_CONSTRAINT_JSON_SCHEMA);
static_assert(Constraint::kJson == STASIS_CONSTRAINT_JSON);
static_assert(Constraint::kRegex == STASIS_CONSTRAINT_REGEX);
static_assert(Constraint::kGrammar == STASIS_CONSTRAINT_GRAMMAR);

// Returns the tokens whose bits are set.
std::string read_allowed(const uint32_t *bits, size_t count, uint32_t vocabulary) {
    const size_t expected = (size_t{vocabulary} + 31) / 32;
    if (count != expected) {
        fail(Status::invalid_argument,
             "bits of %zu words: expected %zu, 32 tokens in each of the vocabulary of %u", count,
             expected, vocabulary);
    }
    return encode_tokens(runs_of_bits(bits, vocabulary), vocabulary);
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

stasis_status stasis_session_set_constraint(stasis_session *session, uint32_t kind,
                                            const char *text, size_t length, stasis_cancel *cancel,
                                            stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        require_array(text, length, "text");
        if (kind == STASIS_CONSTRAINT_NONE && length != 0) {
            stasis::fail(stasis::Status::invalid_argument,
                         "a text of %zu bytes without a kind of constraint", length);
        }
        if (length > stasis::Constraint::kTextMax) { // before it is copied
            stasis::fail(stasis::Status::unsupported,
                         "the constraint has %zu bytes, of at most %zu", length,
                         stasis::Constraint::kTextMax);
        }
        CallWatch watch(caller, cancel, nullptr, nullptr, {});
        const SessionUse use(*session, caller, Use::changes);
        session->session->set_constraint({kind, std::string(text == nullptr ? "" : text, length)},
                                         watch.watch());
    });
}

stasis_status stasis_session_set_allowed(stasis_session *session, const uint32_t *bits,
                                         size_t count, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        require_array(bits, count, "bits");
        const SessionUse use(*session, caller, Use::changes);
        stasis::Session &own = *session->session;
        stasis::Shared<std::string> allowed;
        if (bits != nullptr) {
            allowed.value = std::make_shared<const std::string>(
                read_allowed(bits, count, own.model()->config.vocabulary));
        }
        own.set_allowed(std::move(allowed));
    });
}
