// Objects: those that are put once; see objects.h. Roots and lists are in roots.cpp.
#include "modules/s3/objects.h"

#include <algorithm>
#include <charconv>

namespace stasis_s3 {

namespace {

constexpr size_t kWithSize = size_t{1} << 20;  // of an object, that come with its size
constexpr size_t kPartBytes = size_t{4} << 20; // that one request reads
constexpr size_t kPartsAtOnce = 8;
constexpr size_t kFetchedMax = size_t{64} << 20, kSeenMax = 4096; // bytes, keys: remembered
constexpr size_t kUnseenMax = 256; // more than threads that are between a get and a put
constexpr int kRounds = 8;         // of a put whose object comes and goes

const char *const kMarker = ".stasis-store", *const kMarked = "stasis-store 1\n";

std::string range_header(uint64_t offset, uint64_t bytes) {
    return "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + bytes - 1);
}

// The number after '/' in "bytes 0-9/1234".
std::optional<uint64_t> total_of(const std::string &content_range) {
    const size_t slash = content_range.find('/');
    uint64_t total = 0;
    if (slash == std::string::npos) {
        return std::nullopt;
    }
    const char *const end = content_range.data() + content_range.size();
    const auto [read, problem] = std::from_chars(content_range.data() + slash + 1, end, total);
    return problem == std::errc() && read == end ? std::optional(total) : std::nullopt;
}

std::span<const uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

} // namespace

void Objects::open(bool existing) {
    const Question question{"GET", full(kMarker), ""};
    Answer answer = service_.ask(question);
    if (answer.status == 404 && answer.text.find("NoSuchBucket") == std::string::npos) {
        if (existing) {
            fail(STASIS_NOT_FOUND, "%s: there is no store", service_.settings().name().c_str());
        }
        make();
        answer = service_.ask(question);
    }
    if (answer.status != 200) {
        service_.refuse(question, answer);
    }
    if (!answer.text.starts_with("stasis-store ")) {
        fail(STASIS_INVALID_ARGUMENT, "%s%s: not the marker of a store",
             service_.settings().name().c_str(), kMarker);
    }
    if (answer.text != kMarked) {
        fail(STASIS_VERSION, "%s: a store of another version; this build knows '%.14s'",
             service_.settings().name().c_str(), kMarked);
    }
}

// Makes a store of an empty prefix, once it is known that the service keeps conditions: one that
// ignores them would lose sessions without a word.
void Objects::make() {
    if (!is_empty()) { // if another process has made it just now, the marker is read again
        const Question look{"HEAD", full(kMarker), ""};
        if (service_.ask(look).status == 200) {
            return;
        }
        fail(STASIS_INVALID_ARGUMENT, "%s: no store, and not empty",
             service_.settings().name().c_str());
    }
    const Question put{"PUT", full(kMarker), "", {{"if-none-match", "*"}}, bytes_of(kMarked)};
    const Question removal{
        "DELETE", full(kMarker), "", {{"if-match", "\"00000000000000000000000000000000\""}}};
    const Answer first = service_.ask(put);
    if (first.status != 200 && first.status != 412 && first.status != 409) {
        service_.refuse(put, first);
    }
    for (const Question &refused : {put, removal}) {
        const Answer answer = service_.ask(refused);
        if (answer.status >= 200 && answer.status < 300) {
            const Question undo{"DELETE", full(kMarker), ""};
            service_.ask(undo);
            fail(STASIS_UNSUPPORTED,
                 "%s: this service ignores %s of a %s, so that two writers would lose a session",
                 service_.settings().name().c_str(), refused.headers[0].first.c_str(),
                 refused.method);
        }
        if (answer.status != 412 && answer.status != 409) {
            service_.refuse(refused, answer);
        }
    }
}

std::optional<uint64_t> Objects::size(const std::string &key) {
    if (std::optional<Bytes> kept = cache_.get(key)) {
        const uint64_t size = kept->size();
        keep({key, std::move(*kept)});
        const std::lock_guard held(mutex_);
        unseen_.push_back(key);
        if (unseen_.size() > kUnseenMax) {
            unseen_.pop_front();
        }
        return size;
    }
    Bytes bytes(kWithSize);
    const Question question{"GET", full(key), "", {{"range", range_header(0, kWithSize)}},
                            {},    bytes};
    Answer answer = service_.ask(question);
    if (answer.status == 404) {
        return std::nullopt;
    }
    if (answer.status == 416) {
        return 0; // it has not even a first byte
    }
    const std::optional<uint64_t> total = total_of(answer.content_range);
    if (answer.status != 206 || !total ||
        answer.received != std::min<uint64_t>(*total, kWithSize)) {
        service_.refuse(question, answer);
    }
    if (answer.received == *total) {
        bytes.resize(answer.received);
        cache_.put(key, bytes);
        keep({key, std::move(bytes)});
    }
    return total;
}

void Objects::keep(Fetched fetched) {
    const std::lock_guard held(mutex_);
    uint64_t total = fetched.bytes.size();
    for (const Fetched &each : fetched_) {
        total += each.bytes.size();
    }
    for (; !fetched_.empty() && total > kFetchedMax; fetched_.pop_front()) {
        total -= fetched_.front().bytes.size();
    }
    fetched_.push_back(std::move(fetched));
}

std::optional<Bytes> Objects::take(const std::string &key, size_t bytes) {
    const std::lock_guard held(mutex_);
    for (auto each = fetched_.begin(); each != fetched_.end(); ++each) {
        if (each->key == key && each->bytes.size() == bytes) {
            Bytes found = std::move(each->bytes);
            fetched_.erase(each);
            return found;
        }
    }
    return std::nullopt;
}

bool Objects::read(const std::string &key, uint64_t offset, std::span<uint8_t> into) {
    if (into.empty()) { // is it there?
        const Question question{"HEAD", full(key), ""};
        const Answer answer = service_.ask(question);
        if (answer.status != 200 && answer.status != 404) {
            service_.refuse(question, answer);
        }
        const std::lock_guard held(mutex_);
        if (answer.status == 200 && seen_.size() < kSeenMax) {
            seen_.insert(key);
        } else {
            seen_.erase(key);
        }
        return answer.status == 200 && offset <= answer.content_length;
    }
    if (offset > UINT64_MAX / 4 || into.size() > UINT64_MAX / 4) {
        return false;
    }
    if (offset == 0) {
        if (const std::optional<Bytes> bytes = take(key, into.size())) {
            std::copy(bytes->begin(), bytes->end(), into.begin());
            return true;
        }
    }
    if (const std::optional<Bytes> kept = cache_.get(key)) {
        if (offset > kept->size() || into.size() > kept->size() - offset) {
            return false;
        }
        std::copy_n(kept->begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
        return true;
    }
    const size_t step = kPartBytes * kPartsAtOnce;
    for (size_t done = 0; done < into.size(); done += step) {
        if (!read_parts(key, offset + done,
                        into.subspan(done, std::min(step, into.size() - done)))) {
            return false;
        }
    }
    if (offset == 0) { // perhaps all of it
        cache_.put(key, into);
    }
    return true;
}

// Reads a range in parts, side by side.
bool Objects::read_parts(const std::string &key, uint64_t offset, std::span<uint8_t> into) {
    std::vector<Question> questions;
    for (size_t done = 0; done < into.size(); done += kPartBytes) {
        const size_t bytes = std::min(kPartBytes, into.size() - done);
        questions.push_back({"GET",
                             full(key),
                             "",
                             {{"range", range_header(offset + done, bytes)}},
                             {},
                             into.subspan(done, bytes)});
    }
    const std::vector<Answer> answers = service_.ask(questions);
    for (size_t i = 0; i < answers.size(); ++i) {
        if (answers[i].status == 404 || answers[i].status == 416) {
            return false;
        }
        if (answers[i].status != 206) {
            service_.refuse(questions[i], answers[i]);
        }
        if (answers[i].received != questions[i].into.size()) {
            return false;
        }
    }
    return true;
}

// Copies an object to itself, by which its age begins anew. False: it is not there.
bool Objects::touch(const std::string &key) {
    const Settings &settings = service_.settings();
    const Question question{"PUT",
                            full(key),
                            "",
                            {{"x-amz-copy-source", "/" + settings.bucket + "/" + full(key)},
                             {"x-amz-metadata-directive", "REPLACE"}}};
    const Answer answer = service_.ask(question);
    if (answer.status == 404) {
        return false;
    }
    // A copy that fails late is a 200 with an error for its text.
    if (answer.status != 200 || answer.text.find("<Error>") != std::string::npos) {
        service_.refuse(question, answer);
    }
    return true;
}

void Objects::put(const std::string &key, std::span<const uint8_t> bytes) {
    bool there = false, unseen = false;
    {
        const std::lock_guard held(mutex_);
        there = seen_.erase(key) != 0;
        unseen = std::erase(unseen_, key) != 0;
    }
    // A repair has compared what the cache holds: what the service holds may be damaged.
    if (unseen) {
        replace(key, bytes);
        return;
    }
    const Question question{"PUT", full(key), "", {{"if-none-match", "*"}}, bytes};
    for (int round = 0; round < kRounds; ++round) {
        if (there && touch(key)) {
            return;
        }
        const Answer answer = service_.ask(question);
        if (answer.status == 200) {
            cache_.put(key, bytes);
            return;
        }
        // 409: another writer is putting it at this moment.
        if (answer.status != 412 && answer.status != 409) {
            service_.refuse(question, answer);
        }
        there = answer.status == 412;
    }
    fail(STASIS_IO, "s3: %s: it came and went %d times while it was put", key.c_str(), kRounds);
}

void Objects::replace(const std::string &key, std::span<const uint8_t> bytes) {
    const Question question{"PUT", full(key), "", {}, bytes};
    const Answer answer = service_.ask(question);
    if (answer.status != 200) {
        service_.refuse(question, answer);
    }
    cache_.put(key, bytes);
}

void Objects::remove(const std::string &key) {
    const Question question{"DELETE", full(key), ""};
    const Answer answer = service_.ask(question);
    if (answer.status != 204 && answer.status != 200 && answer.status != 404) {
        service_.refuse(question, answer);
    }
    const std::lock_guard held(mutex_);
    seen_.erase(key);
}

} // namespace stasis_s3
