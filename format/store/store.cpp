// Putting, opening and naming sessions; see store.h.
#include "format/store/store.h"

#include <algorithm>

#include "format/naming.h"
#include "format/store/merging.h"

namespace stasis::format {

namespace {

Digest record_digest(const Bytes &bytes) {
    return Sha256().bytes(bytes.data(), bytes.size()).finish();
}

// The bytes of a virtual file that its state refers to, frames and padding included.
uint64_t live_bytes(const Contents &contents) {
    const Layout &layout = contents.layout;
    uint64_t live = section_bytes(contents.root.manifest_bytes);
    const auto add = [&](const SectionRef &ref) {
        live += ref.offset != 0 ? section_bytes(ref.bytes) : 0;
    };
    add(layout.identity);
    add(layout.hidden);
    add(layout.logits_row);
    add(layout.evictions);
    add(layout.host_data);
    std::for_each(contents.host_values.begin(), contents.host_values.end(), add);
    const auto add_tree = [&](const StoredTree &tree) {
        for (const std::vector<NodeRef> &level : tree.levels) {
            for (const NodeRef &node : level) {
                live += node.bytes;
            }
        }
    };
    add_tree(contents.trees.log);
    add_tree(contents.trees.texts);
    add_tree(contents.trees.settings);
    std::for_each(contents.trees.pages.begin(), contents.trees.pages.end(), add_tree);
    for (const StateRef &ref : layout.states) {
        live += ref.offset != 0 ? section_bytes(ref.stored_bytes) : 0;
    }
    for (const std::vector<PageRecord> &pages : contents.pages) {
        for (const PageRecord &page : pages) {
            for (const Run &run : page.runs) {
                live += section_bytes(run.stored_bytes);
            }
        }
    }
    return live;
}

// Whether more than half of the virtual file is dead, so that writing it anew costs no more than
// was written since it was last.
bool mostly_dead(const Snapshot &old) {
    constexpr uint64_t kSlack = uint64_t{64} << 10;
    const uint64_t live = live_bytes(*old.contents());
    const uint64_t total = old.file_bytes() - kSectionsBegin;
    return total > live && total - live > live + kSlack;
}

// Whether the state may follow the stored one in its virtual file.
bool continues(const Snapshot &old, const State &state) {
    const std::vector<TokenEntry> &log = old.state().log;
    return old.root().sequence != UINT64_MAX && old.state().model.model == state.model.model &&
           (log.empty() || state.log.empty() || log[0].token == state.log[0].token);
}

// Throws Error(corrupt) if a segment is missing, or damaged: one that a put names again, though it
// reads nothing of it. Large ones are only asked for, as to read them costs more than a short turn.
void check_segments(Backend &backend, const StoredRoot &root, const SaveOptions &save) {
    constexpr uint64_t kReadMax = uint64_t{1} << 20;
    const Watch watch = save.watch.silent();
    for_each(save.parallel, root.segments.size(), [&](size_t i) {
        const SegmentRef &ref = root.segments[i];
        if (ref.object_bytes <= kReadMax) {
            get_segment(backend, root, i, watch);
        } else if (const std::string key = object_key(ref.digest);
                   !backend.read(key, 0, {}, watch)) {
            fail(Status::corrupt, "%s: the object is missing", key.c_str());
        }
    });
}

// A stored root of this state.
void describe(const Contents &contents, const State &state, StoredRoot &root) {
    root.root = encode_root(contents.root);
    root.position = state.log.size();
    root.state = state.digest;
    root.model = state.model.model;
}

} // namespace

// The root of a name, as it was read.
struct Store::Current {
    std::string name;
    std::optional<Marked> stored = {};
    std::optional<StoredRoot> root = {}; // nothing: there is none, or it is damaged
    std::optional<Error> damage = {};

    Digest digest() const { return root ? root->digest() : Digest(); }
    void require() const {
        if (!stored) {
            fail(Status::not_found, "the store has no session '%s'", name.c_str());
        }
        if (damage) {
            throw Error(*damage);
        }
    }
};

Store::Current Store::current(const std::string &name, const Watch &watch) const {
    const std::string key = root_key(name);
    Current current{name, backend_->get_marked(key, watch)};
    if (current.stored) {
        try {
            current.root = decode_stored_root(current.stored->bytes, key);
        } catch (const Error &error) {
            current.damage = error;
        }
    }
    return current;
}

void Store::check_expected(const Current &current, const StorePutOptions &options) const {
    if (options.overwrite) {
        return;
    }
    if (current.stored && current.damage) {
        throw Error(*current.damage);
    }
    const bool attempted = current.stored && options.attempted != nullptr && *options.attempted &&
                           record_digest(current.stored->bytes) == **options.attempted;
    if (attempted) {
        return;
    }
    if (options.expected && !current.stored) {
        throw Conflict("session '" + current.name + "': it is no longer in the store", {}, {});
    }
    if (current.stored &&
        (!options.expected || record_digest(current.stored->bytes) != *options.expected)) {
        throw Conflict("session '" + current.name + "': the store holds root " +
                           to_hex(current.digest()) + ", of " +
                           std::to_string(current.root->position) +
                           " positions, which this session neither put nor got",
                       current.digest(), current.root->state);
    }
}

// Replaces the root. Returns the mark of the new one.
Digest Store::swap(const StoredRoot &root, Current current, const StorePutOptions &options) const {
    constexpr int kAttempts = 64; // of others that replace it at the same time
    const Bytes bytes = encode_stored_root(root);
    const std::string key = root_key(root.name);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        options.save.watch.look(0, 0);
        if (options.attempted != nullptr) {
            *options.attempted = record_digest(bytes);
        }
        const std::optional<std::string> mark =
            current.stored ? std::optional(current.stored->mark) : std::nullopt;
        if (backend_->swap(key, mark, bytes, options.save.watch)) {
            return record_digest(bytes);
        }
        current = this->current(root.name, options.save.watch);
        check_expected(current, options);
    }
    fail(Status::busy, "session '%s': others replace it all the time", root.name.c_str());
}

