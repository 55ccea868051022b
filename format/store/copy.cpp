// From a store, or from a file, to a new file; see store.h.
#include "format/existing.h"
#include "format/header.h"
#include "format/state/atomic_file.h"
#include "format/store/store.h"

namespace stasis::format {

void export_snapshot(const Snapshot &snapshot, const std::string &path, bool replace,
                     const Watch &watch, const FileOperations &files) {
    constexpr AtomicKind kSavedFile = {".saving", kMagic, 0600}; // as a save
    const std::optional<File> existing = lock_existing(files, path);
    if (existing && !replace) {
        fail(Status::invalid_argument,
             "%s: it is there, and not written to unless it may be replaced", path.c_str());
    }
    AtomicFile whole(files, path, kSavedFile, replace);
    Root root = snapshot.root();
    root.file_bytes = root.manifest_offset + section_bytes(root.manifest_bytes);
    const Block beginning[3] = {encode_header(), encode_slot(root), Block{}};
    whole.file().write(beginning, sizeof beginning, 0);
    std::vector<uint8_t> piece;
    for (uint64_t at = kSectionsBegin; at < root.file_bytes; at += piece.size()) {
        watch.step(at, root.file_bytes);
        piece.resize(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, root.file_bytes - at)));
        snapshot.input().read(piece.data(), piece.size(), at);
        whole.file().write(piece.data(), piece.size(), at);
        whole.file().begin_sync(at, piece.size());
    }
    whole.commit();
}

} // namespace stasis::format
