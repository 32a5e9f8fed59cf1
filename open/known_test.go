package open_test

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/open"
)

// TestAdvice shows that the error for a URL without a usable scheme names the registered schemes.
// For a SQLite file it tells how to write its URL.
func TestAdvice(t *testing.T) {
	const file = "for a SQLite file write sqlite:// before an absolute path, or sqlite: before a relative one"
	for url, want := range map[string]string{
		"localhost:5672":     "no scheme; write mem://, amqp://, nats://",
		"":                   "postgres:// or sqlite://, such as amqp://user:password@host:5672/vhost",
		"app.db":             "the URL has no scheme; " + file,
		"/path/app.db?a=b":   "the URL has no scheme; " + file,
		"sqlite3:app.db":     "unknown scheme sqlite3; " + file,
		"sqlite3:///app.db":  "no adapter for sqlite3://; write sqlite:// in its place",
		"SQLite3://u:hush@h": "no adapter for sqlite3://; write sqlite:// in its place",
		"u:hush@host.db":     file,
	} {
		_, err := open.Broker(t.Context(), url, open.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	var r open.Registry
	if err := r.Register(schemes{"old"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Broker(t.Context(), "host", open.Options{}); err == nil || strings.Contains(err.Error(), "amqp") {
		t.Errorf("a Registry without amqp:// says %v", err)
	}
}
