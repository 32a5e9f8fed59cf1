package amqpconn

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
)

// authority signs certificates for servers that each have one fault.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	a.cert = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}, nil, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign signs a template, with itself as the parent if parent is nil.
func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// server returns a server certificate for 127.0.0.1 that expires at until.
func (a *authority) server(until time.Time) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	cert := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// listen accepts connections, performs the TLS handshake if cfg is set, and records the first plain
// bytes of each client.
func listen(t *testing.T, cfg *tls.Config) (addr string, heard func() []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		said []byte
	)
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		if cfg != nil {
			conn = tls.Server(conn, cfg)
		}
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		data, _ := io.ReadAll(io.LimitReader(conn, 8)) // at most a protocol header
		mu.Lock()
		said = append(said, data...)
		mu.Unlock()
	}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String(), func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Clone(said)
	}
}

// TestServersThatMustNotBeTrusted shows that each server is refused with a readable reason before
// any AMQP data, and above all the credentials, is sent.
func TestServersThatMustNotBeTrusted(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	valid := time.Now().Add(24 * time.Hour)
	good := a.server(valid)
	for name, c := range map[string]struct {
		server *tls.Config // nil: plain text
		name   string      // expected by the client
		want   string
	}{
		"expired":       {&tls.Config{Certificates: []tls.Certificate{a.server(time.Now().Add(-time.Hour))}}, "", "expired"},
		"another CA":    {&tls.Config{Certificates: []tls.Certificate{other.server(valid)}}, "", "unknown authority"},
		"another host":  {&tls.Config{Certificates: []tls.Certificate{good}}, "elsewhere.example", "elsewhere.example"},
		"TLS 1.0":       {&tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, "", "version"},
		"no TLS at all": {nil, "", "TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, heard := listen(t, c.server)
			roots := x509.NewCertPool()
			roots.AddCert(a.cert)
			conn := open(t, amqpconnect.Config{
				URLs: []string{"amqps://user:S3cret@" + addr + "/?connection_timeout=2000"},
				// must be raised by the package
				TLS: &tls.Config{RootCAs: roots, ServerName: c.name, MinVersion: tls.VersionTLS10},
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := conn.Session(ctx)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want ErrUnavailable with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "S3cret") {
				t.Errorf("the password is in %q", err)
			}
			if said := heard(); c.server != nil && len(said) > 0 || bytes.Contains(said, []byte("AMQP")) {
				t.Errorf("the client spoke to it: %q", said)
			}
		})
	}
}
