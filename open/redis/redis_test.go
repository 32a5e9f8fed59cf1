package redis_test

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/redis"
)

// TestImport shows that one import registers the schemes of Redis. An error names the import for
// other schemes.
func TestImport(t *testing.T) {
	for _, url := range []string{"redis://host", "rediss://host", "redis-cluster://a,b"} {
		s, err := open.Open(t.Context(), url, open.Options{})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	const want = `open: no driver for amqp:// is imported; add import _ "github.com/swarmiji/swarmiji/open/amqp", ` +
		`or _ "github.com/swarmiji/swarmiji/open/all" for all schemes`
	if _, err := open.Open(t.Context(), "amqp://u:hunter2@host", open.Options{}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := open.Open(t.Context(), "hworker+redis://host", open.Options{}); err == nil || !strings.Contains(err.Error(), "swarmiji/open/hworker") {
		t.Errorf("hworker has a driver of its own: %v", err)
	}
	if _, err := open.Open(t.Context(), "memory://", open.Options{}); err == nil || !strings.Contains(err.Error(), "there is no adapter for memory://; known are mem://, amqp://") {
		t.Errorf("a scheme that nobody has: %v", err)
	}
}
