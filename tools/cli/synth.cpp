// stasis synth: writes a model directory of random weights in a published shape, for benchmarks.
#include <cstdio>
#include <filesystem>
#include <memory>

#include <unistd.h>

#include "tools/cli/commands.h"
#include "tools/cli/options.h"
#include "tools/cli/synth/checkpoint.h"
#include "tools/cli/synth/tokenizer.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

namespace fs = std::filesystem;

// A directory under a temporary name. finish() renames it to its place; the destructor removes it
// otherwise.
class NewDirectory {
  public:
    explicit NewDirectory(const std::string &path) : place_(fs::absolute(path).lexically_normal()) {
        if (!place_.has_filename()) { // "out/"
            place_ = place_.parent_path();
        }
        std::error_code problem;
        const fs::file_type kind = fs::symlink_status(place_, problem).type();
        if (kind != fs::file_type::not_found &&
            (kind != fs::file_type::directory || !fs::is_empty(place_, problem) || problem)) {
            throw Failure(path + ": this is there already, and no empty directory");
        }
        written_ = place_.string() + ".tmp" + std::to_string(getpid());
        if (!fs::create_directory(written_, problem)) {
            throw Failure(path + ": " + (problem ? problem.message() : "a leftover is in the way"));
        }
    }
    ~NewDirectory() {
        std::error_code ignored;
        fs::remove_all(written_, ignored);
    }
    NewDirectory(const NewDirectory &) = delete;
    NewDirectory &operator=(const NewDirectory &) = delete;

    std::string written() const { return written_.string(); }

    void finish() const {
        std::error_code problem;
        fs::rename(written_, place_, problem); // replaces an empty directory
        if (problem) {
            throw Failure(place_.string() + ": " + problem.message());
        }
    }

  private:
    fs::path place_, written_;
};

int run_synth(const std::string &name, const std::string &path, uint64_t layers) {
    const Interrupt interrupt;
    const synth::Shape shape = synth::find_shape(name, layers);
    const NewDirectory directory(path);
    const std::string folder = directory.written();
    synth::write_file(folder + "/config.json", shape.config.dump(2) + "\n");
    synth::write_file(folder + "/tokenizer.model",
                      synth::padded_tokenizer(shape.gemma, shape.vocabulary));
    synth::write_file(folder + "/tokenizer_config.json", synth::tokenizer_config(shape.gemma));
    const uint64_t bytes = synth::write_weights(shape, folder, interrupt.requested());
    directory.finish();
    char line[200];
    std::snprintf(line, sizeof line, "%s: %.2f GB of weights, all random\n", name.c_str(),
                  static_cast<double>(bytes) / 1e9);
    print(line);
    return 0;
}

} // namespace

void add_synth(CLI::App &app, int &exit_code) {
    const auto shape = std::make_shared<std::string>(), path = std::make_shared<std::string>();
    CLI::App *synth_app = app.add_subcommand(
        "synth", "write a model directory of random weights in a published shape");
    synth_app->footer("Shapes: " + synth::shape_names() +
                      ".\nThe same bytes on every machine; what such a model says is noise.\n");
    synth_app->add_option("SHAPE", *shape, "one of those below")->required();
    const auto layers = std::make_shared<uint64_t>(0);
    add_number<uint64_t>(*synth_app, "--layers", *layers,
                         "only the first N layers, where all are too large",
                         {1, 1000, "a whole number from 1 to 1000"});
    add_path(*synth_app, "DIR", *path, "a new directory, or an empty one")->required();
    synth_app->callback([=, &exit_code] { exit_code = run_synth(*shape, *path, *layers); });
}

} // namespace command
