// Relay takes a conversation over from a file, says one thing, and hands the file on: to itself, or
// to the program of the same name in another language. It prints the session's digest and then the
// reply.
//
//	go run ./examples/relay MODEL FILE TEXT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	stasis "stasis.example/stasis.git/bindings/go"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: relay MODEL FILE TEXT")
		os.Exit(2)
	}
	if err := relay(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func relay(ctx context.Context, modelPath, path, text string) error {
	model, err := stasis.Open(ctx, modelPath, nil)
	if err != nil {
		return err
	}
	defer model.Close()
	session, err := resumed(ctx, model, path)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := sign(session); err != nil {
		return err
	}
	err = session.AppendMessage(ctx, stasis.Message{Role: "user", Text: text},
		stasis.MessageReply, nil)
	if err != nil {
		return err
	}
	reply := ""
	_, err = session.Generate(ctx, &stasis.GenerateOptions{TokensMax: 40},
		func(generated stasis.Generated) error {
			reply += generated.Text
			return nil
		})
	if err != nil {
		return err
	}
	if err := session.Save(ctx, path, nil); err != nil {
		return err
	}
	digest, err := session.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%s\n", digest, reply)
	return nil
}

// resumed is the session of the file, or a new one if there is none.
func resumed(ctx context.Context, model *stasis.Model, path string) (*stasis.Session, error) {
	session, err := model.Load(ctx, path, nil)
	if errors.Is(err, stasis.ErrNotFound) {
		return model.NewSession(nil)
	}
	return session, err
}

// sign adds this program's letter to those of the legs before.
func sign(session *stasis.Session) error {
	legs, err := session.Data("legs")
	if err != nil && !errors.Is(err, stasis.ErrNotFound) {
		return err
	}
	return session.SetData("legs", append(legs, 'G'))
}