// Returns the session whose pages a new virtual file may refer to; nothing: there is none, or it is
// damaged or of another model. The caller holds the lock of writers.
std::optional<StoredSession> Store::lender(const State &state,
                                           const StorePutOptions &options) const {
    if (options.lender.empty()) {
        return std::nullopt;
    }
    try {
        StoredSession lender =
            open(options.lender, options.lender_known, options.save.watch, options.save.parallel);
        if (lender.snapshot->state().model.model == state.model.model) {
            return lender;
        }
    } catch (const Error &error) {
        if (error.status() != Status::corrupt && error.status() != Status::version &&
            error.status() != Status::not_found && error.status() != Status::io) {
            throw;
        }
    }
    return std::nullopt;
}

// Writes all but the root, which it fills in: what the stored session lacks, or a whole new one.
StorePut Store::write(const State &state, const Current &current, const StorePutOptions &options,
                      bool whole, StoredRoot &root) const {
    std::shared_ptr<const StoredRanges> ranges;
    std::shared_ptr<const Snapshot> old;
    uint64_t sequence = 1;
    if (current.root) {
        ranges = std::make_shared<StoredRanges>(backend_, *current.root, options.save.parallel);
        sequence = std::max<uint64_t>(current.root->sequence() + 1, 1);
    }
    if (ranges && !whole) {
        old = Snapshot::open_root(Input(ranges), current.root->root, options.save.known,
                                  options.save.watch);
        if (!options.overwrite) {
            check_known_features(*old);
        }
        if (!continues(*old, state) || mostly_dead(*old) ||
            (old->root().features_read & ~kFeaturesReadKnown) != 0) {
            old = nullptr;
        }
    }
    if (old && old->known()) {
        check_segments(*backend_, *current.root, options.save);
    }

    std::optional<StoredSession> lender;
    SaveOptions save = options.save;
    if (!old && !whole) {
        lender = this->lender(state, options);
        save.lender = lender ? lender->snapshot.get() : nullptr;
    }
    root.segments = old ? current.root->segments : std::vector<SegmentRef>();
    SegmentSink sink(*backend_, root.end(), options.save.parallel, options.save.watch,
                     options.repair || whole, lender ? lender->ranges.get() : nullptr);
    StorePut put;
    try {
        put.contents = write_sections(state, old.get(), sequence, sink.sink(), save);
    } catch (const Error &error) {
        if (error.status() != Status::io || !lender || !lender->ranges->failed()) {
            throw;
        }
        // A lender that cannot be read now says nothing of what is stored: it is done without.
        StorePutOptions alone = options;
        alone.lender.clear();
        return write(state, current, alone, whole, root);
    }
    Segment last = sink.finish();
    root.segments.insert(root.segments.end(), sink.segments().begin(), sink.segments().end());
    put.counts = sink.counts();
    // Another session that began alike may have put this segment, and it may be damaged by now.
    const bool repair = options.repair || whole || !old;
    add_merged(*backend_, root, std::move(last), put.counts, repair, options.save.watch);
    describe(*put.contents, state, root);
    return put;
}

StorePut Store::put(const State &state, const std::string &name,
                    const StorePutOptions &given) const {
    StorePutOptions options = given;
    const std::unique_ptr<BackendLock> lock = backend_->lock_to_write(options.save.watch);
    if (lock == nullptr) {
        options.lender.clear(); // each payload must be put, for a collection goes by its age
    }
    Current current = this->current(name, options.save.watch);
    check_expected(current, options);
    StoredRoot root;
    root.name = name;
    StorePut put;
    try {
        put = write(state, current, options, options.repair || current.damage, root);
    } catch (const Error &error) {
        // Some of what is stored is lost, and this session has all of it; or it may be overwritten.
        const bool unknown = error.status() == Status::version && options.overwrite;
        if ((error.status() != Status::corrupt && !unknown) || options.repair ||
            (!current.root && options.lender.empty())) {
            throw;
        }
        put = write(state, current, options, true, root);
    }
    put.counts.written += encode_stored_root(root).size();
    put.mark = swap(root, std::move(current), options);
    return put;
}

