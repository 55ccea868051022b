// Quantizing: a model directory as one GGUF file.

package stasis

// #include "bridge.h"
import "C"

import "context"

// QuantizeOptions say what is written; the zero value is the default in every field.
type QuantizeOptions struct {
	Replace bool   // an existing GGUF file
	Type    string // such as "Q4_K_M"; "": Q8_0
	Threads int    // 0: one per core

	// Progress gets bytes of weights read; an error ends the call.
	Progress func(done, total uint64) error
}

// A QuantizeShare is what one type makes up of the file.
type QuantizeShare struct {
	Type                   string
	Tensors, Values, Bytes uint64
}

// QuantizeReport reports what was written.
type QuantizeReport struct {
	SourceBytes, FileBytes uint64
	Shares                 []QuantizeShare // the largest first
}

// Quantize writes the Hugging Face directory `path` as the GGUF file `out`, whole or not at all.
// Options may be nil.
func Quantize(ctx context.Context, path, out string, options *QuantizeOptions) (QuantizeReport,
	error) {
	c := begin(ctx, "quantize")
	var given C.stasis_quantize_options
	C.stasis_quantize_options_init(&given, C.sizeof_stasis_quantize_options)
	given.cancel = c.cancel
	if options != nil {
		if options.Replace {
			given.flags = C.STASIS_QUANTIZE_REPLACE
		}
		given._type = c.text("Type", options.Type)
		given.threads = c.count("Threads", options.Threads)
		given.progress, given.progress_user = c.progress(options.Progress)
	}
	from, to := c.path(path), c.path(out)
	own := C.stasis_quantize_report{struct_size: C.sizeof_stasis_quantize_report}
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_model_quantize(from, to, &given, &own, failure)
	})
	report := QuantizeReport{SourceBytes: uint64(own.source_bytes),
		FileBytes: uint64(own.file_bytes)}
	for _, share := range own.shares[:own.share_count] {
		report.Shares = append(report.Shares, QuantizeShare{C.GoString(&share._type[0]),
			uint64(share.tensors), uint64(share.values), uint64(share.bytes)})
	}
	return report, err
}
