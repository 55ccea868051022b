// Marking and removing; see collect.h.
#include "format/store/collect.h"

#include <cstring>
#include <map>
#include <set>

#include "format/store/ranges.h"
#include "format/store/records.h"

namespace stasis::format {

namespace {

// Digests are spread evenly by themselves.
struct Less {
    bool operator()(const Digest &a, const Digest &b) const { return a.bytes < b.bytes; }
};

struct Marks {
    Backend &backend;
    const Watch watch;
    std::set<Digest, Less> marked = {};
    std::map<std::string, std::string> roots = {}; // marks of those that were followed

    void follow(const StoredRoot &root) {
        for (size_t i = 0; i < root.segments.size(); ++i) {
            watch.step(0, 0);
            if (!marked.contains(root.segments[i].digest)) {
                for (const Extent &extent : get_segment(backend, root, i, watch).payloads) {
                    marked.insert(extent.digest);
                }
                marked.insert(root.segments[i].digest); // after its payloads: an error leaves it
            }
        }
    }

    // Follows one root. One that was replaced while it was followed is read again: its segments
    // may be gone.
    void follow(const std::string &key) {
        for (;;) {
            const std::optional<Marked> stored = backend.get_marked(key, watch);
            const auto before = roots.find(key);
            if (!stored || (before != roots.end() && before->second == stored->mark)) {
                return;
            }
            try {
                follow(decode_stored_root(stored->bytes, key));
                roots[key] = stored->mark;
                return;
            } catch (const Error &error) {
                const std::optional<Marked> again = backend.get_marked(key, watch);
                if (error.status() != Status::corrupt || (again && again->mark == stored->mark)) {
                    throw;
                }
            }
        }
    }

    // Follows all roots that were not followed as they are now.
    void follow_all() {
        std::vector<std::string> keys;
        const auto visit = [&](const ListedObject &object) {
            keys.push_back(object.key);
            return true;
        };
        backend.list(kRootPrefix, visit, watch);
        for (const std::string &key : keys) {
            follow(key);
        }
    }
};

} // namespace

Collected collect(Backend &backend, const CollectOptions &options) {
    Collected collected;
    Marks marks{backend, options.watch.silent()};
    marks.follow_all();

    // What there is now and nothing refers to. Objects that are put from here on stay.
    std::map<std::string, uint64_t> unmarked;
    const auto survey = [&](const ListedObject &object) {
        options.watch.step(0, 0);
        collected.objects += 1;
        collected.bytes += object.bytes;
        const std::optional<Digest> digest = digest_of_key(object.key);
        if (digest && !marks.marked.contains(*digest)) {
            unmarked[object.key] = object.bytes;
        }
        return true;
    };
    backend.list(kObjectPrefix, survey, options.watch.silent());

    // Sessions that were put meanwhile may refer to it: all that had begun have ended once the lock
    // is there.
    const std::unique_ptr<BackendLock> lock = backend.lock_to_collect(options.watch.silent());
    marks.follow_all();
    collected.sessions = marks.roots.size();
    const auto remove = [&](const std::string &key, uint64_t bytes) {
        options.watch.step(collected.removed, unmarked.size());
        const std::optional<Digest> digest = digest_of_key(key);
        if (digest && !marks.marked.contains(*digest)) {
            backend.remove(key, options.watch.silent());
            collected.removed += 1;
            collected.removed_bytes += bytes;
        }
    };
    if (lock) {
        for (const auto &[key, bytes] : unmarked) {
            remove(key, bytes);
        }
        return collected;
    }
    // Ages are read once more, directly before.
    const auto remove_old = [&](const ListedObject &object) {
        if (unmarked.contains(object.key) && object.age_seconds &&
            *object.age_seconds >= options.grace_seconds) {
            remove(object.key, object.bytes);
        }
        return true;
    };
    backend.list(kObjectPrefix, remove_old, options.watch.silent());
    return collected;
}

} // namespace stasis::format
