// Models: opening, describing, text.

package stasis_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestModelInfo(t *testing.T) {
	info := must(model(t, llama).Info())(t)
	equal(t, info.Architecture, "llama")
	equal(t, info.Layers, 8)
	equal(t, info.Vocabulary, 1024)
	equal(t, info.Context, 4096)
	equal(t, info.ChatTemplate, "chatml")
	equal(t, info.Tokenizer, true)
	equal(t, info.BOS, 1)
	equal(t, len(info.EndTokens), 2)
	equal(t, info.EndTokens[1], 4)
	equal(t, len(info.Attention), 8)
	equal(t, len(info.LayerWindows), 8)
	equal(t, info.WeightTypes != "", true)
	equal(t, info.Attention[0] != info.Attention[1], true)
	equal(t, must(model(t, plain).Info())(t).Tokenizer, false)
	equal(t, must(model(t, gemma).Info())(t).Model != info.Model, true)
}

func TestModelOptions(t *testing.T) {
	var done, total uint64
	m := must(stasis.Open(background, data+llama, &stasis.ModelOptions{Threads: 1,
		Device: "cpu", Kernels: "reference", KVBudget: 1 << 22, ChatTemplate: "gemma",
		Progress: func(d, t uint64) error {
			done, total = d, t
			return nil
		}}))(t)
	defer m.Close()
	info := must(m.Info())(t)
	equal(t, info.Threads, 1)
	equal(t, info.Kernels, "reference")
	equal(t, info.ChatTemplate, "gemma")
	equal(t, must(m.Stats())(t).KVBudget, 1<<22)
	equal(t, done == total && done > 0, true)
	equal(t, must(model(t, llama).Stats())(t).KVBudget, uint64(math.MaxUint64))
	equal(t, digest(t, sessionOf(t, m, someTokens(70, 1))),
		digest(t, sessionOf(t, model(t, llama), someTokens(70, 1))))
}

func TestModelRefusals(t *testing.T) {
	_, err := stasis.Open(background, filepath.Join(t.TempDir(), "nowhere"), nil)
	refused(t, err, stasis.ErrNotFound, "open", "nowhere")
	_, err = stasis.Open(background, "", nil)
	refused(t, err, stasis.ErrInvalidArgument, "path is empty")
	_, err = stasis.Open(background, "a\x00b", nil)
	refused(t, err, stasis.ErrInvalidArgument, "path", "zero byte")
	_, err = stasis.Open(background, data+plain, &stasis.ModelOptions{Kernels: "abacus"})
	refused(t, err, stasis.ErrUnsupported, "abacus")
	_, err = stasis.Open(background, data+plain, &stasis.ModelOptions{Threads: -1})
	refused(t, err, stasis.ErrInvalidArgument, "Threads", "-1")
	_, err = stasis.Open(background, data+plain, &stasis.ModelOptions{Kernels: "avx2\x00"})
	refused(t, err, stasis.ErrInvalidArgument, "Kernels")
}

func TestText(t *testing.T) {
	m := model(t, llama)
	text := "What is k? Grüße."
	tokens := must(m.Tokenize(text, 0))(t)
	equal(t, must(m.Detokenize(tokens, 0))(t), text)
	with := must(m.Tokenize(text, stasis.TokenizeBOS))(t)
	equal(t, len(with), len(tokens)+1)
	equal(t, with[0], 1)
	equal(t, len(must(m.Tokenize("", 0))(t)), 0)
	equal(t, must(m.Detokenize(nil, 0))(t), "")
	equal(t, must(m.Detokenize([]stasis.Token{4}, stasis.DetokenizeSpecial))(t), "<|im_end|>")
	equal(t, must(m.Tokenize("<|im_end|>", stasis.TokenizeSpecial))(t)[0], 4)
	rendered := must(m.Render([]stasis.Message{{Role: "system", Text: "Be brief."},
		{Role: "user", Text: "Hello?"}}, stasis.RenderReply))(t)
	equal(t, rendered, "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello?"+
		"<|im_end|>\n<|im_start|>assistant\n")
	long := make([]stasis.Message, 100)
	for i := range long {
		long[i] = stasis.Message{Role: []string{"user", "assistant"}[i%2], Text: text}
	}
	equal(t, len(must(m.Render(long, 0))(t)) > 100*len(text), true)

	_, err := m.Tokenize("ab\xff", 0)
	refused(t, err, stasis.ErrInvalidArgument, "tokenize", "2")
	_, err = m.Render([]stasis.Message{{Role: "user\x00", Text: "a"}}, 0)
	refused(t, err, stasis.ErrInvalidArgument, "role")
	_, err = model(t, plain).Tokenize("a", 0)
	refused(t, err, stasis.ErrUnsupported)
	_, err = m.Detokenize([]stasis.Token{5000}, 0)
	refused(t, err, stasis.ErrInvalidArgument, "5000")
}

func TestRecommendedSampling(t *testing.T) {
	m := model(t, llama) // whose files say nothing
	sampling := must(m.RecommendedSampling())(t)
	equal(t, sampling.Temperature, float32(0.6))
	equal(t, sampling.MinP, float32(0.1))
	equal(t, sampling.RepetitionPenalty, float32(1.1))
	equal(t, sampling.PenaltyWindow, uint32(64))
	equal(t, sampling.Seed, uint64(0))
	ok(t, private(t, m).SetSampling(&sampling))
}

func TestVersion(t *testing.T) {
	equal(t, stasis.Version(), 0x000200)
}

func TestQuantize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	report := must(stasis.Quantize(background, data+llama, path,
		&stasis.QuantizeOptions{Type: "Q8_0", Threads: 1}))(t)
	equal(t, report.FileBytes, uint64(must(os.Stat(path))(t).Size()))
	equal(t, report.Shares[0].Type, "Q8_0")
	m := must(stasis.Open(background, path, nil))(t)
	defer m.Close()
	equal(t, must(m.Info())(t).Vocabulary, 1024)
	_, err := stasis.Quantize(background, data+llama, path, nil)
	refused(t, err, stasis.ErrInvalidArgument, "quantize")
	_, err = stasis.Quantize(background, data+llama, path, &stasis.QuantizeOptions{Type: "Q0"})
	refused(t, err, stasis.ErrUnsupported, "Q0")
}