StoredSession Store::open(const std::string &name, const std::shared_ptr<const Contents> &known,
                          const Watch &watch, const Parallel &parallel) const {
    const Current current = this->current(name, watch);
    current.require();
    StoredSession opened;
    opened.ranges = std::make_shared<StoredRanges>(backend_, *current.root, parallel);
    opened.snapshot = Snapshot::open_root(Input(opened.ranges), current.root->root, known, watch);
    opened.mark = record_digest(current.stored->bytes);
    const State &state = opened.snapshot->state();
    if (state.digest != current.root->state || state.log.size() != current.root->position ||
        state.model.model != current.root->model) {
        fail(Status::corrupt,
             "%s: its root says %llu positions of state %s, its manifest %zu of %s",
             opened.ranges->name().c_str(), static_cast<Number>(current.root->position),
             to_hex(current.root->state).c_str(), state.log.size(), to_hex(state.digest).c_str());
    }
    return opened;
}

void Store::list(const std::function<bool(const ListedSession &)> &visit,
                 const Watch &watch) const {
    watch.look(0, 0);
    backend_->list(
        kRootPrefix,
        [&](const ListedObject &object) {
            watch.look(0, 0);
            const std::optional<Marked> stored = backend_->get_marked(object.key, watch);
            if (!stored) {
                return true; // removed meanwhile
            }
            ListedSession listed;
            try {
                const StoredRoot root = decode_stored_root(stored->bytes, object.key);
                listed = {root.name,     root.digest(), root.state, root.model,
                          root.position, root.end(),    {}};
            } catch (const Error &error) {
                listed.name = object.key;
                listed.damage = error.what();
            }
            return visit(listed);
        },
        watch);
}

void Store::remove(const std::string &name, const Watch &watch) const {
    watch.look(0, 0);
    const Current current = this->current(name, watch);
    if (!current.stored) {
        current.require();
    }
    if (!backend_->remove_marked(root_key(name), current.stored->mark, watch)) {
        fail(Status::conflict, "session '%s': it was replaced meanwhile", name.c_str());
    }
}

void Store::fork(const std::string &from, const std::string &to, bool overwrite,
                 const Watch &watch) const {
    const std::unique_ptr<BackendLock> lock = backend_->lock_to_write(watch);
    const Current source = current(from, watch);
    source.require();
    StorePutOptions options;
    options.overwrite = overwrite;
    options.save.watch = watch;
    Current target = current(to, watch);
    check_expected(target, options);
    StoredRoot root = *source.root;
    root.name = to;
    swap(root, std::move(target), options);
}

StorePut Store::import(const Snapshot &snapshot, const std::string &name,
                       const StorePutOptions &options) const {
    snapshot.require_newest();
    const std::unique_ptr<BackendLock> lock = backend_->lock_to_write(options.save.watch);
    Current current = this->current(name, options.save.watch);
    check_expected(current, options);
    SegmentSink sink(*backend_, kSectionsBegin, options.save.parallel, options.save.watch,
                     options.repair);
    // Up to the manifest, which is the last section: a trailer is not needed.
    StoredRoot root;
    root.name = name;
    Root state = snapshot.root();
    state.file_bytes = state.manifest_offset + section_bytes(state.manifest_bytes);
    const Sink to = sink.sink();
    Segment last;
    naming(snapshot.input().path(), [&] {
        Bytes piece;
        for (uint64_t at = kSectionsBegin; at < state.file_bytes; at += piece.size()) {
            options.save.watch.step(at, state.file_bytes);
            piece.resize(
                static_cast<size_t>(std::min<uint64_t>(kChunkBytes, state.file_bytes - at)));
            snapshot.input().read(piece.data(), piece.size(), at);
            to.write(to.user, piece.data(), piece.size());
        }
        // Dead bytes are read here for the first time: a section of them may say any length.
        last = sink.finish();
        if (last.end != state.file_bytes) {
            fail(Status::corrupt, "its sections end at byte %llu, its manifest at %llu",
                 static_cast<Number>(last.end), static_cast<Number>(state.file_bytes));
        }
    });
    StorePut put;
    root.segments = sink.segments();
    put.counts = sink.counts();
    add_merged(*backend_, root, std::move(last), put.counts, true, options.save.watch);
    const auto contents = std::make_shared<Contents>(*snapshot.contents());
    contents->root = state;
    contents->stamp = std::nullopt;
    describe(*contents, snapshot.state(), root);
    put.contents = contents;
    put.counts.written += encode_stored_root(root).size();
    put.mark = swap(root, std::move(current), options);
    return put;
}

} // namespace stasis::format
