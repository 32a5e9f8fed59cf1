package when

import (
	"go/build"
	"slices"
	"testing"
)

// TestZonesAreEmbedded: containers often have no files of zones, and a listener there must read
// what others have written.
func TestZonesAreEmbedded(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil || !slices.Contains(p.Imports, "time/tzdata") {
		t.Errorf("imported are %v, %v", p.Imports, err)
	}
}
