package amqpbroker

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestIDTime(t *testing.T) {
	id := uuid.Must(uuid.NewV7())
	now := time.Now().Unix()
	if got := idTime(id.String()); got < now-1 || got > now {
		t.Errorf("idTime(%s) = %d, want about %d", id, got, now)
	}
	for _, id := range []string{"", "a", uuid.NewString(), "0190a5b0-0000-7000-8000-00000000000", "0190A5B0-0000-7000-8000-000000000000", "0190a5b0-00g0-7000-8000-000000000000"} {
		if got := idTime(id); got != 0 {
			t.Errorf("idTime(%q) = %d", id, got)
		}
	}
}
