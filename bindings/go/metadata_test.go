// Metadata: what a model's files say of it.

package stasis_test

import (
	"context"
	"path/filepath"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestMetadata(t *testing.T) {
	m := model(t, "recall-gemma3")
	all := must(m.AllMetadata())(t)
	equal(t, len(all) > 20, true)
	for i, each := range all {
		equal(t, must(m.Metadata(each.Key))(t), each)
		equal(t, i == 0 || all[i-1].Key < each.Key, true)
	}
	equal(t, must(m.Metadata("config.num_hidden_layers"))(t),
		stasis.Metadata{Key: "config.num_hidden_layers", Kind: stasis.MetadataJSON, Value: "12"})
	equal(t, must(m.Metadata("config.model_type"))(t).Kind, stasis.MetadataText)
	for _, key := range []string{"none.such", ""} {
		_, err := m.Metadata(key)
		refused(t, err, stasis.ErrNotFound, key)
	}
	_, err := m.Metadata("a\x00b")
	refused(t, err, stasis.ErrInvalidArgument)
}

func TestMetadataOfAGGUFFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	from := filepath.Join("..", "..", "tests", "data", "recall-gemma3")
	if _, err := stasis.Quantize(context.Background(), from, path, nil); err != nil {
		t.Fatal(err)
	}
	m := must(stasis.Open(context.Background(), path, nil))(t)
	defer m.Close()
	equal(t, must(m.Metadata("general.architecture"))(t).Value, "gemma3")
	equal(t, must(m.Metadata("tokenizer.ggml.tokens"))(t).Kind, stasis.MetadataLeftOut)
}
