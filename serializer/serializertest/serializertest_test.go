package serializertest_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/serializer/serializertest"
)

// TestHostileInputsAreRefused shows that every input of the list is refused. A valid input does not
// belong in the list.
func TestHostileInputsAreRefused(t *testing.T) {
	for _, h := range serializertest.HostileInputs() {
		if err := serializer.ScanJSON(h.Data); !errors.Is(err, serializer.ErrMalformed) {
			t.Errorf("%s: ScanJSON gave %v, want ErrMalformed", h.Name, err)
		}
		if err := msgpack.Scan(h.Data); !errors.Is(err, serializer.ErrMalformed) {
			t.Errorf("%s: msgpack.Scan gave %v, want ErrMalformed", h.Name, err)
		}
		lax := strings.HasPrefix(h.Name, "JSON object with a key twice") || strings.HasPrefix(h.Name, "JSON lone") ||
			strings.HasPrefix(h.Name, "JSON invalid UTF-8") || strings.HasSuffix(h.Name, "exponent") || strings.HasSuffix(h.Name, "float64")
		if json.Valid(h.Data) != lax {
			t.Errorf("%s: encoding/json says valid = %v; the list says what it would let through", h.Name, !lax)
		}
	}
}
