// Settings to items of a tree and back; see settings.h.
#include "format/settings.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "format/constants.h"
#include "format/set_code.h"
#include "format/state/error.h"
#include "format/state/token_set.h"

namespace stasis::format {

namespace {

constexpr size_t kItemBytes = 16; // before its code
constexpr size_t kLookBack = 8;   // sets that a set is compared with

const std::string *set_of(const Sampling &sampling) {
    return sampling.v3.allowed.value.get();
}

// What settings hold again if another item has the same index in the manifest: in memory, and as
// JSON, which takes more.
uint64_t shared_bytes(const Sampling &sampling) {
    return 128 * sampling.bias.size() + 16 * sampling.v2.dry_breakers.size();
}

// What the items so far take, and what the settings made of them hold.
struct Account {
    uint64_t items = 0, held = 0;

    bool fits(uint64_t item, uint64_t more) const {
        return (held + more) / kSettingsRatioMax <= items + item;
    }
    void add(uint64_t item, uint64_t more) {
        items += item;
        held += more;
    }
};

// Makes the items one after the other.
class Listing {
  public:
    explicit Listing(const State &state) : state_(state) {}

    // The next settings, whose item is known.
    void keep(const SettingRecord &record) {
        const Sampling &sampling = state_.samplings[records_.size()];
        uint64_t held = record.plain < plain_ ? shared_bytes(sampling) : 0;
        if (record.plain == plain_) {
            plains_[hash_of_plain(sampling)] = static_cast<uint32_t>(records_.size());
            ++plain_;
        }
        held += record.edges > 0 ? set_of(sampling)->size() : 0;
        account_.add(kItemBytes + record.code.size(), held);
        note_set();
        records_.push_back(record);
    }
    void make() {
        const Sampling &sampling = state_.samplings[records_.size()];
        SettingRecord record;
        uint64_t held = find_plain(sampling, record);
        if (const std::string *set = set_of(sampling)) {
            held += tell(*set, held, record);
        }
        account_.add(kItemBytes + record.code.size(), held);
        note_set();
        records_.push_back(std::move(record));
    }
    std::vector<SettingRecord> take() { return std::move(records_); }

  private:
    static uint64_t hash_of_plain(Sampling sampling) {
        sampling.v3.allowed = {};
        return sampling_hash(sampling);
    }
    // Equal but for the set.
    static bool same_plain(const Sampling &a, const Sampling &b) {
        Sampling copy = a;
        copy.v3.allowed = b.v3.allowed;
        return copy == b;
    }
    // Sets the index in the manifest, and returns what is held again.
    uint64_t find_plain(const Sampling &sampling, SettingRecord &record) {
        const uint64_t hash = hash_of_plain(sampling);
        const auto found = plains_.find(hash);
        if (found != plains_.end() && same_plain(state_.samplings[found->second], sampling) &&
            account_.fits(kItemBytes, shared_bytes(sampling))) {
            record.plain = records_[found->second].plain;
            return shared_bytes(sampling);
        }
        plains_[hash] = static_cast<uint32_t>(records_.size());
        record.plain = plain_++;
        return 0;
    }
    // Tells a set by what it differs in from the set before that is most like it. Returns what it
    // holds.
    uint64_t tell(const std::string &set, uint64_t held, SettingRecord &record) const {
        const auto index = static_cast<uint32_t>(records_.size());
        if (const auto equal = sets_.find(set); equal != sets_.end()) {
            record.from = index - equal->second;
            return 0;
        }
        size_t least = count_difference({}, set, state_.vocabulary);
        for (auto recent = recent_.rbegin(); recent != recent_.rend(); ++recent) {
            const std::string &other = *set_of(state_.samplings[*recent]);
            if (const size_t count = count_difference(other, set, state_.vocabulary);
                count < least) {
                least = count;
                record.from = index - *recent;
            }
        }
        encode(set, record);
        if (!account_.fits(kItemBytes + record.code.size(), held + set.size())) {
            record.from = 0; // by itself: this always fits
            encode(set, record);
        }
        return set.size();
    }
    void encode(const std::string &set, SettingRecord &record) const {
        const std::string *other =
            record.from == 0 ? nullptr : set_of(state_.samplings[records_.size() - record.from]);
        const TokenRuns runs =
            difference(other == nullptr ? std::string_view() : *other, set, state_.vocabulary);
        record.edges = static_cast<uint32_t>(runs.size());
        record.code = encode_runs(runs);
    }
    // Lets sets that come later be told from that of the next item.
    void note_set() {
        const auto index = static_cast<uint32_t>(records_.size());
        const std::string *set = set_of(state_.samplings[index]);
        if (set != nullptr && sets_.emplace(*set, index).second) {
            recent_.push_back(index);
            if (recent_.size() > kLookBack) {
                recent_.erase(recent_.begin());
            }
        }
    }

