// Models: opening them, and what they say of themselves.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"encoding/hex"
	"runtime"
	"unsafe"
)

// A Digest is a SHA-256.
type Digest [32]byte

// String is the digest in hexadecimal, as the stasis command prints it.
func (d Digest) String() string {
	return hex.EncodeToString(d[:])
}

func digestOf(digest *C.stasis_digest) Digest {
	return *(*Digest)(unsafe.Pointer(&digest.bytes))
}

// A Token is a row of the model's vocabulary.
type Token uint32

// ModelOptions say how a model is opened; the zero value is the default in every field.
type ModelOptions struct {
	Threads      int    // that compute, the caller's included; 0: one per core
	Device       string // "cpu"
	Profile      string // "contract" or, faster and to bits of its own, "device"
	Kernels      string // "amx", "avx2", "reference" and so on; "": the machine's fastest
	KVBudget     uint64 // bytes of all sessions' KV pages together; 0: no limit
	StateBudget  uint64 // bytes of all sessions' recurrent states together; 0: 512 MiB
	ChatTemplate string // a name, if the model's files do not name it
	Date         string // "2026-01-02", for chat templates that print today's; "": not known

	// Compute in place of threads of the model's own; Threads must then be 0. Nil: none.
	ThreadPool *Threads

	// No file stays mapped: the model's files may change, or be cut short, once it is open.
	CopyWeights bool
	// Reads and hashes all weights, whatever digests an earlier process has left in the user's
	// cache directory.
	VerifyWeights bool

	// Progress gets bytes of weights; an error ends the call.
	Progress func(done, total uint64) error
}

// A Model is immutable and may be used by any number of goroutines.
type Model struct {
	handle
}

// Open opens a Hugging Face directory or a GGUF file. Options may be nil.
func Open(ctx context.Context, path string, options *ModelOptions) (*Model, error) {
	c := begin(ctx, "open")
	name := c.path(path)
	given := c.modelOptions(options)
	defer c.lendThreads(given, options)()
	var opened *C.stasis_model
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_model_open(name, given, &opened, failure)
	})
	return modelOf(opened, err)
}

// Close releases the model as soon as no call uses it; its sessions live on. It returns nil.
func (m *Model) Close() error {
	runtime.SetFinalizer(m, nil)
	m.close()
	return nil
}

func (m *Model) call(c *call,
	body func(model *C.stasis_model, failure *C.stasis_error) C.stasis_status) error {
	defer runtime.KeepAlive(m)
	return m.use(c, func(object unsafe.Pointer, failure *C.stasis_error) C.stasis_status {
		return body((*C.stasis_model)(object), failure)
	})
}

// path is never nil: an empty path is refused as what it is.
func (c *call) path(path string) *C.char {
	c.names = true
	if path == "" {
		return (*C.char)(c.block(1))
	}
	return c.text("the path", path)
}

func (c *call) progress(progress func(done, total uint64) error) (C.stasis_progress_fn,
	unsafe.Pointer) {
	if progress == nil {
		return nil, nil
	}
	c.hooks.progress = progress
	return C.stasis_progress_fn(C.stasis_go_progress), c.user()
}

func (c *call) modelOptions(o *ModelOptions) *C.stasis_model_options {
	var given C.stasis_model_options
	C.stasis_model_options_init(&given, C.sizeof_stasis_model_options)
	given.cancel = c.cancel
	if o != nil {
		given.threads = c.count("Threads", o.Threads)
		given.device = c.text("Device", o.Device)
		given.kernels = c.text("Kernels", o.Kernels)
		given.profile = c.text("Profile", o.Profile)
		given.kv_budget_bytes = C.uint64_t(o.KVBudget)
		given.state_budget_bytes = C.uint64_t(o.StateBudget)
		if o.CopyWeights {
			given.copy_weights = 1
		}
		if o.VerifyWeights {
			given.verify_weights = 1
		}
		given.chat_template = c.text("ChatTemplate", o.ChatTemplate)
		given.date = c.text("Date", o.Date)
		given.progress, given.progress_user = c.progress(o.Progress)
	}
	return &given
}

// ModelInfo describes an opened model.
type ModelInfo struct {
	Architecture                           string
	Layers, Hidden, Heads, KVHeads         int // Hidden: width of the residual stream
	HeadDim, Vocabulary                    int // tokens are 0 .. Vocabulary - 1
	Context                                uint64
	PagePositions, Threads                 int
	Contract                               [3]uint32 // versions: core, KV, sampling
	EndTokens                              []Token
	LayerWindows                           []uint32 // positions a query of the layer sees, 0: all
	BOS                                    int64    // the token; -1: none
	Kernels, Device                        string
	Profile                                string // id of the device profile; "": the contract
	ChatTemplate                           string // "": none recognised
	Model                                  Digest // identity of all that determines results
	Embeddings, Norms, Head, TokenizerHash Digest
	Attention, MLP                         []Digest // of each layer
	WeightTypes                            string   // as stored
	WeightBytes                            uint64
	LayerRecurrent                         []uint8  // 1: a recurrent state in place of keys, values
	StateBytes                             uint64   // of all recurrent states at one position
	Experts, ExpertsChosen                 int      // in a layer that has them; for each token
	ContractRecurrent, ContractExperts     uint32   // versions of these parts; 0: not used
	Ignored                                string   // tensors of the files without influence
	MTPBytes                               uint64   // of the head that predicts further tokens
	GlobalKVHeads, GlobalHeadDim           int      // of layers without a window
	LayerKeys                              []uint32 // the layer whose keys each one uses
	Converted                              bool     // weights were rounded to bf16
	Tokenizer                              bool     // it has one
}

