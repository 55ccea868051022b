// stasis logits: the logits of every position of a token list, as a file of little-endian f32 rows.
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <unistd.h>

#include "tools/cli/commands.h"
#include "tools/cli/generation.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

struct LogitsChoice {
    ModelChoice model;
    std::string tokens, tokens_file, out;
    uint32_t chunk = 0;
};

// The output file. It is written next to its place and renamed, so that it appears whole or not at
// all. A pipe or a device cannot be replaced and is written to directly.
class RowFile {
  public:
    explicit RowFile(const std::string &path) : path_(path) {
        std::error_code ignored;
        const auto kind = std::filesystem::status(path, ignored).type();
        const bool direct = kind != std::filesystem::file_type::not_found &&
                            kind != std::filesystem::file_type::regular;
        written_ = direct ? path : path + ".tmp" + std::to_string(getpid());
        file_.reset(std::fopen(written_.c_str(), "wb"));
        if (!file_) {
            fail();
        }
    }
    ~RowFile() {
        if (!done_ && file_ && written_ != path_) {
            std::remove(written_.c_str());
        }
    }
    RowFile(const RowFile &) = delete;
    RowFile &operator=(const RowFile &) = delete;

    bool write(const float *row, size_t count) noexcept {
        return std::fwrite(row, sizeof(float), count, file_.get()) == count;
    }

    void finish() {
        if (std::fflush(file_.get()) != 0 ||
            (written_ != path_ && std::rename(written_.c_str(), path_.c_str()) != 0)) {
            fail();
        }
        done_ = true;
    }

    [[noreturn]] void fail() const { throw Failure(path_ + ": " + std::strerror(errno)); }

  private:
    std::string path_, written_;
    std::unique_ptr<std::FILE, Releaser<std::fclose>> file_;
    bool done_ = false;
};

// Writes each row from the library's callback and stores the errno of a failure.
struct RowWriter {
    RowFile *file;
    int error = 0;

    static int32_t receive(void *user, uint64_t, const float *logits, size_t count) noexcept {
        auto &self = *static_cast<RowWriter *>(user);
        self.error = self.file->write(logits, count) ? 0 : errno;
        return self.error;
    }
};

int logits(const LogitsChoice &choice) {
    const std::vector<stasis_token> tokens = given_tokens(choice.tokens, choice.tokens_file);
    if (tokens.empty()) {
        throw Failure("no tokens: give --tokens or --tokens-file");
    }
    check_target("--out", choice.out, Special::allowed);

    Interrupt interrupt;
    const Model model = open_model(choice.model, interrupt.handle());
    const Session session = create_session(model.get());
    RowFile file(choice.out);
    RowWriter writer{&file};
    Progress progress("prefill");
    stasis_run_options options;
    stasis_run_options_init(&options, sizeof options);
    options.chunk = choice.chunk;
    options.cancel = interrupt.handle();
    options.progress = Progress::report;
    options.progress_user = &progress;
    options.logits = RowWriter::receive;
    options.logits_user = &writer;

    // With --chunk each piece is a call of its own, so that no chunk crosses the border of two.
    const size_t piece_max = choice.chunk != 0 ? choice.chunk : tokens.size();
    for (size_t at = 0; at < tokens.size(); at += piece_max) {
        stasis_error error{};
        const stasis_status status =
            stasis_session_append(session.get(), tokens.data() + at,
                                  std::min(piece_max, tokens.size() - at), &options, &error);
        if (writer.error != 0) {
            errno = writer.error;
            file.fail();
        }
        check(status, error, "logits");
    }
    file.finish();
    return 0;
}

} // namespace

void add_logits(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<LogitsChoice>();
    CLI::App *logits_app = app.add_subcommand(
        "logits", "write the logits after each token as rows of little-endian f32");
    add_model(*logits_app, choice->model);
    CLI::Option *tokens = logits_app->add_option("--tokens", choice->tokens, "ids: 1,2,3");
    add_path(*logits_app, "--tokens-file", choice->tokens_file,
             "file of ids, separated by commas or white space")
        ->excludes(tokens);
    add_path(*logits_app, "--out", choice->out, "the file to write")->required();
    add_count(*logits_app, "--chunk", choice->chunk, "append in pieces of N");
    add_compute_options(*logits_app, choice->model);
    logits_app->callback([=, &exit_code] { exit_code = logits(*choice); });
}

} // namespace command
