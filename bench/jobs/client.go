package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// client is a client of the line protocol with one connection and one request at a time. It does
// little work of its own, because it shares two processors with the measured code.
type client struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
	body []byte
}

func dial(ctx context.Context, addr string) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, r: bufio.NewReaderSize(conn, 4096)}, nil
}

// close closes the connection. All requests have been answered by then.
func (c *client) close() { _ = c.conn.Close() }

// do sends a request, without its last empty line, and returns the status line and the body. The
// next call overwrites the body.
func (c *client) do(request ...string) (status string, body []byte, err error) {
	c.out = c.out[:0]
	for _, part := range request {
		c.out = append(c.out, part...)
	}
	c.out = append(c.out, "\n\n"...)
	if _, err := c.conn.Write(c.out); err != nil {
		return "", nil, err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return "", nil, err
	}
	status = strings.TrimRight(string(line), "\r\n")
	size := 0
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return "", nil, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		if v, ok := strings.CutPrefix(text, "Content-Length: "); ok {
			if size, err = strconv.Atoi(v); err != nil {
				return "", nil, err
			}
		}
	}
	if cap(c.body) < size {
		c.body = make([]byte, size)
	}
	c.body = c.body[:size]
	_, err = io.ReadFull(c.r, c.body)
	return status, c.body, err
}

// must is like do and returns an error unless the status is 200.
func (c *client) must(request ...string) ([]byte, error) {
	status, body, err := c.do(request...)
	if err == nil && !strings.HasPrefix(status, "200 ") {
		err = fmt.Errorf("answered %s", status)
	}
	return body, err
}

// jobID returns the number after "jobID": in a body.
func jobID(body []byte) (string, error) {
	_, rest, ok := strings.Cut(string(body), `"jobID":`)
	if !ok {
		return "", fmt.Errorf("no job id in %q", body)
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 1 {
		return "", fmt.Errorf("no job id in %q", body)
	}
	return rest[:end], nil
}
