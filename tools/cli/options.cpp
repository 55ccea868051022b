// Words and paths on the command line; see options.h. The checks of paths only save work that would
// be lost: whether a file can be written is decided when it is written.
#include "tools/cli/options.h"

#include <filesystem>
#include <fstream>

namespace command {

CLI::Option *add_word(CLI::App &app, const std::string &name, uint32_t &value,
                      const std::string &help,
                      const std::vector<std::pair<std::string, uint32_t>> &words) {
    std::string list;
    for (const auto &[word, meaning] : words) {
        list += (list.empty() ? "" : "|") + word;
    }
    const auto parse = [name, &value, words, list](const CLI::results_t &given) {
        for (const auto &[word, meaning] : words) {
            if (given.at(0) == word) {
                value = meaning;
                return true;
            }
        }
        throw Failure(name + ": '" + given.at(0) + "' is not one of " + list);
    };
    return app.add_option(name, parse, help)->type_name(list);
}

void add_codec(CLI::App &app, uint32_t &codec, const std::string &help) {
    add_word(app, "--codec", codec, help, {{"raw", STASIS_CODEC_RAW}, {"zstd", STASIS_CODEC_ZSTD}});
}

void add_keep(CLI::App &app, uint32_t &keep) {
    add_word(app, "--keep", keep,
             "keys and values to keep: full (default), or none, which a resume computes again",
             {{"full", STASIS_KEEP_FULL}, {"none", STASIS_KEEP_NONE}});
}

CLI::Option *add_path(CLI::App &app, const std::string &name, std::string &path,
                      const std::string &help) {
    return app.add_option(name, path, help)->type_name("FILE")->check([](const std::string &text) {
        return text.empty() ? std::string("the path is empty") : std::string();
    });
}

bool is_snapshot(const std::string &path) {
    std::error_code problem;
    if (!std::filesystem::is_regular_file(path, problem)) { // opening a pipe would wait
        return false;
    }
    std::ifstream file(path, std::ios::binary);
    char begin[8] = {};
    return file.read(begin, sizeof begin) &&
           std::string_view(begin, sizeof begin) == std::string_view("\x89STASIS\n", 8);
}

void check_target(const std::string &name, const std::string &path, Special special) {
    namespace fs = std::filesystem;
    const auto refuse = [&](const std::string &reason) {
        throw Failure(name + ": " + path + ": " + reason);
    };
    if (path.empty()) {
        throw Failure(name + ": the path is empty");
    }
    std::error_code problem; // without a status it is neither a regular file nor a folder
    const fs::file_status at_path = fs::symlink_status(path, problem);
    if (at_path.type() == fs::file_type::not_found) {
        const fs::path folder = fs::path(path).parent_path();
        if (!folder.empty() && !fs::is_directory(folder, problem)) {
            refuse("there is no folder " + folder.string());
        }
        if (!fs::path(path).has_filename()) {
            refuse("this names a folder");
        }
        return;
    }

    const fs::file_status behind = fs::status(path, problem);
    if (fs::is_directory(behind)) {
        refuse("this is a directory");
    }
    if (special == Special::allowed && fs::is_other(behind)) {
        return;
    }
    if (fs::is_symlink(at_path)) {
        refuse("this is a symbolic link");
    }
    if (!fs::is_regular_file(at_path)) {
        refuse(problem ? problem.message() : "this is no regular file");
    }
    if (special == Special::allowed && is_snapshot(path)) { // the output is no snapshot
        refuse("this is a snapshot, and is not written over");
    }
}

} // namespace command
