// Logits and sampling: what may come next, and how it is drawn.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"sort"
	"unsafe"
)

// Sampling says how tokens are drawn; the zero value is greedy. stasis_generate.h states each step.
type Sampling struct {
	Temperature       float32 // 0: greedy
	TopK              int
	TopP, MinP        float32
	RepetitionPenalty float32 // 1: off
	FrequencyPenalty  float32
	PresencePenalty   float32
	PenaltyWindow     uint32            // tokens that penalties look back on; 0: 64; all with 2^32-1
	Bias              map[Token]float32 // added to the logit; minus infinity forbids
	Seed              uint64            // draws depend on seed and position and nothing else
	TypicalP          float32
	TopNSigma         float32
	XTCProbability    float32
	XTCThreshold      float32
	DRYMultiplier     float32
	DRYBase           float32
	DRYAllowedLength  uint32
	DRYRange          uint32
	DRYBreakers       []Token
	MinKeep           uint32 // that some steps leave at least; 0: 1
}

func (c *call) sampling(o *Sampling) *C.stasis_sampling {
	if o == nil {
		return nil
	}
	var given C.stasis_sampling
	C.stasis_sampling_init(&given, C.sizeof_stasis_sampling)
	given.top_k = c.count("TopK", o.TopK)
	given.temperature = C.float(o.Temperature)
	given.top_p, given.min_p = C.float(o.TopP), C.float(o.MinP)
	given.repetition_penalty = C.float(o.RepetitionPenalty)
	given.frequency_penalty = C.float(o.FrequencyPenalty)
	given.presence_penalty = C.float(o.PresencePenalty)
	given.penalty_window = C.uint32_t(o.PenaltyWindow)
	given.seed = C.uint64_t(o.Seed)
	given.typical_p, given.top_n_sigma = C.float(o.TypicalP), C.float(o.TopNSigma)
	given.xtc_probability = C.float(o.XTCProbability)
	given.xtc_threshold = C.float(o.XTCThreshold)
	given.dry_multiplier, given.dry_base = C.float(o.DRYMultiplier), C.float(o.DRYBase)
	given.dry_allowed_length = C.uint32_t(o.DRYAllowedLength)
	given.dry_range = C.uint32_t(o.DRYRange)
	given.min_keep = C.uint32_t(o.MinKeep)
	given.dry_breaker_count = c.count("DRYBreakers", len(o.DRYBreakers))
	given.dry_breakers = tokenArray(array(c, o.DRYBreakers))
	tokens := make([]Token, 0, len(o.Bias))
	for token := range o.Bias {
		tokens = append(tokens, token)
	}
	// Snapshots keep the settings: in an order, so that equal sessions give equal files.
	sort.Slice(tokens, func(i, j int) bool { return tokens[i] < tokens[j] })
	bias := make([]float32, len(tokens))
	for i, token := range tokens {
		bias[i] = o.Bias[token]
	}
	given.bias_count = c.count("Bias", len(tokens))
	given.bias_tokens = tokenArray(array(c, tokens))
	given.bias = (*C.float)(first(array(c, bias)))
	return &given
}

// RecommendedSampling is how the model's own files say that its tokens be drawn; stasis_generate.h
// says which of their keys are read, and what is meant where they say nothing.
func (m *Model) RecommendedSampling() (Sampling, error) {
	own := C.stasis_sampling{struct_size: C.sizeof_stasis_sampling}
	var forbidden map[Token]float32
	err := m.call(brief("recommended sampling"), func(model *C.stasis_model,
		failure *C.stasis_error) C.stasis_status {
		status := C.stasis_model_recommended_sampling(model, &own, failure)
		if status == C.STASIS_OK && own.bias_count != 0 { // the arrays are the model's
			count := int(own.bias_count)
			tokens := unsafe.Slice((*Token)(unsafe.Pointer(own.bias_tokens)), count)
			forbidden = make(map[Token]float32, count)
			for i, bias := range unsafe.Slice((*float32)(unsafe.Pointer(own.bias)), count) {
				forbidden[tokens[i]] = bias
			}
		}
		return status
	})
	return Sampling{
		Bias:        forbidden,
		Temperature: float32(own.temperature), TopK: int(own.top_k),
		TopP: float32(own.top_p), MinP: float32(own.min_p),
		RepetitionPenalty: float32(own.repetition_penalty),
		PenaltyWindow:     uint32(own.penalty_window),
		TypicalP:          float32(own.typical_p),
		XTCProbability:    float32(own.xtc_probability),
		XTCThreshold:      float32(own.xtc_threshold),
	}, err
}

// SetSampling says how tokens are drawn from now on; nil: greedy.
func (s *Session) SetSampling(sampling *Sampling) error {
	c := brief("set sampling")
	given := c.sampling(sampling)
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_set_sampling(session, given, failure)
	})
}

// Logits gives those of the next token, [Vocabulary].
func (s *Session) Logits() ([]float32, error) {
	var logits []float32
	err := s.call(brief("logits"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		logits, status = filled(0, func(buffer *float32, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_session_logits(session, (*C.float)(buffer), capacity, count, failure)
		})
		return status
	})
	return logits, err
}

// A Candidate is a token that may come next, with its natural-log probability.
type Candidate struct {
	Token          Token
	LogProbability float32
}

// Top gives the n most likely next tokens, best first.
func (s *Session) Top(n int) ([]Candidate, error) {
	c := brief("top")
	c.count("n", n)
	var candidates []Candidate
	err := s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		var size C.size_t // of the vocabulary: a larger n is refused before memory is taken for it
		status := C.stasis_session_logits(session, nil, 0, &size, failure)
		if status != C.STASIS_BUFFER_TOO_SMALL {
			return status
		} else if C.size_t(n) > size {
			return C.stasis_session_top(session, C.size_t(n), tokenArray(make([]Token, 1)), nil,
				failure)
		}
		tokens, likely := make([]Token, n), make([]float32, n)
		status = C.stasis_session_top(session, C.size_t(n), tokenArray(tokens),
			(*C.float)(first(likely)), failure)
		if status == C.STASIS_OK {
			candidates = candidatesOf(tokens, likely)
		}
		return status
	})
	return candidates, err
}

func candidatesOf(tokens []Token, likely []float32) []Candidate {
	candidates := make([]Candidate, len(tokens))
	for i := range candidates {
		candidates[i] = Candidate{tokens[i], likely[i]}
	}
	return candidates
}

// Score gives the natural-log probability of each token of a continuation. Options may be nil.
func (s *Session) Score(ctx context.Context, tokens []Token, options *RunOptions) ([]float64,
	error) {
	c := begin(ctx, "score")
	given := c.runOptions(options)
	likely := make([]float64, len(tokens))
	err := s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_score(session, tokenArray(tokens), C.size_t(len(tokens)),
			(*C.double)(unsafe.Pointer(first(likely))), given, failure)
	})
	if err != nil {
		return nil, err
	}
	return likely, nil
}

// Sample draws the next token and changes nothing.
func (s *Session) Sample() (Token, error) {
	var token C.stasis_token
	err := s.call(brief("sample"), func(session *C.stasis_session,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_sample(session, &token, failure)
	})
	return Token(token), err
}

// Decode draws the next token and appends it, or does neither.
func (s *Session) Decode() (Token, error) {
	var token C.stasis_token
	err := s.call(brief("decode"), func(session *C.stasis_session,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_decode(session, &token, failure)
	})
	return Token(token), err
}
