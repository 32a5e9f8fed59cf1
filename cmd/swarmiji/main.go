// Swarmiji is the program for people who run Swarmiji's consumers: it submits tasks and shows their results, tells who works
// and on what, commands consumers, looks after dead letters, and says what is wrong with a set-up.
//
//	export SWARMIJI_BROKER=amqp://user:password@host:5672/
//	swarmiji doctor
//	swarmiji call math.add '{"a": 1, "b": 2}' --wait
//
// Every command has help with examples; docs/cli.md is all of it on one page. The exit status is 0 when all went well, 1
// after an error, 2 after wrong arguments, 3 when what was asked for is not there, 4 when a server or every consumer is out
// of reach, 5 when the task that was waited for has failed, 6 when an answer came too late, and 7 when there was one already.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	status := run(ctx, os.Args[1:], surroundings{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv})
	stop()
	os.Exit(status)
}
