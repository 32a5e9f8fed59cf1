package amqpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// tlsAlert is the first byte of a TLS alert record, which is what a TLS server answers to a plain AMQP client.
const tlsAlert = 0x15

// dial makes one connection. Its errors name the address and nothing else of the URL.
func (ep endpoint) dial(ctx context.Context, name string, log *slog.Logger) (*amqp.Connection, *socket, error) {
	ctx, cancel := context.WithTimeout(ctx, ep.timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", ep.addr)
	if err != nil {
		return nil, nil, fmt.Errorf("amqp %s: %w", ep.addr, err)
	}
	if ep.tls != nil {
		if ep.tls.InsecureSkipVerify {
			log.LogAttrs(ctx, slog.LevelWarn, "amqp: the server's certificate is not verified", slog.String("addr", ep.addr))
		}
		t := tls.Client(conn, ep.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake's error says more
			if rh, ok := errors.AsType[tls.RecordHeaderError](err); ok {
				return nil, nil, fmt.Errorf("amqp %s: the server does not speak TLS on this port, use an amqp:// URL: %w", ep.addr, rh)
			}
			return nil, nil, fmt.Errorf("amqp %s: TLS: %w", ep.addr, err)
		}
		conn = t
	}
	sock := newSocket(conn)
	stop := context.AfterFunc(ctx, func() { sock.Fail(context.Cause(ctx)) })
	defer stop()
	properties := amqp.Table{"product": "swarmiji", "platform": "Go"}
	if name != "" {
		properties["connection_name"] = name
	}
	c, err := amqp.Open(sock, amqp.Config{
		SASL:       ep.sasl(properties),
		Vhost:      ep.vhost,
		Heartbeat:  ep.heartbeat,
		Properties: properties,
		Locale:     "en_US",
		FrameSize:  128 << 10,
	})
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		sock.Fail(net.ErrClosed)
		<-sock.Flushed()
		return nil, nil, ep.handshakeError(ctx, err, sock)
	}
	return c, sock, nil
}

// handshakeError says in plain words what the handshake's failure means.
func (ep endpoint) handshakeError(ctx context.Context, err error, sock *socket) error {
	first := sock.first.Load() - 1
	ae, ok := errors.AsType[*amqp.Error](err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("amqp %s: the handshake was not finished in %v: %w", ep.addr, ep.timeout.Round(time.Millisecond), context.Cause(ctx))
	case ep.tls == nil && first == tlsAlert:
		return fmt.Errorf("amqp %s: the server speaks TLS on this port, use an amqps:// URL: %w", ep.addr, err)
	case first < 0:
		return fmt.Errorf("amqp %s: the server hung up without a word; if it wants TLS on this port use an amqps:// URL: %w", ep.addr, io.ErrUnexpectedEOF)
	case ok && ae.Server && ae.Code == amqp.AccessRefused:
		return fmt.Errorf("amqp %s: %w: user name or password: %w", ep.addr, ErrAccess, err)
	case ok && ae.Server && ae.Code == amqp.NotAllowed && strings.Contains(ae.Reason, "vhost") && !strings.Contains(ae.Reason, "is down"):
		return fmt.Errorf("amqp %s: %w: virtual host: %w", ep.addr, ErrAccess, err)
	case ok && !ae.Server:
		// The library guesses wrong credentials or vhost whenever the line breaks in the handshake; a server that refuses says so.
		return fmt.Errorf("amqp %s: the connection broke in the handshake: %w", ep.addr, io.ErrUnexpectedEOF)
	default:
		return fmt.Errorf("amqp %s: %w", ep.addr, err)
	}
}
