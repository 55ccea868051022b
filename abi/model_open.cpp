// Opening models: by path, by descriptor, from a host's functions; see stasis.h and
// stasis_resources.h. Must not know what a model's files contain.
#include <exception>
#include <optional>

#include "abi/cancel.h"
#include "abi/handles.h"
#include "abi/model_options.h"
#include "abi/options.h"

namespace stasis::abi {

namespace {

// A runtime model with the tables that only the C interface needs. Handles and sessions share its
// ownership, so that it lives as long as any of them.
struct OpenedModel {
    std::shared_ptr<Model> model;
    std::vector<uint32_t> layer_windows, layer_keys;
    std::vector<stasis_token> bias_tokens; // of the recommended settings
    std::vector<float> bias;
    std::vector<uint8_t> layer_recurrent;
    std::vector<stasis_digest> attention, mlp;
    std::vector<const char *> prompt_names, prompts;
    void *allocator_user = nullptr;
    void (*allocator_release)(void *user) = nullptr;

    OpenedModel() = default;
    OpenedModel(const OpenedModel &) = delete;
    OpenedModel &operator=(const OpenedModel &) = delete;
    ~OpenedModel() {
        model.reset(); // returns its memory to the allocator first
        if (allocator_release != nullptr) {
            allocator_release(allocator_user);
        }
    }
};

// Returns the host's allocator, with null functions if `given` is null. Throws
// Error(invalid_argument) if a function is missing.
stasis_allocator read_allocator(const stasis_allocator *given) {
    const stasis_allocator allocator = read_struct(given, "options.allocator");
    if (given != nullptr) {
        require_zero(allocator.reserved, "options.allocator");
        require(reinterpret_cast<const void *>(allocator.allocate), "options.allocator.allocate");
        require(reinterpret_cast<const void *>(allocator.deallocate),
                "options.allocator.deallocate");
    }
    return allocator;
}

const char *text_or(const char *given, const char *otherwise) {
    return given != nullptr ? given : otherwise;
}

} // namespace

ModelOptions read_model_options(const stasis_model_options &given) {
    if (given.copy_weights > 1) {
        fail(Status::invalid_argument, "options.copy_weights is %u: expected 0 or 1",
             given.copy_weights);
    }
    if (given.verify_weights > 1) {
        fail(Status::invalid_argument, "options.verify_weights is %u: expected 0 or 1",
             given.verify_weights);
    }
    if (given.thread_pool != nullptr && given.threads != 0) {
        fail(Status::invalid_argument, "options.threads is %u: expected 0 beside thread_pool",
             given.threads);
    }
    const stasis_allocator allocator = read_allocator(given.allocator);
    ModelOptions options;
    options.threads = given.threads;
    if (given.thread_pool != nullptr) {
        options.thread_pool = given.thread_pool->threads;
    }
    options.device = text_or(given.device, "cpu");
    options.profile = text_or(given.profile, "");
    options.kernels = text_or(given.kernels, "");
    options.kv_budget_bytes = given.kv_budget_bytes;
    if (given.state_budget_bytes != 0) {
        options.state_budget_bytes = given.state_budget_bytes;
    }
    options.copy_weights = given.copy_weights != 0;
    options.verify_weights = given.verify_weights != 0;
    options.chat_template = text_or(given.chat_template, "");
    if (given.date != nullptr) {
        options.date = parse_date(given.date, "options.date");
    }
    options.memory = {allocator.user, allocator.allocate, allocator.deallocate};
    return options;
}

namespace {

// The functions of a source, called for the length of a call. Their results are checked.
class HostModel {
  public:
    HostModel(const Caller &caller, const stasis_model_source *source)
        : caller_(caller), given_((require(source, "source"), read_struct(source, "source"))) {
        require_zero(given_.reserved, "source");
        require(reinterpret_cast<const void *>(given_.size), "source.size");
        require(reinterpret_cast<const void *>(given_.read), "source.read");
    }
    // Returns functions that refer to this object, which throw also what `watch` does.
    HostFiles files(const Watch &watch) {
        watch_ = watch.silent();
        return {this, size, read};
    }

