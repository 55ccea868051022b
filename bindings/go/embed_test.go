// Embeddings: a vector is the same in any company.

package stasis_test

import (
	"math"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

const embedding = "zoo/qwen3-embedding" // tiny, without a tokenizer

func sameVector(t testing.TB, got, expected []float32) {
	t.Helper()
	equal(t, len(got), len(expected))
	for i := range got {
		equal(t, math.Float32bits(got[i]), math.Float32bits(expected[i]))
	}
}

func TestEmbed(t *testing.T) {
	m := model(t, embedding)
	info := must(m.EmbedInfo())(t)
	equal(t, info.Pooling, stasis.PoolingLast)
	equal(t, info.Dimension, 64)
	equal(t, info.Normalised, true)
	equal(t, info.TokensMax, 2048)
	equal(t, info.Contract, 1)
	equal(t, len(info.Prompts), 0)
	equal(t, info.Refusal, "")

	lists := [][]stasis.Token{someTokens(70, 1), someTokens(5, 2)}
	vectors := must(m.EmbedTokens(background, lists, nil))(t)
	equal(t, len(vectors), 2)
	var squares float64
	for _, number := range vectors[0] {
		squares += float64(number) * float64(number)
	}
	equal(t, math.Abs(squares-1) < 1e-5, true)
	alone := must(m.EmbedTokens(background, lists[1:], &stasis.EmbedOptions{Chunk: 2}))(t)
	sameVector(t, alone[0], vectors[1])
	equal(t, len(must(m.EmbedTokens(background, nil, nil))(t)), 0)

	chat := model(t, llama)
	mean := &stasis.EmbedOptions{Pooling: stasis.PoolingMean}
	text := must(chat.Embed(background, []string{"what is it?"}, mean))(t)
	tokens := must(chat.Tokenize("what is it?", stasis.TokenizeBOS))(t)
	sameVector(t, text[0], must(chat.EmbedTokens(background, [][]stasis.Token{tokens}, mean))(t)[0])
}

func TestEmbedRefuses(t *testing.T) {
	m := model(t, embedding)
	_, err := m.EmbedTokens(background, [][]stasis.Token{{1}, {}}, nil)
	refused(t, err, stasis.ErrInvalidArgument, "inputs[1]")
	_, err = m.Embed(background, []string{"a"}, nil)
	refused(t, err, stasis.ErrUnsupported, "tokenizer")
	_, err = m.EmbedTokens(background, [][]stasis.Token{{1}}, &stasis.EmbedOptions{Prompt: "query"})
	refused(t, err, stasis.ErrInvalidArgument, "query")
	_, err = model(t, llama).Embed(background, []string{"a"}, nil)
	refused(t, err, stasis.ErrUnsupported, "do not say")
	_, err = m.EmbedTokens(background, [][]stasis.Token{{1}}, &stasis.EmbedOptions{Chunk: -1})
	refused(t, err, stasis.ErrInvalidArgument, "Chunk")
}
