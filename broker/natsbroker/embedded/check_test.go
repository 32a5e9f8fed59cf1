package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// answering returns a server without JetStream and a client that answers in its place.
func answering(t *testing.T, answer func(request string) string) *server.Server {
	t.Helper()
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	conn, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if _, err := conn.Subscribe("$JS.API.STREAM.LIST", func(m *nats.Msg) { _ = m.Respond([]byte(answer(string(m.Data)))) }); err != nil {
		t.Fatal(err)
	}
	if err := conn.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	return srv
}

func streamDirs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		msgs := filepath.Join(streamsDir(dir), n, "msgs")
		if err := os.MkdirAll(msgs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(msgs, "1.blk"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestStoreOfANewerServer shows that a stream that a newer server wrote, which is listed as
// offline, is reported with the reason.
func TestStoreOfANewerServer(t *testing.T) {
	srv := answering(t, func(string) string {
		return `{"total":2,"offset":0,"limit":256,"streams":[{"config":{"name":"OLD"}}],"missing":["NEW"],"offline":{"NEW":"unsupported - required API level: 99"}}`
	})
	err := check(t.Context(), streamDirs(t, "OLD", "NEW", ".DELETED"), srv)
	if !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), "stream NEW") || !strings.Contains(err.Error(), "API level: 99") {
		t.Errorf("check returned %v, want ErrStore for NEW with the reason", err)
	}
	if strings.Contains(fmt.Sprint(err), "OLD") || strings.Contains(fmt.Sprint(err), "DELETED") {
		t.Errorf("check complains of streams that are well: %v", err)
	}
}

// TestManyStreams shows that the list of streams is read in pages.
func TestManyStreams(t *testing.T) {
	srv := answering(t, func(request string) string {
		if strings.Contains(request, `"offset":2`) {
			return `{"total":3,"streams":[{"config":{"name":"C"}}]}`
		}
		return `{"total":3,"streams":[{"config":{"name":"A"}}],"offline":{"B":"why"}}`
	})
	if err := check(t.Context(), streamDirs(t, "A", "C"), srv); !errors.Is(err, ErrStore) || strings.Contains(err.Error(), "stream C") {
		t.Errorf("check returned %v, want ErrStore for B alone", err)
	}
}

func TestServerThatCannotList(t *testing.T) {
	srv := answering(t, func(string) string { return `{"error":{"code":503,"description":"insufficient resources"}}` })
	if err := check(t.Context(), streamDirs(t, "A"), srv); err == nil || !strings.Contains(err.Error(), "insufficient resources") {
		t.Errorf("check returned %v, want the server's reason", err)
	}
}
