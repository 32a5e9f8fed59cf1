package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// serve starts an HTTP server for h on a free port of 127.0.0.1. It returns the URL of the server
// and a function that shuts the server down and returns its error.
func serve(ctx context.Context, h http.Handler) (url string, end func(context.Context) error, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	return "http://" + ln.Addr().String(), func(ctx context.Context) error {
		err := s.Shutdown(ctx)
		if why := <-ended; !errors.Is(why, http.ErrServerClosed) {
			err = errors.Join(err, why)
		}
		return err
	}, nil
}

// start calls run in a goroutine. The returned function cancels the context of run, waits until run
// returns, and returns its error.
func start(run func(context.Context) error) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-ended
	}
}

// closing calls end with a timeout of 10 seconds, and joins its error to *err. Use it in a defer
// statement.
func closing(err *error, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	*err = errors.Join(*err, end(ctx))
}
