package when

import (
	"go/build"
	"slices"
	"testing"
)

// TestZonesAreEmbedded shows that package when embeds the time zones. A container often has no zone
// files, but its listener must read the entries of other processes.
func TestZonesAreEmbedded(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil || !slices.Contains(p.Imports, "time/tzdata") {
		t.Errorf("imported are %v, %v", p.Imports, err)
	}
}
