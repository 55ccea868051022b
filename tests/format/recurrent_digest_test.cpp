// The digest of a recurrent state, however its pieces are shared, and what of it the state digest
// covers.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "format/state/state.h"
#include "sample.h"

using namespace stasis;

namespace {

// FORMAT.md, "Digests", from one end to the other.
Digest plainly(uint64_t position, const std::vector<float> &numbers) {
    Sha256 whole;
    whole.text("stasis recurrent state").u64(position).u64(numbers.size());
    for (size_t at = 0, index = 0; at < numbers.size(); at += 262144, ++index) {
        const size_t count = std::min<size_t>(262144, numbers.size() - at);
        Sha256 piece;
        piece.text("stasis recurrent piece").u64(index);
        whole.digest(piece.bytes(numbers.data() + at, 4 * count).finish());
    }
    return whole.finish();
}

std::vector<float> any_bits(size_t count) {
    std::mt19937 random(static_cast<uint32_t>(count));
    std::vector<float> numbers(count);
    for (float &number : numbers) {
        const uint32_t bits = random();
        std::memcpy(&number, &bits, sizeof bits);
    }
    return numbers;
}

Digest digest_of(uint64_t position, const std::vector<float> &numbers) {
    return recurrent_state_digest(position, numbers.data(), numbers.size());
}

} // namespace

TEST_CASE("recurrent_state_digest: of any number of pieces, by one thread or several") {
    for (const size_t count : {size_t{1}, kRecurrentPiece - 1, kRecurrentPiece, kRecurrentPiece + 1,
                               17 * kRecurrentPiece + 5, 33 * kRecurrentPiece}) {
        CAPTURE(count);
        const std::vector<float> numbers = any_bits(count);
        const Digest digest = digest_of(70, numbers);
        CHECK(digest == plainly(70, numbers));
        std::vector<Digest> pieces(recurrent_pieces(count));
        for (size_t begin = pieces.size(); begin > 0;) { // in any order
            const size_t end = begin;
            begin -= std::min<size_t>(begin, 5);
            recurrent_piece_digests(numbers.data(), count, begin, end, &pieces[begin]);
        }
        CHECK(recurrent_state_digest(70, count, pieces) == digest);
        CHECK(digest_of(71, numbers) != digest);
    }
}

TEST_CASE("recurrent_state_digest: numbers are bits: the sign of a zero, what is denormal") {
    const std::vector<float> zeros(100, 0.0F);
    for (const float other : {-0.0F, 1e-45F}) {
        std::vector<float> changed = zeros;
        changed[57] = other;
        CHECK(digest_of(1, changed) != digest_of(1, zeros));
    }
    CHECK(digest_of(1, std::vector<float>(99, 0.0F)) != digest_of(1, zeros));
}

TEST_CASE("state_digest: covers contract and last state of recurrent layers, where there are any") {
    const State plain = format::sample_state({});
    State state = plain;
    state.contract.recurrent = 1;
    const Digest none = state_digest(state);
    CHECK(none != plain.digest);
    state.states = {{10, plain.model.model, nullptr},
                    {state.log.size(), plain.model.head, nullptr}};
    const Digest last = state_digest(state);
    CHECK(last != none);
    state.states.erase(state.states.begin()); // a checkpoint decides nothing
    CHECK(state_digest(state) == last);
    state.states.back().digest = plain.model.norms;
    CHECK(state_digest(state) != last);
    state.contract.recurrent = 2;
    CHECK(state_digest(state) != last);
    State experts = plain;
    experts.contract.experts = 1;
    const Digest first = state_digest(experts);
    CHECK(first != plain.digest);
    experts.contract.experts = 2;
    CHECK(state_digest(experts) != first);
    CHECK(state_digest(plain) == plain.digest);
}
