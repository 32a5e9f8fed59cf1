// Swarmiji is the command line for operators. It submits tasks, shows results, lists nodes and
// their tasks, commands consumers, repairs dead letters, and checks a set-up.
//
//	export SWARMIJI_BROKER=amqp://user:password@host:5672/
//	swarmiji doctor
//	swarmiji call math.add '{"a": 1, "b": 2}' --wait
//
// Each command has help with examples. docs/cli.md has all of it on one page. The exit statuses:
//
//   - 0: success
//   - 1: an error
//   - 2: wrong arguments
//   - 3: the requested thing does not exist
//   - 4: a server or all consumers are unreachable
//   - 5: the awaited task failed
//   - 6: an answer came too late
//   - 7: an answer existed already
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // machines without zone files

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	status := run(ctx, os.Args[1:], cli.Surroundings{
		Stdin: os.Stdin, Terminal: terminal(os.Stdin), Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
	})
	stop()
	os.Exit(status)
}

// terminal reports whether a file is a terminal, or another device with lines.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
