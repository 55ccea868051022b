// Embeddings: texts as vectors.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"unsafe"
)

// Pooling says what a text's hidden states give.
type Pooling uint32

const (
	PoolingFiles Pooling = 0                     // as the model's files say
	PoolingLast  Pooling = C.STASIS_POOLING_LAST // that of the last token
	PoolingMean  Pooling = C.STASIS_POOLING_MEAN // the mean of all tokens'
)

// A Prompt is a text that goes before texts, by the name that the model's files give it.
type Prompt struct {
	Name, Text string
}

// EmbedInfo is how the model's files say that texts become vectors.
type EmbedInfo struct {
	Pooling       Pooling // 0: they do not say, or Refusal
	Dimension     int
	Normalised    bool
	TokensMax     uint64 // of a text, tokens around it included
	Contract      uint32 // version of the numerics contract's part on embeddings
	Prompts       []Prompt
	DefaultPrompt string // its name; "": none
	Refusal       string // what the files ask for that is not supported; "": nothing
}

// EmbedInfo describes how the model makes vectors.
func (m *Model) EmbedInfo() (EmbedInfo, error) {
	own := C.stasis_embed_info{struct_size: C.sizeof_stasis_embed_info}
	var info EmbedInfo
	err := m.call(brief("embed info"), func(model *C.stasis_model,
		failure *C.stasis_error) C.stasis_status {
		status := C.stasis_model_get_embed_info(model, &own, failure)
		if status != C.STASIS_OK {
			return status
		}
		// While the model is kept from being freed: texts are in it.
		info = EmbedInfo{Pooling: Pooling(own.pooling), Dimension: int(own.dimension),
			Normalised: own.normalised != 0, TokensMax: uint64(own.tokens_max),
			Contract: uint32(own.contract), DefaultPrompt: C.GoString(own.default_prompt),
			Refusal: C.GoString(own.refusal)}
		count := int(own.prompt_count)
		names, texts := textsAt(own.prompt_names, count), textsAt(own.prompts, count)
		for i := range names {
			info.Prompts = append(info.Prompts, Prompt{names[i], texts[i]})
		}
		return status
	})
	return info, err
}

func textsAt(at **C.char, count int) []string {
	var texts []string
	for _, text := range unsafe.Slice(at, count) {
		texts = append(texts, C.GoString(text))
	}
	return texts
}

// EmbedOptions say how vectors are made; the zero value is the default in every field.
type EmbedOptions struct {
	Pooling Pooling
	Prompt  string // the name of one of the model's; "": the default one
	Chunk   int    // positions computed together; 0: chosen

	// Progress gets positions; an error ends the call.
	Progress func(done, total uint64) error
}

// Embed makes a vector of each text: the same bits whatever is beside it. Options may be nil.
func (m *Model) Embed(ctx context.Context, texts []string, options *EmbedOptions) ([][]float32,
	error) {
	c := begin(ctx, "embed")
	inputs := make([]C.stasis_embed_input, len(texts))
	for i, text := range texts {
		// A text is never nil: that would mean tokens.
		bytes := array(c, []byte(text+"\x00"))
		inputs[i].text = (*C.char)(unsafe.Pointer(&bytes[0]))
		inputs[i].length = C.size_t(len(text))
	}
	return m.embed(c, inputs, options)
}

// EmbedTokens does the same with tokens as they are, to which nothing is added.
func (m *Model) EmbedTokens(ctx context.Context, lists [][]Token, options *EmbedOptions) (
	[][]float32, error) {
	c := begin(ctx, "embed")
	inputs := make([]C.stasis_embed_input, len(lists))
	for i, tokens := range lists {
		inputs[i].tokens = tokenArray(array(c, tokens))
		inputs[i].token_count = C.size_t(len(tokens))
	}
	return m.embed(c, inputs, options)
}

func (m *Model) embed(c *call, inputs []C.stasis_embed_input, options *EmbedOptions) ([][]float32,
	error) {
	for i := range inputs {
		inputs[i].struct_size = C.sizeof_stasis_embed_input
	}
	var given C.stasis_embed_options
	C.stasis_embed_options_init(&given, C.sizeof_stasis_embed_options)
	given.cancel = c.cancel
	if options != nil {
		given.pooling = C.uint32_t(options.Pooling)
		given.prompt = c.text("Prompt", options.Prompt)
		given.chunk = c.count("Chunk", options.Chunk)
		given.progress, given.progress_user = c.progress(options.Progress)
	}
	var numbers []float32
	err := m.call(c, func(model *C.stasis_model,
		failure *C.stasis_error) (status C.stasis_status) {
		numbers, status = filled(0, func(buffer *float32, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_model_embed(model, first(inputs), C.sizeof_stasis_embed_input,
				C.size_t(len(inputs)), &given, (*C.float)(buffer), capacity, count, failure)
		})
		return status
	})
	if err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(inputs))
	for i := range vectors {
		width := len(numbers) / len(inputs)
		vectors[i] = numbers[i*width : (i+1)*width : (i+1)*width]
	}
	return vectors, nil
}