    const State &state_;
    std::vector<SettingRecord> records_;
    Account account_;
    uint32_t plain_ = 0; // so many are in the manifest
    // Ordered, so that no choice of settings takes more time than another.
    std::map<uint64_t, uint32_t> plains_;       // hash, the item that named it last anew
    std::map<std::string_view, uint32_t> sets_; // the item that had it first
    std::vector<uint32_t> recent_;              // items with sets
};

[[noreturn]] void fail_item(size_t index, const char *why) {
    fail(Status::corrupt, "sampling settings: item %zu: %s", index, why);
}

// Returns the set of an item, of which those before have theirs; null: none.
std::shared_ptr<const std::string>
read_set(const SettingRecord &record, const std::vector<Sampling> &before, uint32_t vocabulary) {
    const size_t index = before.size();
    std::shared_ptr<const std::string> other;
    if (record.from > 0) {
        other = record.from <= index ? before[index - record.from].v3.allowed.value : nullptr;
        if (other == nullptr) {
            fail_item(index, "it is told from a set that is not there");
        }
    }
    if (record.edges == 0) {
        if (!record.code.empty()) {
            fail_item(index, "a code of nothing");
        }
        return other;
    }
    const TokenRuns runs = decode_runs(record.code, record.edges, vocabulary);
    if (runs.empty()) {
        fail_item(index, "its code is not of so many runs of tokens");
    }
    return std::make_shared<const std::string>(other == nullptr
                                                   ? encode_tokens(runs, vocabulary)
                                                   : changed_tokens(*other, runs, vocabulary));
}

} // namespace

std::vector<SettingRecord> list_settings(const State &state, const std::vector<Sampling> &before,
                                         const std::vector<SettingRecord> &known) {
    if (state.vocabulary > kSettingsVocabularyMax ||
        std::none_of(state.samplings.begin(), state.samplings.end(), set_of)) {
        return {};
    }
    Listing listing(state);
    size_t i = 0;
    for (; i < std::min({known.size(), before.size(), state.samplings.size()}) &&
           before[i] == state.samplings[i];
         ++i) {
        listing.keep(known[i]);
    }
    for (; i < state.samplings.size(); ++i) {
        listing.make();
    }
    return listing.take();
}

std::vector<uint32_t> plain_settings(const std::vector<SettingRecord> &settings) {
    std::vector<uint32_t> plain;
    plain.reserve(settings.size());
    for (const SettingRecord &each : settings) {
        plain.push_back(each.plain);
    }
    return plain;
}

void read_settings(const std::vector<SettingRecord> &settings, State &state) {
    const std::vector<Sampling> &plain = state.samplings;
    std::vector<Sampling> samplings;
    samplings.reserve(settings.size());
    if (state.vocabulary > kSettingsVocabularyMax ||
        std::any_of(plain.begin(), plain.end(), set_of)) {
        fail(Status::corrupt,
             "sampling settings: items with sets beside sets in the manifest, or for a vocabulary "
             "of %u",
             state.vocabulary);
    }
    Account account;
    size_t used = 0, sets = 0;
    for (const SettingRecord &record : settings) {
        const size_t index = samplings.size();
        if (record.plain > used || record.plain >= plain.size()) {
            fail_item(index, "it names settings that the manifest does not have, or out of order");
        }
        account.add(kItemBytes + record.code.size(),
                    record.plain < used ? shared_bytes(plain[record.plain]) : 0);
        used = std::max<size_t>(used, record.plain + size_t{1});
        std::shared_ptr<const std::string> set = read_set(record, samplings, state.vocabulary);
        account.held += record.edges > 0 ? set->size() : 0;
        if (!account.fits(0, 0)) {
            fail_item(index, "the items so far are too short for what they say");
        }
        sets += set != nullptr ? 1 : 0;
        samplings.push_back(plain[record.plain]);
        samplings.back().v3.allowed.value = std::move(set);
    }
    if (used != plain.size() || sets == 0) {
        fail(Status::corrupt, "sampling settings: %zu of %zu in the manifest are named, %zu sets",
             used, plain.size(), sets);
    }
    state.samplings = std::move(samplings);
}

} // namespace stasis::format
