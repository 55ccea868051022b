// Runnable examples: what the documentation shows is what a test runs.

package stasis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	stasis "stasis.example/stasis.git/bindings/go"
)

// The first call opens the model; everything else hangs on it.
func example() (*stasis.Model, *stasis.Session) {
	model, err := stasis.Open(context.Background(), "../../tests/data/recall-llama", nil)
	if err != nil {
		log.Fatal(err)
	}
	session, err := model.NewSession(nil)
	if err != nil {
		log.Fatal(err)
	}
	return model, session
}

// A conversation is frozen to a file, resumed from it, and proven.
func Example() {
	ctx := context.Background()
	model, session := example()
	defer model.Close()
	folder, _ := os.MkdirTemp("", "stasis")
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "talk.stasis")

	say := func(session *stasis.Session, text string) {
		err := session.AppendMessage(ctx, stasis.Message{Role: "user", Text: text},
			stasis.MessageReply, nil)
		if err != nil {
			log.Fatal(err)
		}
		generation := session.Generation(ctx, nil)
		defer generation.Close()
		for generation.Next() {
			fmt.Print(generation.Text())
		}
		fmt.Println()
	}
	say(session, "Let's start by defining a variable k equal to 5. What is k?")
	session.Save(ctx, path, nil)
	session.Close() // the file is all that is left of the conversation

	session, err := model.Load(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	say(session, "Now set a new variable m equal to k multiplied by 11. What is m?")
	session.Save(ctx, path, nil) // appends what is new

	snapshot, err := stasis.OpenSnapshot(path)
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	report, err := snapshot.Verify(ctx, model, nil)
	fmt.Println(report.Positions, "positions verified:", report.Verified, err)
	// Output:
	// k is 5.
	// m is 55.
	// 78 positions verified: true <nil>
}

func ExampleSession_Generate() {
	model, session := example()
	defer model.Close()
	defer session.Close()
	ctx := context.Background()
	session.AppendMessage(ctx, stasis.Message{Role: "user",
		Text: "Let's start by defining a variable k equal to 5. What is k?"},
		stasis.MessageReply, nil)
	result, err := session.Generate(ctx, &stasis.GenerateOptions{TokensMax: 40},
		func(generated stasis.Generated) error {
			fmt.Print(generated.Text)
			return nil
		})
	fmt.Println()
	fmt.Println(result.Count, "tokens", result.StopReason == stasis.StopEndToken, err)
	// Output:
	// k is 5.
	// 6 tokens true <nil>
}

func ExampleSession_Fork() {
	model, session := example()
	defer model.Close()
	defer session.Close()
	ctx := context.Background()
	session.Append(ctx, []stasis.Token{1, 3, 362, 278, 5}, nil)
	child, _ := session.Fork()
	defer child.Close()
	child.Append(ctx, []stasis.Token{334}, nil)
	session.Append(ctx, []stasis.Token{334}, nil)
	a, _ := session.Digest()
	b, _ := child.Digest()
	fmt.Println(a == b)
	// Output: true
}

func ExampleSession_Write() {
	model, session := example()
	defer model.Close()
	defer session.Close()
	ctx := context.Background()
	session.Append(ctx, []stasis.Token{1, 3, 362, 278, 5}, nil)
	var stream bytes.Buffer // or a network connection
	if err := session.Write(ctx, &stream, nil); err != nil {
		log.Fatal(err)
	}
	arrived, err := model.Read(ctx, &stream, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer arrived.Close()
	a, _ := session.Digest()
	b, _ := arrived.Digest()
	fmt.Println(a == b)
	// Output: true
}

func ExampleStatus() {
	_, err := stasis.OpenSnapshot("nowhere.stasis")
	fmt.Println(errors.Is(err, stasis.ErrNotFound))
	var status stasis.Status
	fmt.Println(errors.As(err, &status), int(status), status)
	// Output:
	// true
	// true 2 NOT_FOUND
}

func ExampleStep() {
	model, a := example()
	defer model.Close()
	defer a.Close()
	b, _ := model.NewSession(nil)
	defer b.Close()
	items := []stasis.StepItem{
		{Session: a, Tokens: []stasis.Token{1, 3, 362}, Sample: true},
		{Session: b, Tokens: []stasis.Token{1, 3, 362, 278, 5}, Sample: true},
	}
	for step := 0; step < 3; step++ {
		if err := stasis.Step(context.Background(), items, nil); err != nil {
			log.Fatal(err)
		}
		items[0].Tokens, items[1].Tokens = nil, nil // the next steps only draw
	}
	for _, item := range items {
		info, _ := item.Session.Info()
		fmt.Println(info.Position, item.Err)
	}
	// Output:
	// 6 <nil>
	// 8 <nil>
}

func ExampleStore() {
	model, session := example()
	defer model.Close()
	defer session.Close()
	folder, err := os.MkdirTemp("", "stasis-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	ctx := context.Background()
	store, err := stasis.OpenStore("dir:"+folder, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Put(ctx, session, "talk", nil); err != nil {
		log.Fatal(err)
	}
	// Two continue it, and one is first.
	one, _ := store.Get(ctx, model, "talk", nil)
	defer one.Close()
	two, _ := store.Get(ctx, model, "talk", nil)
	defer two.Close()
	one.Append(ctx, []stasis.Token{1, 3, 362}, nil)
	newer, _ := store.Put(ctx, one, "talk", nil)
	_, err = store.Put(ctx, two, "talk", nil)
	var conflict *stasis.ConflictError
	fmt.Println(errors.As(err, &conflict), conflict.Root == newer.Root)
	// Output: true true
}
