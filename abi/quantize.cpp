// Writing models as GGUF files; see stasis_quantize.h. Must not know how weights are rounded.
#include "runtime/quantize/quantize.h"

#include "abi/cancel.h"
#include "abi/options.h"

namespace stasis::abi {

namespace {

QuantizeReport quantize(const Caller &caller, const char *path, const char *out,
                        const stasis_quantize_options &given) {
    require_flags(given.flags, STASIS_QUANTIZE_REPLACE);
    require_zero(given.reserved, "options");
    CallWatch watch(caller, given);
    QuantizeOptions options;
    options.type = given.type != nullptr ? given.type : "Q8_0";
    options.threads = given.threads;
    options.replace = (given.flags & STASIS_QUANTIZE_REPLACE) != 0;
    options.watch = watch.watch();
    return quantize_model(path, out, options);
}

void write_report(const QuantizeReport &from, stasis_quantize_report *report) {
    stasis_quantize_report to{};
    to.source_bytes = from.source_bytes;
    to.file_bytes = from.file_bytes;
    for (const QuantizedShare &share : from.shares) {
        stasis_quantize_share &place = to.shares[to.share_count++];
        write_field(gguf_type_name(share.type), place.type, sizeof place.type);
        place.tensors = share.tensors;
        place.values = share.values;
        place.bytes = share.bytes;
    }
    write_struct(to, report, "report");
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_quantize_options_init(stasis_quantize_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_model_quantize(const char *path, const char *out,
                                    const stasis_quantize_options *options,
                                    stasis_quantize_report *report, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require_path(path, "path");
        require_path(out, "out");
        if (report != nullptr) {
            require_struct(report, "report");
        }
        const stasis_quantize_options given = read_struct(options, "options");
        const stasis::QuantizeReport made = quantize(caller, path, out, given);
        if (report != nullptr) {
            write_report(made, report);
        }
    });
}
