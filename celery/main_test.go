package celery_test

import (
	"os"
	"testing"
)

// TestMain ends the Python processes and the Go parts that the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, w := range []*lazyWorld{overRedis, overRPC} {
		w.close()
	}
	os.Exit(code)
}
