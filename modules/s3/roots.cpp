// Roots, which are replaced, and lists; see objects.h.
#include <algorithm>
#include <charconv>

#include "modules/s3/objects.h"
#include "modules/s3/sign.h"

namespace stasis_s3 {

namespace {

constexpr int kRounds = 8;                    // of a swap whose root others are touching
constexpr size_t kRootMax = size_t{64} << 20; // bytes
constexpr size_t kListMax = size_t{16} << 20; // of an answer with 1000 keys
constexpr size_t kMarkMax = 127;

bool is_refused(long status) { // the condition did not hold, or others are at it
    return status == 412 || status == 409 || status == 404;
}

// What a header can hold: an empty one would not be sent, and with it the condition.
bool can_be_mark(const std::string &mark) {
    return !mark.empty() && mark.size() <= kMarkMax &&
           std::all_of(mark.begin(), mark.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string checked_mark(const Service &service, const Question &question, const Answer &answer) {
    if (!can_be_mark(answer.etag)) {
        service.refuse(question, answer);
    }
    return answer.etag;
}

std::string list_query(const std::string &prefix, const std::string &after, int keys_max) {
    std::string query;
    if (!after.empty()) {
        query += "continuation-token=" + encoded(after, false) + "&";
    }
    query += "list-type=2&max-keys=" + std::to_string(keys_max);
    return query + "&prefix=" + encoded(prefix, false);
}

} // namespace

std::optional<Root> Objects::get_root(const std::string &key) {
    const Question question{"GET", full(key), "", {}, {}, {}, kRootMax};
    Answer answer = service_.ask(question);
    if (answer.status == 404) {
        return std::nullopt;
    }
    if (answer.status != 200) {
        service_.refuse(question, answer);
    }
    std::string mark = checked_mark(service_, question, answer);
    return Root{std::move(answer.text), std::move(mark)};
}

std::optional<std::string> Objects::swap(const std::string &key,
                                         const std::optional<std::string> &mark,
                                         std::span<const uint8_t> bytes) {
    Question question{"PUT", full(key), "", {}, bytes};
    if (mark && !can_be_mark(*mark)) {
        return std::nullopt;
    }
    if (mark) {
        question.headers = {{"if-match", *mark}};
    } else {
        question.headers = {{"if-none-match", "*"}};
    }
    bool repeated = false; // an earlier try may have been carried out
    for (int round = 0; round < kRounds; ++round) {
        const Answer answer = service_.ask(question);
        if (answer.status == 200) {
            return checked_mark(service_, question, answer);
        }
        if (!is_refused(answer.status) ||
            (answer.status == 404 && answer.text.find("NoSuchBucket") != std::string::npos)) {
            service_.refuse(question, answer);
        }
        repeated = repeated || answer.repeated;
        if (!repeated && answer.status != 409) {
            return std::nullopt;
        }
        // What is there decides: these bytes, then they were put; what was to be replaced still,
        // then nobody has.
        const std::optional<Root> there = get_root(key);
        if (repeated && there && there->bytes.size() == bytes.size() &&
            std::equal(bytes.begin(), bytes.end(), there->bytes.begin(),
                       [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); })) {
            return there->mark;
        }
        const bool unchanged =
            there.has_value() == mark.has_value() && (!there || there->mark == *mark);
        if (!unchanged) {
            return std::nullopt;
        }
    }
    return std::nullopt;
}

bool Objects::remove_root(const std::string &key, const std::string &mark) {
    if (!can_be_mark(mark)) {
        return false;
    }
    const Question question{"DELETE", full(key), "", {{"if-match", mark}}};
    for (int round = 0; round < kRounds; ++round) {
        const Answer answer = service_.ask(question);
        if (answer.status == 204 || answer.status == 200) {
            return true;
        }
        if (!is_refused(answer.status)) {
            service_.refuse(question, answer);
        }
        if (!answer.repeated && answer.status != 409) {
            return false;
        }
        const std::optional<Root> there = get_root(key);
        if (!there) {
            return answer.repeated; // it was removed, by the try whose answer was lost
        }
        if (there->mark != mark) {
            return false;
        }
    }
    return false;
}

bool Objects::is_empty() {
    const Question question{"GET", "", list_query(service_.settings().prefix, "", 1)};
    const Answer answer = service_.ask(question);
    Element root;
    if (answer.status != 200 || !read_xml(answer.text, root)) {
        service_.refuse(question, answer);
    }
    return root.text_of("KeyCount") == "0" ||
           std::none_of(root.children.begin(), root.children.end(),
                        [](const Element &each) { return each.name == "Contents"; });
}

void Objects::list(
    const std::string &prefix,
    const std::function<bool(const std::string &key, uint64_t bytes, uint64_t age)> &visit) {
    const std::string &outer = service_.settings().prefix;
    std::string after;
    do { // by parts, each read whole before the visitor sees it
        const Question question{"GET", "",      list_query(full(prefix), after, 1000), {}, {},
                                {},    kListMax};
        const Answer answer = service_.ask(question);
        Element root;
        if (answer.status != 200 || !read_xml(answer.text, root) ||
            root.name != "ListBucketResult") {
            service_.refuse(question, answer);
        }
        for (const Element &each : root.children) {
            const std::string_view whole = each.text_of("Key");
            if (each.name != "Contents" || !whole.starts_with(outer)) {
                continue;
            }
            const std::string key(whole.substr(outer.size()));
            const std::string_view size = each.text_of("Size");
            uint64_t bytes = 0;
            const auto [read, problem] =
                std::from_chars(size.data(), size.data() + size.size(), bytes);
            const std::optional<int64_t> put = xml_date(each.text_of("LastModified"));
            if (problem != std::errc() || !put || answer.date == 0) {
                fail(STASIS_IO, "s3: a list without the size or the time of %s", key.c_str());
            }
            // What is no key is not of the store: its marker too.
            const auto age = static_cast<uint64_t>(std::max<int64_t>(0, answer.date - *put));
            if (is_key(key) && key.starts_with(prefix) && !visit(key, bytes, age)) {
                return;
            }
        }
        const std::string next(root.text_of("NextContinuationToken"));
        if (root.text_of("IsTruncated") == "true" && (next.empty() || next == after)) {
            service_.refuse(question, answer);
        }
        after = root.text_of("IsTruncated") == "true" ? next : "";
    } while (!after.empty());
}

} // namespace stasis_s3
