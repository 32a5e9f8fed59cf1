package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
)

type options struct {
	broker, queue, root string
	consumers, workers  int
	json, local         bool
	consume             bool // be a consumer process
	logger              *slog.Logger
	stderr              io.Writer
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{stderr: stderr}
	f := flag.NewFlagSet("sourcestats", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.broker, "broker", os.Getenv(brokerVariable), "`URL` of the broker, default $"+brokerVariable+"; none: memory, all in this process")
	f.StringVar(&o.queue, "queue", "sourcestats", "`name` of the queue")
	f.StringVar(&o.root, "root", "", "`directory` of Go files; default $(go env GOROOT)/src")
	f.IntVar(&o.consumers, "consumers", 2, "how many consumers; with -broker each is a process")
	f.IntVar(&o.workers, "workers", 0, "how many files a consumer counts at once; 0: one per CPU")
	f.BoolVar(&o.json, "json", false, "print one JSON line")
	f.BoolVar(&o.local, "local", false, "count here, without tasks")
	f.BoolVar(&o.consume, "consume", false, "be one of the consumers")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.consumers < 1:
		err = errors.New("-consumers must be at least 1")
	case o.workers < 0:
		err = errors.New("-workers must not be negative")
	case o.consume && o.broker == "":
		err = errors.New("-consume needs -broker")
	}
	if err != nil {
		say(stderr, "sourcestats: %v\n", err)
		f.Usage()
	}
	return o, err
}
