// Chat talks with a model on the terminal. With -session it continues the file's conversation, if
// the file exists, and saves it after each turn. Ctrl-C ends a reply; at the prompt, the program.
//
//	go run ./examples/chat [-session FILE] [-system TEXT] [-temperature T] [-seed N] MODEL
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	stasis "stasis.example/stasis.git/bindings/go"
)

func main() {
	var chat chat
	flag.StringVar(&chat.path, "session", "", "file to go on with and to save to")
	flag.StringVar(&chat.system, "system", "", "system text of a new session")
	temperature := flag.Float64("temperature", 0, "of sampling; 0: greedy")
	flag.Uint64Var(&chat.sampling.Seed, "seed", 0, "of sampling")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: chat [options] MODEL")
		os.Exit(2)
	}
	chat.sampling.Temperature = float32(*temperature)
	if err := chat.run(flag.Arg(0), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type chat struct {
	path, system string
	sampling     stasis.Sampling
	session      *stasis.Session
}

func (c *chat) run(modelPath string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	model, err := stasis.Open(ctx, modelPath, nil)
	if err != nil {
		return err
	}
	defer model.Close()
	if err := c.begin(ctx, model); err != nil {
		return err
	}
	defer c.session.Close()
	if err := c.session.SetSampling(&c.sampling); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for fmt.Fprint(out, "> "); lines.Scan(); fmt.Fprint(out, "> ") {
		if lines.Text() == "" {
			continue
		}
		if err := c.turn(lines.Text(), out); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	return lines.Err()
}

func (c *chat) begin(ctx context.Context, model *stasis.Model) (err error) {
	if c.path != "" {
		c.session, err = model.Load(ctx, c.path, nil)
		if err == nil || !errors.Is(err, stasis.ErrNotFound) {
			return err
		}
	}
	if c.session, err = model.NewSession(nil); err != nil || c.system == "" {
		return err
	}
	return c.session.AppendMessage(ctx, stasis.Message{Role: "system", Text: c.system}, 0, nil)
}

// turn says one thing and shows the reply as it comes; what an interrupt leaves of it stays.
func (c *chat) turn(text string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := c.session.AppendMessage(ctx, stasis.Message{Role: "user", Text: text},
		stasis.MessageReply, nil)
	if err == nil {
		generation := c.session.Generation(ctx, nil)
		for generation.Next() {
			fmt.Fprint(out, generation.Text())
		}
		err = generation.Close()
	}
	fmt.Fprintln(out)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if c.path == "" {
		return nil
	}
	return c.session.Save(context.Background(), c.path, nil)
}