// Info describes the model.
func (m *Model) Info() (ModelInfo, error) {
	var info ModelInfo
	own := C.stasis_model_info{struct_size: C.sizeof_stasis_model_info}
	err := m.call(brief("model info"), func(model *C.stasis_model,
		failure *C.stasis_error) C.stasis_status {
		status := C.stasis_model_get_info(model, &own, failure)
		if status == C.STASIS_OK {
			info = modelInfoOf(&own) // while the model lives: it owns what `own` points to
		}
		return status
	})
	return info, err
}

func modelInfoOf(own *C.stasis_model_info) ModelInfo {
	layers := int(own.layers)
	return ModelInfo{
		Architecture: C.GoString(&own.architecture[0]),
		Layers:       layers, Hidden: int(own.hidden), Heads: int(own.heads),
		KVHeads: int(own.kv_heads), HeadDim: int(own.head_dim),
		Vocabulary: int(own.vocabulary), Context: uint64(own.context),
		PagePositions: int(own.page_positions), Threads: int(own.threads),
		Contract:     contractOf(&own.contract),
		EndTokens:    copied[Token](unsafe.Pointer(own.end_tokens), int(own.end_token_count)),
		LayerWindows: copied[uint32](unsafe.Pointer(own.layer_windows), layers),
		BOS:          int64(own.bos), Kernels: C.GoString(&own.kernels[0]),
		Profile: C.GoString(&own.profile[0]),
		Device:  C.GoString(&own.device[0]), ChatTemplate: C.GoString(&own.chat_template[0]),
		Model: digestOf(&own.model), Embeddings: digestOf(&own.embeddings),
		Norms: digestOf(&own.norms), Head: digestOf(&own.head),
		TokenizerHash: digestOf(&own.tokenizer),
		Attention:     copied[Digest](unsafe.Pointer(own.attention), layers),
		MLP:           copied[Digest](unsafe.Pointer(own.mlp), layers),
		WeightTypes:   C.GoString(own.weight_types), WeightBytes: uint64(own.weight_bytes),
		LayerRecurrent: copied[uint8](unsafe.Pointer(own.layer_recurrent), layers),
		StateBytes:     uint64(own.state_bytes),
		Experts:        int(own.experts), ExpertsChosen: int(own.experts_chosen),
		ContractRecurrent: uint32(own.contract_recurrent),
		ContractExperts:   uint32(own.contract_experts),
		Ignored:           C.GoString(own.ignored),
		MTPBytes:          uint64(own.mtp_bytes),
		GlobalKVHeads:     int(own.global_kv_heads), GlobalHeadDim: int(own.global_head_dim),
		LayerKeys: copied[uint32](unsafe.Pointer(own.layer_keys), layers),
		Converted: own.flags&C.STASIS_MODEL_CONVERTED != 0,
		Tokenizer: own.flags&C.STASIS_MODEL_TOKENIZER != 0,
	}
}

func contractOf(contract *[3]C.uint32_t) [3]uint32 {
	return [3]uint32{uint32(contract[0]), uint32(contract[1]), uint32(contract[2])}
}

// copied takes an array of the library's over.
func copied[T any](from unsafe.Pointer, count int) []T {
	if count == 0 {
		return nil
	}
	return append([]T(nil), unsafe.Slice((*T)(from), count)...)
}

// ModelStats reports the memory that a model's sessions use at this moment, in bytes.
type ModelStats struct {
	KVBudget uint64 // math.MaxUint64: no limit
	KVUsed   uint64 // in pages that sessions hold
	KVCached uint64 // in free pages kept for reuse, which give way
	KVShared uint64 // of used pages once more for each further session that holds them
	Scratch  uint64 // work space
	KVKnown  uint64 // of the cached: pages that appends of the same tokens take again
	KVFree   uint64 // what pages can still take; math.MaxUint64: no limit

	StateBudget uint64
	StateUsed   uint64 // in recurrent states that sessions and the prefix cache hold
	StateCached uint64 // in memory kept for the next states
}

// Stats reports the model's memory.
func (m *Model) Stats() (ModelStats, error) {
	own := C.stasis_model_stats{struct_size: C.sizeof_stasis_model_stats}
	err := m.call(brief("model stats"), func(model *C.stasis_model,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_model_get_stats(model, &own, failure)
	})
	return ModelStats{
		KVBudget: uint64(own.kv_budget_bytes), KVUsed: uint64(own.kv_used_bytes),
		KVCached: uint64(own.kv_cached_bytes), KVShared: uint64(own.kv_shared_bytes),
		Scratch: uint64(own.scratch_bytes), KVKnown: uint64(own.kv_known_bytes),
		KVFree: uint64(own.kv_free_bytes), StateBudget: uint64(own.state_budget_bytes),
		StateUsed: uint64(own.state_used_bytes), StateCached: uint64(own.state_cached_bytes),
	}, err
}
