package testserver

import (
	"fmt"
	"os/exec"
	"testing"
)

// RequireBrowser returns the path of Chromium. Without it the test is skipped, see the package
// comment.
func RequireBrowser(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	giveUp(tb, fmt.Errorf("%w: chromium (Debian: apt-get install chromium)", ErrMissing))
	return ""
}
