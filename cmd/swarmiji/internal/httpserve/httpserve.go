// Package httpserve serves HTTP until a command is interrupted.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Serve serves h until ctx ends. Then it waits for the requests in progress, for closing at most,
// and ends the others without an error. It closes ln.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, closing time.Duration) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	closed := make(chan error, 1)
	end := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer cancel()
		err := server.Shutdown(ending)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		closed <- err
	})
	err := server.Serve(ln)
	if end() { // ctx has not ended: the listener failed
		return err
	}
	return <-closed
}
