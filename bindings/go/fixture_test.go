// Fixtures of the tests: the bundled models, opened once, and short forms of calls that must not
// fail.

package stasis_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

var background = context.Background()

const data = "../../tests/data/"

const (
	llama = "recall-llama"         // trained, ChatML
	gemma = "recall-gemma3"        // trained, windows, Gemma's template
	plain = "zoo/llama-gqa-untied" // tiny, without a tokenizer
	tiny  = "zoo/qwen2-bias-tied"  // tiny, another model
	local = "zoo/gemma3-text"      // tiny, with windows
)

var (
	modelsMutex sync.Mutex
	models      = map[string]*stasis.Model{}
)

// model is opened once for all tests and stays open.
func model(t testing.TB, name string) *stasis.Model {
	t.Helper()
	modelsMutex.Lock()
	defer modelsMutex.Unlock()
	if models[name] == nil {
		models[name] = must(stasis.Open(background, data+name, nil))(t)
	}
	return models[name]
}

// must takes the value of a call that is not to fail: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, got, expected T) {
	t.Helper()
	if got != expected {
		t.Fatalf("got %v, expected %v", got, expected)
	}
}

// refused checks an error's status and what its message names.
func refused(t testing.TB, err error, status stasis.Status, names ...string) {
	t.Helper()
	var found stasis.Status
	if !errors.Is(err, status) || !errors.As(err, &found) || found != status {
		t.Fatalf("got %v, expected %v", err, status)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Fatalf("%q does not name %q", err, name)
		}
	}
}

// private is a session of its own domain: what a test compares, each side has computed.
func private(t testing.TB, m *stasis.Model) *stasis.Session {
	t.Helper()
	session := must(m.NewSession(&stasis.SessionOptions{Domain: stasis.DomainPrivate}))(t)
	t.Cleanup(func() { session.Close() })
	return session
}

// someTokens look like nothing in particular, within a vocabulary of 192 or more.
func someTokens(count int, seed uint32) []stasis.Token {
	tokens := make([]stasis.Token, count)
	for i := range tokens {
		seed = seed*1664525 + 1013904223
		tokens[i] = stasis.Token((seed >> 16) % 192)
	}
	return tokens
}

func sessionOf(t testing.TB, m *stasis.Model, tokens []stasis.Token) *stasis.Session {
	t.Helper()
	session := private(t, m)
	ok(t, session.Append(background, tokens, nil))
	return session
}

func digest(t testing.TB, session *stasis.Session) stasis.Digest {
	t.Helper()
	return must(session.Digest())(t)
}

func position(t testing.TB, session *stasis.Session) uint64 {
	t.Helper()
	return must(session.Info())(t).Position
}

// altered is a copy of a bundled model with one file changed.
func altered(t testing.TB, name, file string, change func([]byte) []byte) string {
	t.Helper()
	folder := t.TempDir()
	for _, entry := range must(os.ReadDir(data + name))(t) {
		bytes := must(os.ReadFile(filepath.Join(data+name, entry.Name())))(t)
		if entry.Name() == file {
			bytes = change(bytes)
		}
		ok(t, os.WriteFile(filepath.Join(folder, entry.Name()), bytes, 0o600))
	}
	return folder
}

// saved is a file of a session with these tokens.
func saved(t testing.TB, m *stasis.Model, tokens []stasis.Token) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved.stasis")
	ok(t, sessionOf(t, m, tokens).Save(background, path, nil))
	return path
}
