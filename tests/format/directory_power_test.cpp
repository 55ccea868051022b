// The directory as a store on a disk whose power goes: what was reported done is there, and nothing
// is torn.
#include <cerrno>
#include <cstring>

#include "backends.h"
#include "disk.h"

using namespace stasis;
using namespace stasis::format;

namespace {

using Rows = std::map<std::string, Bytes>;

const Bytes kPowerOld = whole_bytes(1, 700), kPowerRoot = whole_bytes(2, 900),
            kPowerNew = whole_bytes(3, 1800), kPowerNext = whole_bytes(4, 1100);

struct PowerCase {
    const char *name;
    std::function<void(Backend &)> call;
    Rows before, after;
    bool lasts = true; // what it did survives; a removal without mark need not
};

std::vector<PowerCase> power_cases() {
    const Rows before = {{"objects/ab/x", kPowerOld}, {"roots/r", kPowerRoot}};
    const auto with = [&](const std::string &key, const Bytes &bytes) {
        Rows rows = before;
        rows[key] = bytes;
        return rows;
    };
    const auto without = [&](const std::string &key) {
        Rows rows = before;
        rows.erase(key);
        return rows;
    };
    const std::string mark = mark_of(kPowerRoot);
    return {
        {"put", [](Backend &b) { b.put("objects/ab/y", kPowerNew); }, before,
         with("objects/ab/y", kPowerNew)},
        {"put, in new directories", [](Backend &b) { b.put("objects/cd/ef/y", kPowerNew); }, before,
         with("objects/cd/ef/y", kPowerNew)},
        {"replace", [](Backend &b) { b.replace("objects/ab/x", kPowerNew); }, before,
         with("objects/ab/x", kPowerNew)},
        {"replace, of none", [](Backend &b) { b.replace("objects/cd/y", kPowerNew); }, before,
         with("objects/cd/y", kPowerNew)},
        {"swap", [mark](Backend &b) { b.swap("roots/r", mark, kPowerNext); }, before,
         with("roots/r", kPowerNext)},
        {"swap, of none", [](Backend &b) { b.swap("names/s", {}, kPowerNext); }, before,
         with("names/s", kPowerNext)},
        {"remove_marked", [mark](Backend &b) { b.remove_marked("roots/r", mark); }, before,
         without("roots/r")},
        {"remove", [](Backend &b) { b.remove("objects/ab/x"); }, before, without("objects/ab/x"),
         false},
        {"lock_to_collect", [](Backend &b) { b.lock_to_collect(); }, before, before},
    };
}

const char *const kPowerPath = "/disk/store";

Disk disk_of_store() {
    Disk disk;
    const auto backend = open_directory_backend(kPowerPath, disk.files());
    backend->put("objects/ab/x", kPowerOld);
    backend->swap("roots/r", {}, kPowerRoot);
    return disk.after({Loss::none}); // all of it was reported done
}

Rows rows_on(Disk disk) {
    disk.restart();
    const auto backend = open_directory_backend(kPowerPath, disk.files());
    Rows rows;
    backend->list("", [&](const ListedObject &each) {
        rows[each.key] = backend->get(each.key).value();
        return true;
    });
    return rows;
}

// Whatever the power loss spares, the rows are those of before, or those of after the call; only
// the latter once it returned.
void check_power_losses(const Disk &disk, const PowerCase &given, bool returned) {
    const auto check = [&](const Loss &loss) {
        CAPTURE(static_cast<int>(loss.which));
        CAPTURE(loss.index);
        CAPTURE(loss.seed);
        const Rows rows = rows_on(disk.after(loss));
        const bool may_be_before = !returned || !given.lasts;
        CHECK((rows == given.after || (may_be_before && rows == given.before)));
    };
    check({Loss::none});
    check({Loss::all});
    for (size_t change = 0; change < disk.changes(); ++change) {
        check({Loss::alone, change});
        check({Loss::all_but, change});
        check({Loss::prefix, change});
    }
    for (uint64_t seed = 0; seed < 12; ++seed) {
        check({Loss::random, 0, seed});
    }
}

} // namespace

TEST_CASE("Directory: the power goes at each operation, and nothing is torn or lost") {
    const Disk base = disk_of_store();
    REQUIRE((rows_on(base) == power_cases().front().before));
    for (const PowerCase &given : power_cases()) {
        const std::string name = given.name;
        CAPTURE(name);
        for (int at = 0;; ++at) {
            bool beyond = false;
            for (const Blow blow : {Blow::kill, Blow::error, Blow::dropped, Blow::evicted}) {
                Disk disk = base;
                const auto backend = open_directory_backend(kPowerPath, disk.files());
                disk.strike({at, blow, EIO, 300, static_cast<uint64_t>(at)});
                const Status status = thrown_by([&] { given.call(*backend); });
                beyond = at >= static_cast<int>(disk.seen().size());
                const std::string call = beyond ? "none" : disk.seen().at(at).name;
                CAPTURE(at);
                CAPTURE(call);
                CAPTURE(static_cast<int>(blow));
                CHECK((status == Status::ok || (status == Status::io && !beyond)));
                check_power_losses(disk, given, status == Status::ok);
                if (blow == Blow::error) { // the process goes on: what it sees is one or the other
                    const Rows rows = rows_on(disk);
                    CHECK((rows == given.after || (status != Status::ok && rows == given.before)));
                }
            }
            if (beyond) {
                CHECK(at > 3);
                break;
            }
        }
    }
}

TEST_CASE("Directory: an object that another writer names just before stays") {
    for (const bool swaps : {false, true}) {
        Disk disk;
        const auto backend = open_directory_backend(kPowerPath, disk.files());
        const auto other = open_directory_backend(kPowerPath, disk.files());
        bool between = false;
        disk.meanwhile([&](const Operation &next) {
            if (!between && std::strcmp(next.name, "rename_new") == 0) {
                between = true;
                other->put("k/a", kPowerOld);
            }
        });
        if (swaps) {
            CHECK(!backend->swap("k/a", {}, kPowerNew));
        } else {
            backend->put("k/a", kPowerNew);
        }
        CHECK(between);
        CHECK((backend->get("k/a") == kPowerOld));
    }
}

TEST_CASE("Directory: the power goes while a store is made, and the next one opens it") {
    for (int at = 0;; ++at) {
        CAPTURE(at);
        Disk disk;
        const FileOperations &files = disk.files();
        disk.strike({at, Blow::kill});
        const Status status = thrown_by([&] { open_directory_backend(kPowerPath, files); });
        const bool beyond = at >= static_cast<int>(disk.seen().size());
        CHECK((status == Status::ok) == beyond);
        for (uint64_t seed = 0; seed < 20; ++seed) {
            CAPTURE(seed);
            const Rows rows = rows_on(disk.after({Loss::random, 0, seed}));
            CHECK(rows.empty());
        }
        if (beyond) { // what was put at once is there
            disk.restart();
            open_directory_backend(kPowerPath, disk.files())->put("a", kPowerNew);
            CHECK((rows_on(disk.after({Loss::none})) == Rows{{"a", kPowerNew}}));
            break;
        }
    }
}
