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

	"github.com/swarmiji/swarmiji/internal/reach"
)

// tlsAlert is the first byte of a TLS alert record, which a TLS server sends to a plain AMQP
// client.
const tlsAlert = 0x15

// dial makes one connection, with TLS and the AMQP handshake, and blocks for at most ep.timeout. It
// starts the goroutine that writes to the socket. It logs a warning if the server's certificate is
// not verified. After an error the connection is closed. Its errors name the address, and a refused
// user or virtual host, but never the password.
func (ep endpoint) dial(ctx context.Context, name string, log *slog.Logger) (*amqp.Connection, *socket, error) {
	ctx, cancel := context.WithTimeout(ctx, ep.timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", ep.addr)
	if err != nil {
		return nil, nil, ep.unusable(reach.Reason(err), reach.Start, nil, err)
	}
	if ep.tls != nil {
		if ep.tls.InsecureSkipVerify {
			log.LogAttrs(ctx, slog.LevelWarn, "amqp: the server's certificate is not verified", slog.String("addr", ep.addr))
		}
		t := tls.Client(conn, ep.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake's error is more informative
			if rh, ok := errors.AsType[tls.RecordHeaderError](err); ok {
				return nil, nil, ep.unusable("the server does not speak TLS on this port", "use an amqp:// URL, or the port for TLS", nil, rh)
			}
			return nil, nil, ep.unusable("TLS: "+err.Error(), "check the certificates", nil, err)
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

// unusable returns the error of a connection that was not made. Its text names the server, the
// problem found and the next step for a person. It wraps class, for example ErrAccess or nil, and
// cause.
func (ep endpoint) unusable(found, next string, class, cause error) error {
	return &reach.Error{Server: "RabbitMQ at " + ep.addr, Found: found, Next: next, Class: class, Cause: cause}
}

// handshakeError returns an error that names the likely cause of a failed handshake: a timeout, TLS
// on one side only, refused credentials or virtual host (both ErrAccess), or a broken connection.
// Without one of these signs it names err.
func (ep endpoint) handshakeError(ctx context.Context, err error, sock *socket) error {
	first := sock.first.Load() - 1
	ae, ok := errors.AsType[*amqp.Error](err)
	switch {
	case ctx.Err() != nil:
		return ep.unusable(fmt.Sprintf("no AMQP answer in %v", ep.timeout.Round(time.Millisecond)), reach.Scheme, nil, context.Cause(ctx))
	case ep.tls == nil && first == tlsAlert:
		return ep.unusable("the server speaks TLS on this port", "use an amqps:// URL", nil, err)
	case first < 0:
		return ep.unusable("the server closed the connection without an answer", "check the port; if it expects TLS, use an amqps:// URL", nil, io.ErrUnexpectedEOF)
	case ok && ae.Server && ae.Code == amqp.AccessRefused:
		return ep.unusable(fmt.Sprintf("login of user %q refused (%s)", ep.user, answer(ae)), reach.Login, ErrAccess, err)
	case ok && ae.Server && ae.Code == amqp.NotAllowed && strings.Contains(ae.Reason, "vhost") && !strings.Contains(ae.Reason, "is down"):
		return ep.unusable(fmt.Sprintf("user %q may not use virtual host %q (%s)", ep.user, ep.vhost, answer(ae)),
			"correct the path of the URL, or add it with its permissions", ErrAccess, err)
	case ok && !ae.Server:
		// The library reports wrong credentials or vhost whenever the connection breaks in the handshake;
		// a server that refuses them says so itself.
		return ep.unusable("the connection broke in the handshake", reach.Scheme, nil, io.ErrUnexpectedEOF)
	default:
		return ep.unusable(reach.Reason(err), "check the server's log", nil, err)
	}
}

// answer returns the first sentence of the server's reason, without the name of its code, which
// stands before " - ".
func answer(e *amqp.Error) string {
	text := e.Reason
	if _, after, ok := strings.Cut(text, " - "); ok {
		text = after
	}
	first, _, _ := strings.Cut(text, ". ")
	return first
}