  private:
    // Makes a call of the host's. After one that failed, no other is made: it fails the same way.
    template <typename Call> int64_t ask(const Call &call) {
        if (failure_ != nullptr) {
            std::rethrow_exception(failure_);
        }
        try {
            watch_.look(0, 0);
            return call(caller_);
        } catch (...) {
            failure_ = std::current_exception();
            throw;
        }
    }
    static std::optional<uint64_t> size(void *user, const char *name) {
        HostModel &self = *static_cast<HostModel *>(user);
        const int64_t size_bytes = self.ask([&](const Caller &caller) {
            const int64_t told =
                caller.lend([&] { return self.given_.size(self.given_.user, name); });
            if (told < -1) {
                fail(Status::io, "the source failed for the size of %s: it returned %lld", name,
                     static_cast<long long>(told));
            }
            return told;
        });
        return size_bytes < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(size_bytes));
    }
    static size_t read(void *user, const char *name, uint64_t offset, void *data,
                       size_t size_bytes) {
        HostModel &self = *static_cast<HostModel *>(user);
        return static_cast<size_t>(self.ask([&](const Caller &caller) {
            const int64_t count = caller.lend(
                [&] { return self.given_.read(self.given_.user, name, offset, data, size_bytes); });
            if (count < 0) {
                fail(Status::io, "the source failed for %s at byte %llu: it returned %lld", name,
                     Number{offset}, static_cast<long long>(count));
            }
            if (count == 0) {
                fail(Status::io, "the source has no more of %s at byte %llu: its size is larger",
                     name, Number{offset});
            }
            if (static_cast<uint64_t>(count) > size_bytes) {
                fail(Status::invalid_argument,
                     "the source returned %lld for %s at byte %llu: it was asked for %zu bytes",
                     static_cast<long long>(count), name, Number{offset}, size_bytes);
            }
            return count;
        }));
    }

    const Caller &caller_;
    const stasis_model_source given_;
    Watch watch_;
    std::exception_ptr failure_;
};

// Opens a model by `find`, which gets the runtime's options.
template <typename Find>
std::shared_ptr<OpenedModel> open(const Caller &caller, const stasis_model_options &given,
                                  const Find &find) {
    ModelOptions options = read_model_options(given);
    CallWatch watch(caller, given);
    options.watch = watch.watch();

    // Tables that stasis_model_info points to.
    auto opened = std::make_shared<OpenedModel>();
    opened->model = find(options);
    for (const LayerConfig &layer : opened->model->config.layer) {
        opened->layer_windows.push_back(layer.window);
        const auto own = static_cast<uint32_t>(opened->layer_keys.size());
        opened->layer_keys.push_back(layer.own_keys() ? own : layer.keys_of);
        opened->layer_recurrent.push_back(layer.recurrent ? 1 : 0);
    }
    for (const Digest &digest : opened->model->identity.attention) {
        opened->attention.push_back(to_abi(digest));
    }
    for (const Digest &digest : opened->model->identity.mlp) {
        opened->mlp.push_back(to_abi(digest));
    }
    for (const auto &[name, text] : opened->model->embedding.prompts) {
        opened->prompt_names.push_back(name.c_str());
        opened->prompts.push_back(text.c_str());
    }
    for (const auto &[token, bias] : opened->model->recommended.sampling.bias) {
        opened->bias_tokens.push_back(token);
        opened->bias.push_back(bias);
    }
    return opened;
}

template <typename Find>
void open_handle(const Caller &caller, const stasis_model_options *options, stasis_model **model,
                 const Find &find) {
    require(model, "model");
    const stasis_model_options given = read_struct(options, "options");
    auto handle = std::make_unique<stasis_model>();
    const std::shared_ptr<OpenedModel> opened = open(caller, given, find);
    handle->model = std::shared_ptr<stasis::Model>(opened, opened->model.get());
    handle->layer_windows = opened->layer_windows.data();
    handle->layer_keys = opened->layer_keys.data();
    handle->bias_tokens = opened->bias_tokens.data();
    handle->bias = opened->bias.data();
    handle->layer_recurrent = opened->layer_recurrent.data();
    handle->attention = opened->attention.data();
    handle->mlp = opened->mlp.data();
    handle->prompt_names = opened->prompt_names.data();
    handle->prompts = opened->prompts.data();
    // The allocator's `release` is set last, so that a failed open does not release what the
    // host still owns.
    const stasis_allocator allocator = read_allocator(given.allocator);
    opened->allocator_user = allocator.user;
    opened->allocator_release = allocator.release;
    *model = handle.release();
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_model_options_init(stasis_model_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_model_open(const char *path, const stasis_model_options *options,
                                stasis_model **model, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require_path(path, "path");
        open_handle(caller, options, model, [&](const stasis::ModelOptions &own) {
            return stasis::open_model(std::string(path), own);
        });
    });
}

stasis_status stasis_model_open_source(const stasis_model_source *source, const char *name,
                                       const stasis_model_options *options, stasis_model **model,
                                       stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        HostModel host(caller, source);
        if (name != nullptr) {
            require_path(name, "name");
        }
        open_handle(caller, options, model, [&](const stasis::ModelOptions &own) {
            return stasis::open_model(host.files(own.watch), name != nullptr ? name : "", own);
        });
    });
}

stasis_status stasis_model_open_descriptor(int32_t descriptor, const stasis_model_options *options,
                                           stasis_model **model, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        open_handle(caller, options, model, [&](const stasis::ModelOptions &own) {
            return stasis::open_model(descriptor, own);
        });
    });
}
