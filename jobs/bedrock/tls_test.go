package bedrock

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
)

// certificates returns the TLS configurations of a server that requires client certificates, of a
// client with a certificate, and of one without.
func certificates(t *testing.T) (server, known, stranger *tls.Config) {
	t.Helper()
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if ca, err := os.ReadFile(files.CA); err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no authority", err)
	}
	known, err = files.ClientConfig(true)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err = files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	known, stranger = known.Clone(), stranger.Clone()
	known.ServerName, stranger.ServerName = "localhost", "localhost"
	server = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	return server, known, stranger
}

// TestTLS shows requests, waits and disconnections over TLS. A client without a required
// certificate is refused, and one without TLS gets no answer.
func TestTLS(t *testing.T) {
	server, known, stranger := certificates(t)
	s := jobsServer(t, Config{HeaderTimeout: 200 * time.Millisecond, TLS: server})
	connect := func(cfg *tls.Config) (*client, *net.TCPConn) {
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		return newClient(t, tls.Client(nc, cfg)), nc.(*net.TCPConn)
	}
	one, _ := connect(known)
	one.ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	one.ask("GetJob\nname: bar\nConnection: wait\ntimeout: 50\n\n").wantStatus(t, "303 Timeout")
	// reading continues after the interrupted read
	one.ask("GetJob\nname: bar\n\n").wantStatus(t, noJob)

	two, tcp := connect(known)
	two.send("GetJob\nname: foo\n\n")
	if _, err := two.in.Peek(1); err != nil {
		t.Fatal(err)
	}
	_ = tcp.SetLinger(0)
	_ = tcp.Close()
	wantState(t, s, 1, jobs.Queued)

	three, _ := connect(stranger)
	_, _ = three.Write([]byte("GetJob\nname: foo\n\n")) // TLS 1.3 reports it only at the next read
	if got, err := three.receive(); err == nil {
		t.Errorf("a stranger got %+v", got)
	}
	plain := dial(t, s.addr)
	plain.send("GetJob\nname: foo\n\n")
	if got, err := plain.receive(); err == nil {
		t.Errorf("without TLS: %+v", got)
	}
	silent := dial(t, s.addr)
	silent.wantEnd()
}
