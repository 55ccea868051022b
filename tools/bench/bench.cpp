// stasis bench: how fast a model runs here, and how near that comes to what the machine can do.
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>

#include "tools/bench/tasks.h"
#include "tools/cli/commands.h"
#include "tools/cli/options.h"

namespace command {
namespace {

struct BenchChoice {
    ModelChoice model;
    std::vector<std::string> only;
    unsigned repetitions = 5;
    std::string draft;
    bool json = false;
    bool turns = false;
};

std::vector<std::string> names_of(const std::string &line) {
    std::vector<std::string> names;
    std::istringstream words(line);
    for (std::string name; std::getline(words, name, ',');) {
        names.push_back(name);
    }
    return names;
}

void report(bench::Bench &bench, const std::vector<std::string> &names, bool json) {
    bench.results.clear();
    bench::run_tasks(bench, names);
    const bench::Report report{bench.choice.path,  bench.info.kernels,    bench.info.device,
                               bench.info.profile, bench::machine_text(), bench.info.threads,
                               bench.meter.best(), bench.results};
    if (json) {
        print_json(to_json(report));
    } else {
        print(to_text(report));
    }
}

// What lies before a figure is kept from line to line, so that another program's turn in between
// costs nothing but its own time.
void take_turns(bench::Bench &bench) {
    for (std::string line; std::getline(std::cin, line);) {
        const std::vector<std::string> names = names_of(line);
        if (names.empty()) {
            throw Failure("standard input: a line names no figure");
        }
        bench::check_names(names, "standard input");
        bench::check_room(names, bench.info.context);
        report(bench, names, true);
    }
    if (std::cin.bad()) {
        throw Failure("standard input cannot be read");
    }
}

int run_bench(const BenchChoice &choice) {
    bench::check_names(choice.only, "--only");
    Interrupt interrupt;
    const Model model = open_model(choice.model, interrupt.handle());
    const stasis_model_info info = model_info(model.get());
    bench::check_room(choice.only, info.context);
    const std::string folder = std::filesystem::temp_directory_path().string();
    // Where there are products for it (stasis_model_open, "Memory").
    const bool coded = choice.model.copy_weights && std::string_view(info.device) == "cpu" &&
                       std::string_view(info.kernels) != "reference";
    const bench::Matrices matrices =
        bench::measure_matrices(choice.model.path, uint64_t{info.vocabulary} * info.hidden, coded);
    const bool integers = std::string(info.weight_types).find('Q') != std::string::npos;
    const std::string kernels = std::string(info.device) == "cpu" ? info.kernels : "";
    ceilings::Meter meter(kernels, integers, info.threads, folder);
    bench::Bench bench{choice.model,       model.get(),        info, matrices,
                       choice.repetitions, interrupt.handle(), meter};
    bench.draft = choice.draft;
    if (choice.turns) {
        take_turns(bench);
    } else {
        report(bench, choice.only, choice.json);
    }
    return 0;
}

} // namespace

void add_bench(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<BenchChoice>();
    CLI::App *bench_app =
        app.add_subcommand("bench", "how fast a model runs here, beside what the machine can do");
    bench_app->footer("Figures, of which those that the model's context has no room for are left "
                      "out, and those of\ndrafts (lookup_, draft_) and of large files (save@, "
                      "load@) unless --only names them:\n  " +
                      bench::task_names() + "\ntools/BENCHMARKS.md says what each means.\n");
    add_model(*bench_app, choice->model);
    CLI::Option *only =
        bench_app->add_option("--only", choice->only, "these figures, separated by commas")
            ->delimiter(',')
            ->allow_extra_args(false);
    add_path(*bench_app, "--draft", choice->draft, "the draft model of draft_repeat, draft_drawn")
        ->type_name("MODEL");
    add_number<unsigned>(*bench_app, "--repetitions", choice->repetitions,
                         "measure each N times (default: 5)",
                         {1, 1000, "a whole number from 1 to 1000"});
    add_compute_options(*bench_app, choice->model);
    bench_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    bench_app
        ->add_flag("--turns", choice->turns,
                   "for each line of stdin, which names figures as --only does, measure them and "
                   "print one JSON object, with the model open in between")
        ->excludes(only);
    bench_app->callback([=, &exit_code] { exit_code = run_bench(*choice); });
}

} // namespace command
