// Bedrock sends its input to a server of jobs and prints the answers. It replaces nc where that is
// not installed.
//
//	go run ./cmd/swarmiji bedrock --store mem
//	printf 'CreateJob\nname: foo\ndata: {"value":1}\n\n' | go run ./examples/bedrock
//
// session.sh is a whole session: a job is made, claimed, updated, shown, finished, and claimed
// again.
//
//	NC='go run ./examples/bedrock' sh examples/bedrock/session.sh
//
// The end of the input tells the server that no request follows. It answers all requests, and a
// GetJob with "Connection: wait" stops waiting.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	addr := "127.0.0.1:8888"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	err := run(ctx, addr, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run copies in to the server and the answers to out, until the server closes the connection or ctx
// ends.
func run(ctx context.Context, addr string, in io.Reader, out io.Writer) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, in)
		if half, ok := conn.(*net.TCPConn); ok && err == nil {
			err = half.CloseWrite()
		}
		sent <- err
	}()
	if _, err := io.Copy(out, conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	err = conn.Close()
	select {
	case serr := <-sent:
		return errors.Join(serr, err)
	default: // the server has ended first: the rest of the input has no reader
		return err
	}
}
